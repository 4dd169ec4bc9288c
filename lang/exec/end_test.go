package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes/event"
)

// ending is a program in user space that is about to end.
type ending struct {
	*testing.T
	*Run
	out     bytes.Buffer
	layouts []*event.Layout
}

// newEnding runs the begin clauses of a program.
func newEnding(t *testing.T, src string, o Options) *ending {
	t.Helper()
	program, err := compile("program", src, langtest.Catalog, check.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	divided, err := plan.New(program, plan.Options{NoKernel: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &ending{T: t}
	if r.layouts, err = event.ByID(divided.Layouts()); err != nil {
		t.Fatal(err)
	}
	o.Sink, o.Context, o.Now = output.NewPrinter(&r.out, output.Text, event.NewWallClock(time.Unix(0, 0))), t.Context(), func() uint64 { return 1 }
	if r.Run, err = Start(divided, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	return r
}

// arrive runs the program on so many events, and returns the error of the last one.
func (r *ending) arrive(events int) (err error) {
	r.Helper()
	for range events {
		record := make([]byte, 1<<10)
		id := slices.IndexFunc(r.layouts, func(l *event.Layout) bool { return l != nil })
		binary.LittleEndian.PutUint64(record, uint64(id))
		var e event.Event
		if err := event.Decode(r.layouts, record, &e); err != nil {
			r.Fatal(err)
		}
		_, err = r.Event(&e)
	}
	return err
}

// after is what the program has printed at its end.
func (r *ending) after() string {
	r.Helper()
	if err := r.End(); err != nil {
		r.Fatal(err)
	}
	return r.out.String()
}

// What came before exit() counts, and nothing after it. An interval calls it when everything that is still in the buffer has come.
func TestExit(t *testing.T) {
	for _, test := range []struct {
		src, want string
		past      bool
	}{
		{"interval:1s { exit() } unit:numbers { @n++ }", "@n: 3\n", false},
		{"self:signal:SIGUSR1 { exit() } unit:numbers { @n++ }", "@n: 3\n", false},
		{"unit:numbers { @n++; if (@n == 2) { exit() } }", "@n: 2\n", true},
		{"begin { exit() } unit:numbers { @n++ }", "", true},
	} {
		r := newEnding(t, test.src, Options{})
		if err := r.Interval(time.Second, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Signaled(); err != nil {
			t.Fatal(err)
		}
		if err := r.arrive(3); err != nil {
			t.Fatal(err)
		}
		if got := r.after(); got != test.want || !r.Stopped() || r.State().Past != test.past {
			t.Errorf("%s: %q, stopped %v, %+v", test.src, got, r.Stopped(), r.State())
		}
	}
}

// After the last event that is printed, the others are counted, and what prints does everything but that.
func TestEnough(t *testing.T) {
	const src = `unit:numbers { print(@a++); printf("%d\n", @b++); warnf("%d", @c++); system("echo %d", @d++); @n = count() } end { print("end") }`
	warned := 0
	r := newEnding(t, src, Options{Count: 2, Warn: func(bool, string) { warned++ }})
	for i := range 5 {
		if err := r.arrive(1); err != nil {
			t.Fatal(err)
		}
		if enough := i >= 1; r.State().Enough != enough {
			t.Errorf("after %d events: %+v", i+1, r.State())
		}
	}
	if got, want := r.after(), "0\n0\n0\n1\n1\n1\nend\n@a: 5\n@b: 5\n@c: 5\n@d: 5\n@n: 5\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := r.Acts().Commands; n != 2 || warned != 2 {
		t.Errorf("%d commands ran, %d warnings, want 2", n, warned)
	}
}

// Nobody takes what is printed.
func TestMute(t *testing.T) {
	r := newEnding(t, "unit:numbers { @n++ }; unit:numbers", Options{})
	r.Mute()
	if err := r.arrive(3); err != nil || r.out.Len() > 0 {
		t.Errorf("%v, printed %q", err, &r.out)
	}
}

// A loop that is cut short is an error of its event, and noted of other clauses. End clauses that begin later run to their ends.
func TestCut(t *testing.T) {
	const loop = "for ($i : 0..3) { @n++ }"
	cut, end := context.WithCancel(t.Context())
	r := newEnding(t, "interval:1s { "+loop+" } unit:numbers { "+loop+" } end { "+loop+` print("end") }`, Options{Cut: cut})
	if err := r.arrive(2); err != nil {
		t.Fatal(err)
	}
	end()
	if err := r.arrive(2); !errors.Is(err, ErrCut) || err.Error() != "the run was cut short" {
		t.Errorf("an event: %v", err)
	}
	if err := r.Interval(time.Second, 1); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.after(), r.Cut()), "end\n@n: 9\n[interval:1s]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// So is a loop in the predicate, whose event is not rejected.
func TestCutPredicate(t *testing.T) {
	cut, end := context.WithCancel(t.Context())
	end()
	r := newEnding(t, `unit:numbers / any(split("a b", " "), # == "c") / { @n++ }`, Options{Cut: cut})
	err := r.arrive(1)
	if n := r.Rejected(langtest.Fixture("unit:numbers")); !errors.Is(err, ErrCut) || n != 0 {
		t.Errorf("%v, %d rejected", err, n)
	}
}

// What waits for the end of an endless clause knows which one it is, and can end it.
func TestBusy(t *testing.T) {
	for _, src := range []string{"end { while (true) { @n++ } }", `end { system("sleep 100"); @n++ }`} {
		cut, end := context.WithCancel(t.Context())
		r := newEnding(t, src, Options{Cut: cut})
		over := make(chan error)
		go func() { over <- r.End() }()
		clause, busy := r.Busy()
		for ; clause == ""; clause, busy = r.Busy() {
			time.Sleep(time.Millisecond)
		}
		if clause != "end" || !busy {
			t.Errorf("%s: %q is busy: %v", src, clause, busy)
		}
		end()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if clause, busy := r.Busy(); fmt.Sprint(r.Cut()) != "[end]" || clause != "" || busy {
			t.Errorf("%s: cut short: %s; busy at the end: %q, %v", src, r.Cut(), clause, busy)
		}
	}
	r := newEnding(t, "unit:numbers { while (true) { } }", Options{})
	err := r.Between(func(uint64) error {
		if clause, busy := r.Busy(); clause != "" || !busy {
			t.Errorf("%q is busy: %v, want something else", clause, busy)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A test that is cut short has failed.
func TestCutTrial(t *testing.T) {
	cut, end := context.WithCancel(t.Context())
	end()
	r := newEnding(t, "test:endless { while (true) { } }", Options{Cut: cut})
	c := r.Trials(ir.OnTest)[0]
	if trial, err := r.Try(c, 1, r.machine.sink, func(string) {}); err != nil || trial.Passed() || len(r.Cut()) != 1 {
		t.Errorf("%+v: %v; cut short: %s", trial, err, r.Cut())
	}
}
