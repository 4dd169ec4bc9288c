package symbols

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// BootClock returns the kernel's time since boot in ns, like nsecs of an event. In a time namespace the clock of a process differs from it
// (time_namespaces(7)).
func BootClock() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every supported kernel has this clock
	}
	return uint64(now.Nano() - namespaceOffset())
}

// namespaceOffset is how much the clock of this process is ahead of the kernel's.
var namespaceOffset = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0 // a kernel without time namespaces (before 5.6)
	}
	return bootOffset(string(text))
})

// bootOffset reads the line of the clock in timens_offsets: its name, seconds and nanoseconds.
func bootOffset(text string) int64 {
	for line := range strings.Lines(text) {
		var seconds, nanoseconds int64
		if n, _ := fmt.Sscanf(line, "boottime %d %d", &seconds, &nanoseconds); n == 2 {
			return seconds*1e9 + nanoseconds
		}
	}
	return 0
}

// isFile reports whether an open file is the mapped one. The device numbers may differ: on btrfs and overlayfs /proc/PID/maps and stat(2)
// disagree.
func isFile(f *os.File, want file) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Ino == want.inode && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// ownerOf returns the owner of an open file.
func ownerOf(f *os.File) (uid int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return int(st.Uid), nil
}

// markOf returns what identifies the content of an open file.
func markOf(f *os.File) (mark, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return mark{}, err
	}
	return mark{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}
