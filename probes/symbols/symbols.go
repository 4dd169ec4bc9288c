// Package symbols finds names for addresses of code: in the kernel by /proc/kallsyms, in processes by their mappings and the symbols of the
// mapped files. An address without a certain name stays an address.
package symbols

import (
	"cmp"
	"fmt"
	"path"
	"slices"
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

// symbol is a function.
type symbol struct {
	start, size uint64 // size 0: up to the next one
	name        string
	rank        int // the highest wins among names for one address
}

// table is a sorted list of functions.
type table []symbol

// newTable sorts symbols by address, and keeps one for each address.
func newTable(all []symbol) table {
	slices.SortStableFunc(all, func(a, b symbol) int { return cmp.Or(cmp.Compare(a.start, b.start), -cmp.Compare(a.rank, b.rank)) })
	return slices.Clip(slices.CompactFunc(all, func(a, b symbol) bool { return a.start == b.start }))
}

// find returns the function of an address.
func (t table) find(address uint64) (symbol, bool) {
	i, exact := slices.BinarySearchFunc(t, address, func(s symbol, a uint64) int { return cmp.Compare(s.start, a) })
	if !exact {
		i--
	}
	if i < 0 {
		return symbol{}, false
	}
	s := t[i]
	if s.size != 0 && address-s.start >= s.size {
		// A function may be inside another one, as in assembly code.
		for j := i - 1; j >= 0 && j > i-8; j-- {
			if o := t[j]; o.size != 0 && address-o.start < o.size {
				return o, true
			}
		}
		return symbol{}, false
	}
	return s, true
}

// readable demangles the name of a function of C++ or Rust.
func readable(name string) string {
	name, _, _ = strings.Cut(name, "@@")
	return demangle.Filter(name, demangle.MaxLength(longestName))
}

// longestName bounds the length of demangled names: references to parts of a name may double it again and again. It is a power of 2.
const longestName = 13
