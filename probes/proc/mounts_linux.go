package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounts are the file systems of a process. They show which of them a program of a user serves (FUSE): once such a program has taken a request and does not
// answer it, not even SIGKILL ends the wait (request_wait_answer, fs/fuse/dev.c).
//
// A process can mount and map another file at any moment. While a file is looked up (O_PATH) its mount and its device keep their numbers, so only a list
// that is read after that is about the file, and nothing may be asked of the file before.
type Mounts struct {
	// First means that the mount namespace of the process belongs to the first user namespace.
	First bool
	// served are the users by whose programs file systems are served, by device: FUSE. ids are the devices of mounts.
	served map[uint64]server
	known  map[uint64]bool
	ids    map[uint64]uint64
	// points are where file systems of users are mounted, and layers the folders of overlays, by device.
	points []string
	layers map[uint64][]string
}

// A server is the user whose program serves a file system. The kernel is user 0, as far as that is concerned.
type server uint32

// nobody stands for a user who is unknown.
const nobody = ^server(0)

// refused returns why no file of the server's is opened, nil if one may be.
func (s server) refused() error {
	if s != 0 {
		return ErrServed
	}
	return nil
}

// mostMounts bounds a list of mounts, in bytes: fs.mount-max of Linux is 100,000.
const mostMounts = 32 << 20

// ReadMounts reads the mounts of a process.
func ReadMounts(pid int) (*Mounts, error) {
	m := newMounts(firstMounts(pid))
	for _, of := range []string{"1", strconv.Itoa(pid)} { // what process 1 has is the host's
		f, err := os.Open("/proc/" + of + "/mountinfo")
		if err != nil {
			continue
		}
		err = m.read(io.LimitReader(f, mostMounts), of == "1" || m.First)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	m.look()
	return m, nil
}

// firstMounts reports whether the mount namespace of a process belongs to the first user namespace: ioctl_nsfs(2).
func firstMounts(pid int) bool {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return false
	}
	defer namespace.Close()
	owner, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return false
	}
	defer unix.Close(owner)
	var stat unix.Stat_t
	return unix.Fstat(owner, &stat) == nil && stat.Ino == firstUserNamespace
}

// read reads a file like /proc/PID/mountinfo: proc_pid_mountinfo(5). The user of a FUSE file system is a number of its user namespace, so it is believed
// only in the first one.
func (m *Mounts) read(r io.Reader, first bool) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		mount, super, ok := strings.Cut(line, " - ")
		place, fields := strings.Fields(mount), strings.Fields(super)
		if !ok || len(place) < 5 || len(fields) < 3 {
			continue
		}
		id, err := strconv.ParseUint(place[0], 10, 64)
		major, minor, _ := strings.Cut(place[2], ":")
		high, wrong := strconv.ParseUint(major, 10, 32)
		low, broken := strconv.ParseUint(minor, 10, 32)
		if err != nil || wrong != nil || broken != nil {
			continue
		}
		device := unix.Mkdev(uint32(high), uint32(low))
		m.ids[id] = device
		if m.known[device] {
			continue
		}
		m.known[device] = true
		kind, _, _ := strings.Cut(fields[0], ".")
		options := fields[len(fields)-1]
		if kind == "overlay" {
			m.layers[device] = layersOf(options)
			if !first { // it may be over FUSE, and hide that
				m.served[device] = nobody
			}
		}
		if kind != "fuse" && kind != "fuseblk" {
			continue
		}
		user := nobody
		for option := range strings.SplitSeq(options, ",") {
			if id, found := strings.CutPrefix(option, "user_id="); found && first {
				if n, err := strconv.ParseUint(id, 10, 32); err == nil {
					user = server(n)
				}
			}
		}
		m.served[device] = user
		if user != 0 {
			m.points = append(m.points, place[4])
		}
	}
	return nil
}

// layersOf returns the folders of an overlay: Documentation/filesystems/overlayfs.rst.
func layersOf(options string) (folders []string) {
	for option := range strings.SplitSeq(options, ",") {
		if name, value, _ := strings.Cut(option, "="); strings.HasPrefix(name, "lowerdir") || name == "upperdir" || name == "datadir+" {
			folders = append(folders, strings.Split(value, ":")...)
		}
	}
	return folders
}

// look looks for overlays over file systems of users.
func (m *Mounts) look() {
	for device, folders := range m.layers {
		for _, folder := range folders {
			if slices.ContainsFunc(m.points, func(at string) bool { return folder == at || strings.HasPrefix(folder, at+"/") }) {
				m.served[device] = nobody
			}
		}
	}
}

func newMounts(first bool) *Mounts {
	return &Mounts{First: first, served: make(map[uint64]server), known: make(map[uint64]bool), ids: make(map[uint64]uint64), layers: make(map[uint64][]string)}
}

// Answers returns why a file of a device must not be opened, nil if it may: its file system is a program of a user, or an unknown one.
func (m *Mounts) Answers(device uint64) error {
	if !m.known[device] && unix.Major(device) == 0 {
		return errUnknownMount
	}
	return m.served[device].refused()
}

// AnswersFile is [Mounts.Answers] for a file that was looked up. It does not ask the file's file system.
func (m *Mounts) AnswersFile(fd int) error {
	device, known := m.deviceOf(fd)
	if !known {
		var stat unix.Statx_t
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat); err != nil {
			return os.NewSyscallError("statx", err)
		}
		device = unix.Mkdev(stat.Dev_major, stat.Dev_minor)
	}
	return m.Answers(device)
}

// deviceOf returns the device of the mount of a file that was looked up, if the mount is known. A file may tell another device of itself: on btrfs, and on
// overlays.
func (m *Mounts) deviceOf(fd int) (device uint64, known bool) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/thread-self/fdinfo/%d", fd))
	_, rest, _ := bytes.Cut(info, []byte("mnt_id:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	id, wrong := strconv.ParseUint(string(line), 10, 64)
	if err != nil || wrong != nil {
		return 0, false
	}
	device, known = m.ids[id]
	return device, known
}
