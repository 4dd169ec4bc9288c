package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/lang/check"
	"trace/lang/codegen"
	"trace/lang/codegen/bpftest"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/symbols"
)

// values are the values that the kernel has put into a record.
type values struct {
	langtest.Table
	list []any
}

func (v values) Value(i int) (any, bool) { return v.list[i], v.list[i] != nil }

// TestStackOutput prints stacks in each place where a value may be.
func TestStackOutput(t *testing.T) {
	const program = `nvme:complete_rq {
	@k[kstack, ctrl] = count(); @v[ctrl] = ustack(2); @t = (kstack, 1); @none[ctrl] = kstack == nil
	printf("%s|%s|%t\n", kstack, ustack(2), ustack(3)); print(kstack); print((ustack(2), ustack(3))); print(@v[ctrl]); print(@v["other"])
	$s = kstack; if ($s == kstack && $s != ustack(2)) { print($s) }
}`
	for _, test := range []struct {
		format output.Format
		want   string
	}{
		{output.Text, `
        a+1
        b+2 [mod]
|
        main+3 x.c:4
|-

        a+1
        b+2 [mod]

(
        main+3 x.c:4
, -)

        main+3 x.c:4

-

        a+1
        b+2 [mod]

@k[
        a+1
        b+2 [mod]
, nvme0]: 1
@v[nvme0]: 
        main+3 x.c:4

@t: (
        a+1
        b+2 [mod]
, 1)
@none[nvme0]: false
`}, {output.JSON, `{"type":"printf","data":"\u000a        a+1\u000a        b+2 [mod]\u000a|\u000a        main+3 x.c:4\u000a|-\u000a"}
{"type":"value","data":"\u000a        a+1\u000a        b+2 [mod]\u000a"}
{"type":"value","data":["\u000a        main+3 x.c:4\u000a",null]}
{"type":"value","data":"\u000a        main+3 x.c:4\u000a","row":{"key":["nvme0"],"value":["main+3 x.c:4"]}}
{"type":"value","data":null,"row":{"key":["other"],"value":null}}
{"type":"value","data":"\u000a        a+1\u000a        b+2 [mod]\u000a"}
{"type":"map","data":{"@k":{"\u000a        a+1\u000a        b+2 [mod]\u000a,nvme0":1}},"func":"count","columns":["kstack","ctrl"],"rows":[{"key":[["a+1","b+2 [mod]"],"nvme0"],"value":1}]}
{"type":"map","data":{"@v":{"nvme0":"\u000a        main+3 x.c:4\u000a"}},"columns":["ctrl"],"rows":[{"key":["nvme0"],"value":["main+3 x.c:4"]}]}
{"type":"map","data":{"@t":["\u000a        a+1\u000a        b+2 [mod]\u000a",1]},"columns":[],"rows":[{"key":[],"value":[["a+1","b+2 [mod]"],1]}]}
{"type":"map","data":{"@none":{"nvme0":false}},"columns":["ctrl"],"rows":[{"key":["nvme0"],"value":false}]}
`},
	} {
		r := startRun(t, program)
		r.sink = output.NewPrinter(&r.out, test.format, event.NewWallClock(time.Unix(0, 0).UTC()))
		r.stacks = &stackStore{found: map[uint64]format.Frames{7: {"a+1", "b+2 [mod]"}, 8: {"main+3 x.c:4"}}}
		e := values{langtest.Table{"ctrl": "nvme0"}, []any{uint64(7), uint64(8), nil}}
		sc := &scope{setting: r.setting(0), event: e, stacks: map[ir.StackUse]int{{Word: "kstack", Frames: 127}: 0, {Word: "ustack", Frames: 2}: 1, {Word: "ustack", Frames: 3}: 2}}
		for _, c := range r.program.Clauses {
			if err := r.run(r.blocks[c.Sites[langtest.Fixture("nvme:complete_rq")]], sc); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range r.program.Maps {
			if err := r.scope().printMap(m, ir.MapOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got := r.out.String()
		if got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", test.format, got, test.want)
		}
	}
}

// TestStackNumbers captures stacks of this process in the kernel. Each is kept under the number of its frames and its process, is
// not longer than allowed, and begins with the traced function.
func TestStackNumbers(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	kernel, err := symbols.OpenKernel()
	if errors.Is(err, symbols.ErrHidden) {
		t.Skipf("needs addresses of the kernel (CAP_SYSLOG, or kernel.kptr_restrict 0): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, compareExchange := range []func() bool{plan.CompareExchange, func() bool { return false }} {
		run := runStacks(t, compareExchange, `syscall:enter / nr == getppid && pid == PID / {
	@a[kstack] = count(); @b[ustack] = count(); @c[kstack(2)] = count(); @d[ustack(1), kstack(127)] = count()
}`)
		entries := 0
		for _, n := range []int{1, 2, 127} {
			m := run.kernel[codegen.StacksName(n)]
			var number uint64
			var value []byte
			for it := m.Iterate(); it.Next(&number, &value); entries++ {
				pid, seen := binary.NativeEndian.Uint64(value), binary.NativeEndian.Uint64(value[8:])
				var list []uint64
				for raw := value[16:]; len(raw) > 0; raw = raw[8:] {
					if a := binary.NativeEndian.Uint64(raw); a != 0 {
						list = append(list, a)
					}
				}
				if got := codegen.StackNumber(pid, list, n); got != number || len(list) == 0 || len(list) > n {
					t.Errorf("%d frames of %d have the number %#x and are kept under %#x", len(list), pid, got, number)
				}
				if pid != 0 && pid != uint64(os.Getpid()) || seen == 0 || seen > now() {
					t.Errorf("a stack of process %d at %d", pid, seen)
				}
				if pid == 0 {
					for _, f := range kernel.Frames(list) {
						if f.Function == "" || strings.HasPrefix(f.Function, "bpf_") || strings.Contains(f.Function, "traceiter") {
							t.Errorf("%v is on a stack of the kernel", f)
						}
					}
				}
			}
		}
		if entries < 4 {
			t.Errorf("%d stacks are kept", entries)
		}
		if l, err := run.StackLosses(); err != nil || l.StackCounters != (codegen.StackCounters{}) {
			t.Errorf("%+v, %v", l, err)
		}
		var slots [][]byte
		if err := run.kernel[codegen.StackSlotsName].Lookup(uint32(0), &slots); err != nil {
			t.Fatal(err)
		}
		for _, cpu := range slots {
			if binary.NativeEndian.Uint64(cpu) != 0 {
				t.Errorf("%d slots are still in use", binary.NativeEndian.Uint64(cpu))
			}
		}
	}
}

// TestStackSlotsBusy takes all slots: the stacks are then absent, and counted.
func TestStackSlotsBusy(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	run := runStacks(t, plan.CompareExchange, `begin { @calls = 0 } syscall:enter / nr == getppid && pid == PID / { @calls++; @[ustack == nil] = count() }`,
		func(run *Run) {
			slots := run.kernel[codegen.StackSlotsName]
			all := make([][]byte, ebpf.MustPossibleCPU())
			for i := range all {
				all[i] = make([]byte, slots.ValueSize())
				all[i][0] = 4
			}
			if err := slots.Put(uint32(0), all); err != nil {
				t.Fatal(err)
			}
		})
	l, err := run.StackLosses()
	if err != nil || l.Busy != stackCalls {
		t.Errorf("%d stacks were not captured, want %d: %v", l.Busy, stackCalls, err)
	}
}

// stackCalls is how often the process of runStacks calls getppid.
const stackCalls = 20

// runStacks runs a program on system calls of this process.
func runStacks(t *testing.T, compareExchange func() bool, text string, prepare ...func(*Run)) *Run {
	t.Helper()
	all, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	host, err := probes.Detect(all, probes.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "PID", string(format.AppendNumber(nil, uint64(os.Getpid()))))
	program, err := compile("program", text, all.Probes(), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	divided, err := plan.New(program, plan.Options{StackLeft: all.StackLeft, CompareExchange: compareExchange, CPUs: ebpf.MustPossibleCPU()})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(divided.Sites, func(b *plan.Site) bool { return b.InUser != nil }); i >= 0 {
		t.Fatalf("in user space: %s", divided.Sites[i].InUser.Reason)
	}
	var out bytes.Buffer
	run, err := Start(divided, Options{Sink: output.NewPrinter(&out, output.Text, event.NewWallClock(time.Now())), Now: now, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	for _, p := range prepare {
		p(run)
	}
	session, err := probes.Attach(t.Context(), host, divided.Requests(), probes.AttachOptions{Maps: run.Maps(), Layouts: divided.Layouts()})
	if err != nil {
		t.Fatal(err)
	}
	for range stackCalls {
		unix.Getppid()
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	return run
}

func now() uint64 {
	var since unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &since)
	return uint64(since.Nano())
}

// Names are looked up while the run goes on and, for some time, after its end.
func TestSearching(t *testing.T) {
	run, end := context.WithCancel(t.Context())
	p := newPatience(run, nil, context.Background(), false)
	p.left = 50 * time.Millisecond
	ctx, done := p.begin(0)
	end()
	if ctx.Err() != nil {
		t.Error("the end of the run ends a search at once")
	}
	<-ctx.Done()
	done()
	for range 5 {
		ctx, done := p.begin(0)
		if p.left > 0 && ctx.Err() != nil {
			t.Error("a search has no time, though there is some left")
		}
		time.Sleep(20 * time.Millisecond)
		done()
	}
	if ctx, done := p.begin(0); ctx.Err() == nil {
		t.Errorf("%v are left", p.left)
	} else {
		done()
	}
}

// An interrupt ends the search for the last names, unless it has ended the run.
func TestSearchInterrupted(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		interrupted, interrupt := context.WithCancel(t.Context())
		run, end := context.WithCancel(interrupted)
		p := newPatience(run, interrupted, context.Background(), false)
		if interrupts {
			interrupt()
		}
		end()
		ctx, done := p.begin(0)
		if ctx.Err() != nil {
			t.Errorf("interrupted %v: there is no time for names", interrupts)
		}
		interrupt()
		if !interrupts {
			<-ctx.Done()
		} else if ctx.Err() != nil {
			t.Error("what ended the run ended the search")
		}
		done()
	}
}

// After the end of a run a user has half of the time for names that is left, and root all of it.
func TestPatienceIsByUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, end := context.WithCancel(context.Background())
		p := newPatience(run, nil, context.Background(), false)
		end()
		took := func(user uint32) (all time.Duration) {
			for range 3 {
				began := time.Now()
				p.search(user, func(ctx context.Context) bool { <-ctx.Done(); return false })
				all += time.Since(began)
			}
			return all
		}
		for i, want := range []time.Duration{namingPatience / 2, namingPatience / 4, namingPatience / 4} {
			if got := took([]uint32{1000, 1001, 0}[i]); got != want {
				t.Errorf("search %d: %v, want %v", i, got, want)
			}
		}
		if p.given.Load() != 9 {
			t.Errorf("%d searches were given up, want 9", p.given.Load())
		}
	})
}

// In a hurry names get a part of the time, and what is not found in it is counted.
func TestSearchInAHurry(t *testing.T) {
	p := newPatience(t.Context(), nil, t.Context(), true)
	began, waited := time.Now(), time.Duration(0)
	for range 100 {
		p.search(0, func(ctx context.Context) bool {
			at := time.Now()
			<-ctx.Done()
			waited += time.Since(at)
			return false
		})
	}
	if most := hurriedPiece + time.Since(began)/2; waited > most || p.given.Load() != 100 {
		t.Errorf("%d searches took %v, more than %v", p.given.Load(), waited, most)
	}
	deadline := p.asked()
	deadline(0, func(ctx context.Context) bool {
		if ctx.Err() != nil {
			t.Error("who asks for names gets none")
		}
		return true
	})
}

// While names are looked up, counts are read: nothing that has no names waits.
func TestNumbersDoNotWaitForNames(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	run := runStacks(t, plan.CompareExchange, `syscall:enter / nr == getppid && pid == PID / { @[ustack] = count(); @n = count() }`)
	run.patience.mu.Lock() // no search begins
	named := make(chan struct{})
	go func() {
		defer close(named)
		if all, err := run.Tables(); err != nil || len(all) != 2 {
			t.Error(all, err)
		}
	}()
	time.Sleep(50 * time.Millisecond)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		tables, err := run.Unsorted()
		if err != nil || len(tables) != 2 || len(tables[0].Rows) == 0 {
			t.Error(tables, err)
		}
		profiles, err := run.Counted()
		if err != nil || len(profiles) != 1 || len(profiles[0].Samples[0].Stacks) != 1 || profiles[0].Samples[0].Frames != nil {
			t.Error(profiles, err)
		}
		over, end := context.WithCancel(t.Context())
		end()
		run.Name(over, profiles)
		if s := profiles[0].Samples[0]; len(s.Frames) == 0 || s.Value == 0 {
			t.Errorf("%+v", s)
		}
		if _, err := run.StackLosses(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-counted:
	case <-time.After(20 * time.Second):
		t.Error("counts wait for names")
	}
	select {
	case <-named:
		t.Error("names were found without a search")
	default:
	}
	run.patience.mu.Unlock()
	<-named
}
