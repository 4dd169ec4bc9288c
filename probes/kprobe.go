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

// attach leaves the kernel's limit for calls whose returns are seen at the same time: on 5.10 as many as it has CPUs, later twice as many
// and at least 10 (register_kretprobe, kernel/kprobes.c). The returns of more calls are missed. When six processes on a machine with two
// CPUs were in ib_modify_qp of 5.10, 43 to 177 of 360 were missed, and with room for 64 calls none. But a perf event cannot set that
// number. It would need an event in kprobe_events of tracefs, which stays there with its kprobe when trace is killed: 7 of ib:* did. A
// machine with more CPUs than calls sleeping in one function loses nothing, so that is not worth it.
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

// missed returns how often it was hit and could not run its program; kernels before 6.7 do not report it.
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
func (kprobe) frames() int { return 0 }

func (kprobe) readsFtrace() bool { return false }

func (kprobe) traps() bool { return false }

// vanishes: when a module is unloaded, the kernel removes the kprobes on its functions (kprobes_module_callback, kernel/kprobes.c). They do
// not come back when it is loaded again.
func (kprobe) vanishes() bool { return true }
