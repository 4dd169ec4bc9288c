//go:build linux

package kernel

// SkipsRecursion reports whether the kernel does not run the program of a raw tracepoint on a CPU where it is under way already, be it
// interrupted or preempted. It does since "bpf: Prevent bpf program recursion for raw tracepoint probes" (6.1), which made the function
// bpf_prog_inc_misses_counter known beyond its file. Trampolines, kprobes and perf events did so before.
func (k *Kernel) SkipsRecursion() bool { return k.skips() }

// skipCounter is the name of that function.
const skipCounter = "bpf_prog_inc_misses_counter"
