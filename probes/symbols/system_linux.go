package symbols

import (
	"os"

	"golang.org/x/sys/unix"
)

func bootTime() uint64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return uint64(now.Nano())
}

// isFile tells whether an open file is the one that was mapped. The numbers of the device may differ, as those of btrfs and of overlays
// do in /proc/PID/maps and in stat(2).
func isFile(f *os.File, want file) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Ino == want.inode && st.Mode&unix.S_IFMT == unix.S_IFREG
}
