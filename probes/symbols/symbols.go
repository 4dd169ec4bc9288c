// Package symbols finds names for addresses of code: in the kernel by /proc/kallsyms, in processes by their mappings and the symbols of the
// mapped files. An address without a certain name stays an address.
package symbols

import (
	"fmt"
	"path"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Frame is an address of code, and what is known about it.
type Frame struct {
	Address uint64
	// Function is its name, demangled, or "" if it is unknown; Offset is the distance of the address from its beginning.
	Function string
	Offset   uint64
	// Module is the kernel module, or the base name of the file that the process maps there; "" if there is none.
	Module string
	// InModule means that Module belongs to the name: the kernel's functions are in many modules.
	InModule bool
	// File and Line are the place in the source code, if the file has line numbers.
	File string
	Line int
}

// String has bpftrace's format: vfs_read+12, with the kernel module after it, nvme_queue_rq+345 [nvme], or the place in the source code,
// main+23 main.c:17. An address without a name is printed with the name of its mapping: 0x7f1b2c3d4e5f [libc.so.6].
func (f Frame) String() string {
	if f.Function == "" {
		if f.Module == "" {
			return fmt.Sprintf("%#x", f.Address)
		}
		return fmt.Sprintf("%#x [%s]", f.Address, f.Module)
	}
	text := fmt.Sprintf("%s+%d", f.Function, f.Offset)
	if f.InModule && f.Module != "" {
		text += " [" + f.Module + "]"
	}
	if f.File != "" {
		text += fmt.Sprintf(" %s:%d", path.Base(f.File), f.Line)
	}
	return text
}

// readable demangles the name of a function of C++ or Rust.
func readable(name string) string {
	name, _, _ = strings.Cut(name, "@@")
	return demangle.Filter(name, demangle.MaxLength(longestName))
}

// longestName bounds the length of demangled names: references to parts of a name may double it again and again. It is a power of 2.
const longestName = 13
