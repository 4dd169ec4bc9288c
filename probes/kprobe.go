//go:build linux

package probes

import (
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"trace/probes/kernel"
)

// A kprobe calls a program at the entry of a function, or at its return.
type kprobe struct{ atReturn bool }

func (p kprobe) String() string {
	if p.atReturn {
		return "kretprobe"
	}
	return "kprobe"
}

func (kprobe) needs(*kernel.Kernel, []string) []string { return kernel.PerfCaps() }

func (kprobe) prepare(*ebpf.ProgramSpec, string) {}

func (p kprobe) attach(prog *ebpf.Program, function string, _ Arg) ([]io.Closer, error) {
	attach := link.Kprobe
	if p.atReturn {
		attach = link.Kretprobe
	}
	lk, err := attach(function, prog, nil)
	return []io.Closer{lk}, err
}

// exclusive: no program runs on a CPU while one of a perf event does (trace_call_bpf, kernel/trace/bpf_trace.c).
func (kprobe) exclusive(*kernel.Kernel) bool { return true }

// preempted: the handlers of kprobes run with preemption off.
func (kprobe) preempted(*kernel.Kernel) bool { return false }

// missed is how often it was hit and could not run its program; kernels before 6.7 do not tell.
func (kprobe) missed(c io.Closer) uint64 {
	l, ok := c.(link.Link)
	if !ok {
		return 0
	}
	info, err := l.Info()
	if err != nil {
		return 0
	}
	if perf := info.PerfEvent(); perf != nil {
		if kprobe := perf.Kprobe(); kprobe != nil {
			return kprobe.Missed
		}
	}
	return 0
}

// frames: the stack is of the function's registers.
func (kprobe) frames() (inProgram, inFunction int) { return 0, 0 }

func (kprobe) records() bool { return false }

// vanishes: a module that is unloaded takes the kprobes on its functions along (kprobes_module_callback, kernel/kprobes.c), and when it
// is loaded again they do not come back.
func (kprobe) vanishes() bool { return true }
