//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"os"
)

const vmlinuxBTF = "/sys/kernel/btf/vmlinux"

// SkipsRecursion reports whether the kernel does not run the program of a raw tracepoint on a CPU where it is under way already, be it
// interrupted or preempted. It does since "bpf: Prevent bpf program recursion for raw tracepoint probes" (6.1), which made the function
// bpf_prog_inc_misses_counter known beyond its file. Trampolines, kprobes and perf events did so before.
func (k *Kernel) SkipsRecursion() bool { return k.skips() }

// readSkipping looks for the name of that function among the strings of the kernel's BTF (struct btf_header, include/uapi/linux/btf.h), which takes a
// millisecond; parsing the types takes 15.
func readSkipping() bool {
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
}
