package proc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var errIrregular = errors.New("not a regular file")

// LookUpMapped looks the file of a mapping of a process up, through the mapping itself. It asks the file for nothing.
func LookUpMapped(pid int, start, end uint64) (fd int, name string, err error) {
	name = fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end)
	if fd, err = unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		err = &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, name, err
}

// Reopen opens a regular file for reading that was only looked up so far: a FIFO would wait, and opening a device may have effects.
func Reopen(fd int, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	opened, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(opened), name), nil
}
