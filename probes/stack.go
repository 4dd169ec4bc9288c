package probes

import (
	"slices"
	"strings"
)

// Stack is what the number of a stack stands for.
type Stack struct {
	// PID is whose stack it is; 0: the kernel's.
	PID uint64 `json:"pid,omitempty"`
	// Addresses of the frames, innermost first, and the frames as they are printed.
	Addresses []uint64 `json:"addresses"`
	Frames    []string `json:"frames"`
}

// Tracing names what stands between a BPF program and what the probe traces, innermost on a kernel stack that is captured there. If
// through is true, the functions are those of tracing, and what is traced comes after the last of them; else they are what is traced,
// and the first of them is where the stack begins. There are none where a stack begins with what is traced, as samples do. A name that
// ends in * stands for all that have a number there.
func (p *Probe) Tracing() (functions []string, through bool) {
	if tp := p.hook.tracepoint; tp != "" {
		return []string{"bpf_trace_run*", "__bpf_trace_" + tp, "__traceiter_" + tp}, true
	}
	for _, f := range slices.Concat(p.hook.functions...) {
		if f = strings.TrimSuffix(f, "?"); !slices.Contains(functions, f) {
			functions = append(functions, f)
		}
	}
	return functions, false
}
