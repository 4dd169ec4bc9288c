//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"os"
)

const vmlinuxBTF = "/sys/kernel/btf/vmlinux"

// describesName looks for a name among the strings of the kernel's BTF (struct btf_header, include/uapi/linux/btf.h), which takes a
// millisecond; parsing the types takes 15.
func describesName(name string) (bool, error) {
	f, err := os.Open(vmlinuxBTF)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var header [24]byte
	if _, err := f.ReadAt(header[:], 0); err != nil {
		return false, err
	}
	field := func(at int) int64 { return int64(binary.NativeEndian.Uint32(header[at:])) }
	length, from, size := field(4), field(16), field(20)
	names := make([]byte, size)
	if _, err := f.ReadAt(names, length+from); err != nil {
		return false, err
	}
	return bytes.Contains(names, []byte("\x00"+name+"\x00")), nil
}
