//go:build linux

package run

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// returnMemory gives the kernel back what a start took, as a run may last for weeks. Where the kernel makes huge pages of all memory, it would take
// most of that again within seconds.
func returnMemory() {
	avoidHugePages()
	debug.FreeOSMemory()
}

// avoidHugePages is about this process only: it has no effect on commands that it executes. Where it fails, more memory is resident.
func avoidHugePages() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if at, size, ok := ownMemory(lines.Text()); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, at, size, unix.MADV_NOHUGEPAGE)
		}
	}
}

// ownMemory returns the place of a mapping, if it is memory that belongs to no file: "c000000000-c000400000 rw-p 00000000 00:00 0".
func ownMemory(mapping string) (at, size uintptr, ok bool) {
	fields := strings.Fields(mapping)
	if len(fields) != 5 || fields[1] != "rw-p" {
		return 0, 0, false
	}
	first, last, _ := strings.Cut(fields[0], "-")
	begin, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	end, err := strconv.ParseUint(last, 16, 64)
	return uintptr(begin), uintptr(end - begin), err == nil
}
