//go:build linux

package probes

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"sync"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// Alone tells whether no two runs of the programs that deliver events of a probe can overlap on one CPU: then what they write for
// that CPU alone needs no atomic operations, which take five times as long.
//
// There has to be one such program in every variant, and a kernel that does not run a program on a CPU where it has begun to run,
// whether it was interrupted or preempted. For tracepoints that is since "bpf: Prevent bpf program recursion for raw tracepoint
// probes" (6.1), which made the function bpf_prog_inc_misses_counter known beyond its file; trampolines, kprobes and perf events did
// so before.
func (h *Host) Alone(p *event.Probe) bool {
	return guarded() && !slices.ContainsFunc(h.variants(p.Group, h.catalog.source(p).hook), func(v variant) bool {
		return h.catalog.delivering(p, v) != 1
	})
}

// delivering counts the programs of a variant that call the action of a probe.
func (c *Catalog) delivering(p *event.Probe, v variant) int {
	spec, err := c.objects[p.Group]()
	if err != nil {
		return 0
	}
	n := 0
	for _, prog := range v.programs {
		if s := spec.Programs[prog.name]; s != nil && rewrite.Calls(s.Instructions, actionName(p)) {
			n++
		}
	}
	return n
}

const vmlinuxBTF = "/sys/kernel/btf/vmlinux"

// guarded looks for the name among the strings of the kernel's BTF (struct btf_header, include/uapi/linux/btf.h), which takes a
// millisecond; parsing the types takes 15.
var guarded = sync.OnceValue(func() bool {
	f, err := os.Open(vmlinuxBTF)
	if err != nil {
		return false
	}
	defer f.Close()
	var header [24]byte
	if _, err := f.ReadAt(header[:], 0); err != nil {
		return false
	}
	field := func(at int) int64 { return int64(binary.NativeEndian.Uint32(header[at:])) }
	length, from, size := field(4), field(16), field(20)
	names := make([]byte, size)
	if _, err := f.ReadAt(names, length+from); err != nil {
		return false
	}
	return bytes.Contains(names, []byte("\x00bpf_prog_inc_misses_counter\x00"))
})
