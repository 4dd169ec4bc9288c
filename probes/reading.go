//go:build linux

package probes

import (
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"

	"trace/probes/counter"
	"trace/probes/kernel"
)

// sources are what readings read, by their names.
var sources = map[readings]func() (counter.Source, error){"net": counter.Network, "rdma": counter.RDMA}

func (readings) symbols() []string { return nil }

func (readings) accepts(a Arg) error {
	if period, given := a.(Every); given && time.Duration(period) < leastPeriod {
		return fmt.Errorf("a period of %v, expected at least %v", time.Duration(period), leastPeriod)
	}
	return nil
}

// variants returns the only variant: a program that Go runs with each event.
func (r readings) variants(s *hostHook) []variant {
	w := polling{source: r, finder: s.finder}
	v := variant{way: w, programs: []program{{name: w.String() + "_" + s.hook.name, way: w, target: s.hook.name}}, caps: w.needs(s.Kernel, nil)}
	v.check = func() error {
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		source, err := sources[r]()
		if err != nil {
			return s.module().Explain(err)
		}
		return source.Close()
	}
	return []variant{v}
}

// A polling is a program that Go runs with what has changed since it read counters before.
type polling struct {
	source readings
	finder *finder
}

// String begins the names of its programs: they have no other place in the kernel, and are loaded like programs of raw tracepoints.
func (polling) String() string { return "raw_tp" }

func (polling) needs(*kernel.Kernel, []string) []string { return kernel.PerfCaps() }

func (polling) prepare(*ebpf.ProgramSpec, string) {}

// attach reads the counters once, and begins to read them again and again.
func (w polling) attach(prog *ebpf.Program, hook string, a Arg) ([]io.Closer, error) {
	source, err := sources[w.source]()
	if err != nil {
		return nil, err
	}
	period, given := a.(Every)
	if !given {
		period = Every(usualPeriod)
	}
	r := &reader{maker: maker{prog, w.finder.events[hook], w.finder.note}, source: source, noted: make(map[string]bool), end: make(chan struct{}), ended: make(chan struct{})}
	r.read()
	go r.readEvery(time.Duration(period))
	return []io.Closer{r}, nil
}

// exclusive: Go runs one at a time, and the kernel does not preempt the task meanwhile (bpf_prog_test_run_raw_tp, net/bpf/test_run.c).
func (polling) exclusive(*kernel.Kernel) bool { return true }

func (polling) preempted(*kernel.Kernel) bool { return false }

func (polling) missed(io.Closer) uint64 { return 0 }

func (polling) frames() (inProgram, inFunction int) { return 0, 0 }

func (polling) readsFtrace() bool { return false }

func (polling) traps() bool { return false }

func (polling) vanishes() bool { return false }
