//go:build linux

package kernel

import (
	"slices"

	"github.com/cilium/ebpf/btf"
)

// SkipsRecursion reports whether the kernel does not run the program of a raw tracepoint on a CPU where it is under way already, whether
// interrupted or preempted. That is so since "bpf: Prevent bpf program recursion for raw tracepoint probes" (6.1), which exported the
// function bpf_prog_inc_misses_counter. Trampolines, kprobes and perf events did so before.
func (k *Kernel) SkipsRecursion() bool { return k.skips() }

// ReportsMissed reports whether the kernel's information about a link contains how many returns a kretprobe missed: since 6.7.
func (k *Kernel) ReportsMissed() bool {
	t, err := k.Type(Module{}, &btf.Struct{Name: "bpf_link_info"})
	info, ok := t.(*btf.Struct)
	return err == nil && ok && hasMember(info.Members, "missed")
}

// hasMember looks for a member of a struct, including members of unnamed structs.
func hasMember(members []btf.Member, name string) bool {
	return slices.ContainsFunc(members, func(m btf.Member) bool {
		switch t := m.Type.(type) {
		case *btf.Struct:
			return m.Name == name || t.Name == "" && hasMember(t.Members, name)
		case *btf.Union:
			return m.Name == name || t.Name == "" && hasMember(t.Members, name)
		default:
			return m.Name == name
		}
	})
}

// skipCounter is the name of that function.
const skipCounter = "bpf_prog_inc_misses_counter"
