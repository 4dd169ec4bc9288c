//go:build linux

package run

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// returnMemory gives the kernel back what a start took, as a run may last for weeks. Where the kernel makes huge pages of all memory, it would take
// most of that again within seconds. Where the kernel does not say what is mapped, more stays resident.
func returnMemory() {
	usages, _ := proc.Usages(os.Getpid())
	for _, u := range usages {
		switch {
		case ownMemory(u.Mapping):
			advise(u.Mapping, unix.MADV_NOHUGEPAGE) // it has no effect on commands that this process executes
		case isCode(u):
			advise(u.Mapping, unix.MADV_DONTNEED)
		}
	}
	debug.FreeOSMemory()
}

// advise gives advice about a mapping. Advice that the kernel does not take costs memory, and nothing else.
func advise(m proc.Mapping, advice int) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.Start), uintptr(m.End-m.Start), uintptr(advice))
}

// ownMemory reports whether a mapping is memory that belongs to no file.
func ownMemory(m proc.Mapping) bool { return m.Perms == "rw-p" && m.Path == "" }

// isCode reports whether a mapping is code from a file, as it is there. A start runs through most of the code, and what runs later is soon
// mapped again. A breakpoint or a uprobe in the code would be lost.
func isCode(u proc.Usage) bool { return u.Perms == "r-xp" && u.Inode != 0 && u.Anonymous == 0 }
