package probes

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// Tracing names what stands between a BPF program and what the probe traces, innermost on a kernel stack that is captured there. If
// through is true, the functions are those of tracing, and what is traced comes after the last of them; else they are what is traced,
// and the first of them is where the stack begins. There are none where a stack begins with what is traced, as samples do. A name that
// ends in * stands for all that have a number there.
func Tracing(p *event.Probe) (functions []string, through bool) {
	hk, ok := hookOf(p.String())
	if !ok {
		return nil, false
	}
	return hk.place.stack()
}

// FramesOfTracing is what an instruction of generated code refers to that sets a register to the number of frames that a kernel stack
// begins with, of a BPF program and of the trampoline that calls it.
//
// It matters where the traced function is not on the stack. A trampoline that is called by the function has a frame for it; kernel 7.2
// jumps there from its beginning, and what comes next is its caller. The stack at a kprobe is that of the function's registers, without
// BPF.
const FramesOfTracing = "frames_of_tracing"

// withFrames tells code how many frames are those of tracing.
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
