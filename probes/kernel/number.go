//go:build linux

package kernel

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Number is a file of the kernel with a number, like a sysctl, that is kept open to be read again and again.
type Number struct{ file *os.File }

// OpenSysctl opens a sysctl, like kernel/ftrace_enabled.
func OpenSysctl(name string) (*Number, error) {
	f, err := os.Open("/proc/sys/" + name)
	return &Number{f}, err
}

// OpenDebugNumber opens a file of debugfs.
func OpenDebugNumber(name string) (*Number, error) {
	f, err := openDebugfs(name)
	return &Number{f}, err
}

// Read returns the number that the file has now.
func (n *Number) Read() (int, error) {
	text := make([]byte, 32)
	got, err := n.file.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text[:got])))
}

// Close closes the file.
func (n *Number) Close() error { return n.file.Close() }

// ReadDebugfs returns the text of a file of debugfs.
func ReadDebugfs(name string) (string, error) {
	f, err := openDebugfs(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return string(text), err
}

// openDebugfs opens a file of debugfs. If that is not mounted, it is mounted where no other process sees it.
func openDebugfs(name string) (*os.File, error) {
	if f, err := os.Open("/sys/kernel/debug/" + name); err == nil {
		return f, nil
	}
	fs, err := unix.Fsopen("debugfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("debugfs: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("debugfs: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("debugfs: %w", err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat(root, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "debugfs: " + name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
