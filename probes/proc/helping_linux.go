package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file is what a helper does.

// helperArgument makes a program a helper.
const helperArgument = "__trace_helper"

// The descriptors of a helper.
const (
	socketFD = 3
	memoryFD = 4
)

// A program that uses this package may be any one, so it becomes a helper before its own main function, and most of its other packages, begin.
func init() {
	if len(os.Args) == 2 && os.Args[1] == helperArgument {
		help()
		os.Exit(0)
	}
}

// help answers requests until nobody has any.
func help() {
	closeOthers()
	_ = os.WriteFile("/proc/thread-self/comm", []byte("trace:helper"), 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	memory, err := unix.Mmap(memoryFD, 0, MostMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	message := make([]byte, longestMessage)
	for err = reply(0, nil, nil); err == nil; {
		n, wrong := unix.Read(socketFD, message)
		if wrong == unix.EINTR {
			continue
		}
		r, broken := decode(message[:max(n, 0)])
		if broken != nil {
			return
		}
		n, f, failed := r.do(memory)
		err = reply(n, f, failed)
	}
}

// closeOthers closes what whoever started trace has left open. The runtime's own files stay.
func closeOthers() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if fd, wrong := strconv.Atoi(e.Name()); err == nil && wrong == nil && fd > memoryFD && !strings.HasPrefix(to, "anon_inode:") {
			unix.Close(fd)
		}
	}
}

// reply answers a request. A file that is passed on is closed here.
func reply(n int, f *os.File, err error) error {
	m := binary.NativeEndian.AppendUint64(nil, uint64(n))
	var errno syscall.Errno
	if errors.As(err, &errno); errors.Is(err, ErrServed) {
		errno = served
	}
	m = binary.NativeEndian.AppendUint64(m, uint64(errno))
	if err != nil {
		text := err.Error()
		m = append(m, text[:min(len(text), longestMessage-answerHead)]...)
	}
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
		defer f.Close()
	}
	return unix.Sendmsg(socketFD, m, rights, nil, 0)
}

// do does what is asked for.
func (r request) do(memory []byte) (n int, f *os.File, err error) {
	switch r.what {
	case readMemory:
		size := int(min(r.end-r.start, MostMemory))
		n, err = unix.ProcessVMReadv(r.pid, []unix.Iovec{{Base: &memory[0], Len: uint64(size)}}, []unix.RemoteIovec{{Base: uintptr(r.start), Len: size}}, 0)
		return max(n, 0), nil, err
	case openMapped:
		device, _ := strconv.ParseUint(r.folder, 10, 64)
		f, err = r.openMapped(device)
	case openBelow, openBelowOnly:
		f, err = r.openBelow()
	case getDevice:
		f, err = r.device()
	default:
		err = unix.ENOSYS
	}
	return 0, f, err
}

func (r request) openMapped(device uint64) (*os.File, error) {
	fd, name, err := LookUpMapped(r.pid, r.start, r.end)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return openAnswering(fd, name, r.pid, device)
}

func (r request) openBelow() (*os.File, error) {
	dir, err := unix.Open(r.folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: r.folder, Err: err}
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if r.what == openBelowOnly {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(dir, strings.TrimPrefix(r.within, "/"), &how)
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: r.within, Err: err}
	}
	defer unix.Close(fd)
	pid := r.pid
	if pid == 0 {
		pid = os.Getpid()
	}
	return openAnswering(fd, r.within, pid, 0)
}

// openAnswering opens a file that was looked up, unless it may never answer. mapping is the device of its mapping, 0 if there is none. This may wait, so a
// helper does it. Who passes the file on knows that nobody will: a file on a block device is asked for its kind, and of others it is known before.
func openAnswering(fd int, name string, pid int, mapping uint64) (*os.File, error) {
	var stat unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat); err != nil {
		return nil, os.NewSyscallError("statx", err)
	}
	plain := stat.Dev_major != 0 && (mapping == 0 || unix.Major(mapping) != 0)
	var why error
	if !plain {
		if why = refuses(fd, pid, mapping); errors.Is(why, ErrServed) {
			return nil, why
		}
	}
	f, err := Reopen(fd, name)
	if err != nil {
		return nil, err
	}
	var kind unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &kind); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if kind.Type == unix.FUSE_SUPER_MAGIC || kind.Type == unix.OVERLAYFS_SUPER_MAGIC {
		if plain {
			why = refuses(fd, pid, mapping)
		}
		if why != nil {
			return nil, errors.Join(ErrServed, f.Close())
		}
	}
	return f, nil
}

// refuses returns [ErrServed] if the mounts of a process tell that a file is a user's program's, and another error if they do not tell.
func refuses(fd, pid int, mapping uint64) error {
	m, err := ReadMounts(pid)
	if err != nil {
		return err
	}
	device, known := m.deviceOf(fd)
	if !known {
		return errUnknownMount
	}
	if err := m.served[mapping].refused(); err != nil {
		return err
	}
	return m.served[device].refused()
}

// device gets a descriptor of a process, if it is the device.
func (r request) device() (*os.File, error) {
	process, err := unix.PidfdOpen(r.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, int(r.start), 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_getfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "device")
	var stat unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Mkdev(stat.Rdev_major, stat.Rdev_minor) != r.end) {
		err = fmt.Errorf("descriptor %d was a device, and is no longer one", r.start)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
