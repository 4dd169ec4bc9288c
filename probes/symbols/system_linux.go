package symbols

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// BootClock returns the time since the boot of the machine in nanoseconds, as the kernel has it: what nsecs of an event tells. In a time
// namespace the clock of a process is another one (time_namespaces(7)).
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

// isFile tells whether an open file is the one that was mapped. The numbers of the device may differ, as those of btrfs and of overlays
// do in /proc/PID/maps and in stat(2).
func isFile(f *os.File, want file) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Ino == want.inode && st.Mode&unix.S_IFMT == unix.S_IFREG
}
