//go:build linux

package probes

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"trace/probes/counter"
	"trace/probes/kernel"
)

// A series is what readings read, and how events of it look.
type series struct {
	open func(among func(pid int) bool) (counter.Source, error)
	// caps are the capabilities that reading needs.
	caps []string
	// whole means that what there is at the first reading, what comes and what goes are events, too.
	whole bool
	// owner fills in whose counters they are, and counter what has changed.
	owner   func(f filled, s counter.Set, cgroups *kernel.Cgroups)
	counter func(f filled, c counter.Change, first bool)
}

// allSeries are what readings read, by their names.
var allSeries = map[string]series{
	"net":       {open: ofDevices(counter.Network), owner: device, counter: ofDevice},
	"processes": {open: counter.Processes, caps: []string{kernel.CapPtrace}, whole: true, owner: process, counter: ofProcess},
	"rdma":      {open: ofDevices(counter.RDMA), owner: device, counter: ofDevice},
}

// ofDevices returns what opens counters that no process has.
func ofDevices(open func() (counter.Source, error)) func(func(pid int) bool) (counter.Source, error) {
	return func(func(int) bool) (counter.Source, error) { return open() }
}

func device(f filled, s counter.Set, _ *kernel.Cgroups) {
	f.text("dev", s.Name)
	f.number("source", uint64(s.Kind))
	if s.Port != 0 {
		f.number("port", uint64(s.Port))
	}
}

func ofDevice(f filled, c counter.Change, _ bool) {
	f.text("name", c.Name)
	f.number("value", c.Value)
	if c.Value > c.Before {
		f.number("delta", c.Value-c.Before)
	}
}

func process(f filled, s counter.Set, cgroups *kernel.Cgroups) {
	f.process(int(s.Device), cgroups)
	f.text("comm", s.Name)
}

// ofProcess: a process that was there before the first reading has not grown.
func ofProcess(f filled, c counter.Change, first bool) {
	f.number("kind", uint64(slices.Index(counter.MappingKinds, c.Name)))
	f.number("size", c.Value)
	if !first {
		f.number("delta", c.Value-c.Before)
	}
}

func (readings) symbols() []string { return nil }

func (readings) accepts(a Arg) error {
	if period, given := a.(Every); given && time.Duration(period) < leastPeriod {
		return fmt.Errorf("a period of %v, expected at least %v", time.Duration(period), leastPeriod)
	}
	return nil
}

// variants returns the only variant: a program that Go runs with each event.
func (r readings) variants(s *hostHook) []variant {
	w := polling{readings: r, finder: s.finder}
	v := variant{way: w, programs: []program{{name: w.String() + "_" + s.hook.name, way: w, target: s.hook.name}}, caps: w.needs(s.Kernel, nil)}
	v.check = func() error {
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		source, err := allSeries[r.of].open(nil)
		if err != nil {
			return s.module().Explain(err)
		}
		return source.Close()
	}
	return []variant{v}
}

// A polling is a program that Go runs with what has changed since it read counters before.
type polling struct {
	readings readings
	finder   *finder
}

// String begins the names of its programs: they have no other place in the kernel, and are loaded like programs of raw tracepoints.
func (polling) String() string { return "raw_tp" }

func (w polling) needs(*kernel.Kernel, []string) []string {
	return append(kernel.PerfCaps(), allSeries[w.readings.of].caps...)
}

func (polling) prepare(*ebpf.ProgramSpec, string) {}

// attach reads the counters once, and begins to read them again and again.
func (w polling) attach(prog *ebpf.Program, hook string, a Arg) ([]io.Closer, error) {
	var among func(pid int) bool
	if of, ok := a.(narrowed); ok {
		a, among = of.Arg, of.among.has
	}
	period, given := a.(Every)
	if !given {
		period = Every(w.readings.usual)
	}
	r := &reader{maker: maker{prog, w.finder.events[hook], w.finder.note}, series: allSeries[w.readings.of], cgroups: w.finder.cgroups,
		noted: make(map[string]bool), end: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if r.source, err = r.open(among); err != nil {
		return nil, err
	}
	r.read()
	go r.readEvery(time.Duration(period))
	return []io.Closer{r}, nil
}

// exclusive: Go runs one at a time, and the kernel does not preempt the task meanwhile (bpf_prog_test_run_raw_tp, net/bpf/test_run.c).
func (polling) exclusive(*kernel.Kernel) bool { return true }

func (polling) preempted(*kernel.Kernel) bool { return false }

func (polling) missed(io.Closer) uint64 { return 0 }

func (polling) frames() int { return 0 }

func (polling) readsFtrace() bool { return false }

func (polling) traps() bool { return false }

func (polling) vanishes() bool { return false }
