package exec

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"trace/lang/agg"
	"trace/lang/check"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
	"trace/probes/symbols"
)

// TestProfiled checks which maps have profiles.
func TestProfiled(t *testing.T) {
	program, err := compile("program", `nvme:complete_rq {
	@count[kstack] = count(); @sum[ctrl, ustack] = sum(latency); @hist[kstack] = hist(latency); @quantile[kstack] = quantile(latency, 50)
	@stats[kstack] = stats(latency); @rate[kstack(3)] = rate(); @number[kstack] = latency
	@plain[ctrl] = count(); @avg[kstack] = avg(latency); @min[kstack] = min(latency); @max[kstack] = max(latency); @gauge[kstack] = gauge(1)
	@enum[kstack] = opcode; @text[kstack] = ctrl; @tuple[kstack] = (1, 2); @value[ctrl] = kstack
}`, []*event.Probe{langtest.Fixture("nvme:complete_rq")}, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"@count", "@sum", "@hist", "@quantile", "@stats", "@rate", "@number"}
	if got := program.Profiled(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestProfile makes profiles of elements without frames. Runs in the kernel test the frames.
func TestProfile(t *testing.T) {
	key := []ir.Column{{Type: event.Type{Kind: format.Stack, Size: 8}}, {Type: event.Type{Kind: event.String}}}
	duration := []ir.Column{{Type: event.Type{Kind: event.Int, Size: 8, Unit: event.Nanoseconds}}}
	elementOf := func(comm string, state ...uint64) ir.Element { return ir.Element{Key: []any{nil, comm}, State: state} }
	minus := ^uint64(0)
	for _, test := range []struct {
		m       ir.Map
		entries []ir.Element
		want    result.Profile
	}{
		{
			ir.Map{Name: "@c", Key: key, Value: duration, Agg: &agg.Agg{Func: agg.Count{}}},
			[]ir.Element{elementOf("a", 2), elementOf("b", 7), elementOf("none", 0)},
			result.Profile{Map: "@c", Samples: []result.Sample{{Key: []string{"b"}, Value: 7}, {Key: []string{"a"}, Value: 2}}},
		},
		{
			ir.Map{Name: "@s", Key: key, Value: duration, Agg: &agg.Agg{Func: agg.Sum{}, Signed: true}},
			[]ir.Element{elementOf("a", 2), elementOf("below", minus)},
			result.Profile{Map: "@s", Unit: event.Nanoseconds, Samples: []result.Sample{{Key: []string{"a"}, Value: 2}}, Negative: 1},
		},
		{
			ir.Map{Name: "@t", Key: key, Value: duration, Agg: &agg.Agg{Func: agg.Stats{}}},
			[]ir.Element{elementOf("a", 2, 30)},
			result.Profile{Map: "@t", Unit: event.Nanoseconds, Samples: []result.Sample{{Key: []string{"a"}, Value: 30}}},
		},
		{
			ir.Map{Name: "@h", Key: key, Value: duration, Agg: &agg.Agg{Func: agg.NewHist(0, 0, 0)}},
			[]ir.Element{elementOf("a", 1, 0, 4)},
			result.Profile{Map: "@h", Samples: []result.Sample{{Key: []string{"a"}, Value: 5}}},
		},
		{
			ir.Map{Name: "@n", Key: key, Value: duration},
			[]ir.Element{{Key: []any{nil, "a"}, Value: []any{int64(3)}}, {Key: []any{nil, "b"}, Value: []any{nil}}},
			result.Profile{Map: "@n", Unit: event.Nanoseconds, Samples: []result.Sample{{Key: []string{"a"}, Value: 3}}},
		},
	} {
		got := profileOf(&test.m, test.entries, &machine{sink: &output.Printer{}, clock: func() uint64 { return 0 }})
		same := slices.EqualFunc(got.Samples, test.want.Samples, func(a, b result.Sample) bool {
			return slices.Equal(a.Key, b.Key) && slices.Equal(a.Frames, b.Frames) && a.Value == b.Value
		})
		if !same || got.Map != test.want.Map || got.Unit != test.want.Unit || got.Negative != test.want.Negative {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
	}
}

func TestFunctionOf(t *testing.T) {
	for _, test := range []struct {
		frame symbols.Frame
		want  string
	}{
		{symbols.Frame{Function: "vfs_read", Offset: 12, Address: 1}, "vfs_read"},
		{symbols.Frame{Function: "queue_rq", Offset: 3, Module: "nvme", InModule: true}, "queue_rq [nvme]"},
		{symbols.Frame{Function: "main", Module: "dd", File: "/src/dd.c", Line: 3}, "main"},
		{symbols.Frame{Function: "a::operator+(int, int)", Offset: 7, File: "x y.cc", Line: 3}, "a::operator+(int, int)"},
		{symbols.Frame{Address: 0x7f00, Module: "libc.so.6"}, "[libc.so.6]"},
		{symbols.Frame{Address: 0x7f00}, "[unknown]"},
	} {
		if got := functionOf(test.frame.String()); got != test.want {
			t.Errorf("%s: got %q, want %q", test.frame, got, test.want)
		}
	}
}

// TestUnshown checks that maps that the caller shows are printed if the program prints them, and only then.
func TestUnshown(t *testing.T) {
	program, err := compile("program", `begin { @a = 1; @b = 2; print(@b) }`, nil, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := plan.New(program, plan.Options{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	run, err := Start(plan, Options{Sink: output.NewPrinter(&b, output.Folded, event.NewWallClock(time.Time{})), Unshown: true, Now: func() uint64 { return 0 }, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := run.End(); err != nil || b.String() != "@b: 2\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	views, err := run.Tables()
	if err != nil || len(views) != 2 || output.ValueText(views[0].Rows[0].Value) != "1" {
		t.Errorf("%+v, %v", views, err)
	}
}
