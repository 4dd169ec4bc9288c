package probes

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// Tracing names the frames between a BPF program and what the probe traces, innermost first on a kernel stack. If through is true, the
// functions belong to tracing, and what is traced follows the last of them. Otherwise they are what is traced, and the stack begins with
// the first of them. There are none where a stack begins with what is traced, as samples do. A name that ends in * stands for all names
// with a number there.
func Tracing(p *event.Probe) (functions []string, through bool) {
	hk, ok := hookOf(p.String())
	if !ok || p.StackOf != nil { // a task that does not run is not in a BPF program
		return nil, false
	}
	return hk.place.stack()
}

// FramesOfTracing is the symbol of an instruction in generated code that sets a register to the number of frames, at the beginning of a
// kernel stack, that belong to the BPF program and to the trampoline that calls it.
//
// It matters where the traced function is not on the stack. A trampoline that the function calls has a frame for it. Kernel 7.2 jumps to
// the trampoline at the function's beginning, and its caller follows. The stack at a kprobe belongs to the function's registers, without
// BPF.
const FramesOfTracing = "frames_of_tracing"

// withFrames sets the number of frames of tracing in code.
func withFrames(body asm.Instructions, n int) asm.Instructions {
	out := slices.Clone(body)
	for i, ins := range out {
		if ins.Reference() == FramesOfTracing {
			out[i].Constant = int64(n)
			out[i] = out[i].WithReference("")
		}
	}
	return out
}
