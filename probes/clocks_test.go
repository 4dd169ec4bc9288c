//go:build linux

package probes

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// countsTicks loads a program that counts its runs by CPU.
func countsTicks(t *testing.T) (*ebpf.Program, func() []uint64) {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { counts.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.PerfEvent, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4), asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
	}})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog, func() (ticks []uint64) {
		if err := counts.Lookup(uint32(0), &ticks); err != nil {
			t.Fatal(err)
		}
		return ticks
	}
}

// A CPU whose clock has gone is sampled again when it comes online, once, and at the same rate. The others go on.
func TestClocksComeBack(t *testing.T) {
	prog, ticks := countsTicks(t)
	links, err := sample{}.attach(prog, clockName, Rate(100))
	if err != nil {
		t.Skip(err)
	}
	c := links[0].(*clocks)
	defer c.Close()
	grow := func(d time.Duration) (by []uint64) {
		before := ticks()
		time.Sleep(d)
		for cpu, n := range ticks() {
			by = append(by, n-before[cpu])
		}
		return by
	}
	c.of[0].close() // as the kernel does when the CPU goes offline
	if by := grow(200 * time.Millisecond); by[0] > 0 {
		t.Fatalf("%d ticks of a clock that has gone", by[0])
	}
	delete(c.of, 0)
	n := &notes{}
	r := &request{Request: Request{Probe: event.NewProbe("profile", "hz", "", nil)}, attached: []*attached{{place: program{way: sample{}}, links: links}}}
	for range 2 { // the second message replaces a clock that ticks
		sampleAgain([]*batch{{requests: []*request{r}}}, 0, time.Now(), n)
	}
	by := grow(time.Second)
	if by[0] < 80 || by[0] > 120 {
		t.Errorf("%d ticks of CPU 0 in a second, want about 100", by[0])
	}
	for cpu, n := range by {
		if c.of[cpu] != nil && n == 0 {
			t.Errorf("CPU %d does not tick", cpu)
		}
	}
	if got := n.take(); len(got) != 2 || !strings.HasPrefix(got[0], "profile:hz: CPU 0 came online: not sampled from ") || r.gaps != 2 {
		t.Errorf("notes %q, %d gaps", got, r.gaps)
	}
	if c.look() {
		t.Error("samples are missing: " + c.whyThrottled())
	}
	for hz, stops := range map[int]bool{100: false, 1 << 30: true} {
		for _, ticks := range c.of {
			ticks.stopped = -1 << 40
		}
		if c.hz, c.limit = hz, 0; c.look() != stops {
			t.Errorf("at %d ticks a second the kernel stops clocks: %t", hz, !stops)
		}
		c.throttled = false
	}
	if err := errors.Join(c.Close(), c.online(0)); err != nil || len(c.of) > 0 {
		t.Errorf("after the end: %v, %d clocks", err, len(c.of))
	}
}

// A CPU that cannot be sampled again is noted.
func TestClocksRefused(t *testing.T) {
	prog, _ := countsTicks(t)
	c := &clocks{prog: prog, hz: 1 << 30, of: make(map[int]*ticking)}
	r := &request{Request: Request{Probe: event.NewProbe("profile", "hz", "", nil)}, attached: []*attached{{links: []io.Closer{c}}}}
	var n notes
	sampleAgain([]*batch{{requests: []*request{r}}}, 0, time.Now(), &n)
	sampleAgain([]*batch{{requests: []*request{r}}}, 1<<20, time.Now(), &n)
	got := n.take()
	if len(got) != 2 || !strings.HasPrefix(got[0], "profile:hz: CPU 0 came online at ") || !strings.Contains(got[0], ", but is not sampled: ") {
		t.Errorf("notes %q", got)
	}
}
