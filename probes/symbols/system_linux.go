package symbols

import (
	"errors"
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

var errIrregular = errors.New("not a regular file")

// openRegular opens a file below the root of a file system, possibly a process'. It stays within, whatever links point to, and opens only
// regular files: a FIFO would block, and opening a device may have effects. follow means that the path itself may be a link.
func openRegular(root, path string, follow bool) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if !follow {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(dir, strings.TrimPrefix(path, "/"), &how)
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	return reopen(fd, path)
}

// openMapped opens the file of a mapping through the mapping itself.
func openMapped(pid int, start, end uint64) (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return reopen(fd, path)
}

// reopen opens a file that was only looked up so far for reading, and closes fd.
func reopen(fd int, name string) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(opened), name), nil
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
