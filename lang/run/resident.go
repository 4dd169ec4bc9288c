//go:build linux

package run

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// returnMemory gives the kernel back what a start took, as a run may last for weeks. Where the kernel makes huge pages of all memory, it would take
// most of that again within seconds.
func returnMemory() {
	avoidHugePages()
	debug.FreeOSMemory()
}

// avoidHugePages is about this process only: it has no effect on commands that it executes. Where it fails, more memory is resident.
func avoidHugePages() {
	maps, err := proc.Mappings(os.Getpid())
	if err != nil {
		return
	}
	for _, m := range maps {
		if ownMemory(m) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.Start), uintptr(m.End-m.Start), unix.MADV_NOHUGEPAGE)
		}
	}
}

// ownMemory reports whether a mapping is memory that belongs to no file.
func ownMemory(m proc.Mapping) bool { return m.Perms == "rw-p" && m.Path == "" }
