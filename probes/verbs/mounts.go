//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts are the file systems of a process.
type mounts struct {
	// first means that its mount namespace belongs to the first user namespace.
	first bool
	// users are the users by whose programs file systems are served, by device: FUSE.
	served map[uint64]uint32
	known  map[uint64]bool
	// points are where file systems of users are mounted, and layers the folders of overlays, by device.
	points []string
	layers map[uint64][]string
}

// nobody stands for a user who is unknown.
const nobody = ^uint32(0)

// mostMounts bounds a list of mounts, in bytes: fs.mount-max of Linux is 100,000.
const mostMounts = 32 << 20

func (t *target) mountsOf() (*mounts, error) {
	if t.mounts != nil {
		return t.mounts, nil
	}
	m, err := ask(t, 16*lookCost, func() (*mounts, error) {
		m := newMounts(firstMounts(t.pid))
		for _, pid := range []string{"1", strconv.Itoa(t.pid)} { // what process 1 has is the host's
			f, err := os.Open("/proc/" + pid + "/mountinfo")
			if err != nil {
				continue
			}
			err = m.read(io.LimitReader(f, mostMounts), pid == "1" || m.first)
			f.Close()
			if err != nil {
				return nil, err
			}
		}
		m.look()
		return m, nil
	})
	t.mounts = m
	return m, err
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
func (m *mounts) read(r io.Reader, first bool) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		mount, super, ok := strings.Cut(line, " - ")
		var id, parent, major, minor uint32
		if _, err := fmt.Sscanf(mount, "%d %d %d:%d", &id, &parent, &major, &minor); err != nil || !ok {
			continue
		}
		device := unix.Mkdev(major, minor)
		fields := strings.Fields(super)
		if m.known[device] || len(fields) < 3 {
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
					user = uint32(n)
				}
			}
		}
		m.served[device] = user
		if place := strings.Fields(mount); user != 0 && len(place) > 4 {
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
func (m *mounts) look() {
	for device, folders := range m.layers {
		for _, folder := range folders {
			if slices.ContainsFunc(m.points, func(at string) bool { return folder == at || strings.HasPrefix(folder, at+"/") }) {
				m.served[device] = nobody
			}
		}
	}
}

func newMounts(first bool) *mounts {
	return &mounts{first: first, served: make(map[uint64]uint32), known: make(map[uint64]bool), layers: make(map[uint64][]string)}
}

// answers returns why a file of a device must not be opened, nil if it may: its file system is a program of a user. Once such a program has taken a
// request and does not answer it, not even SIGKILL ends the wait (request_wait_answer, fs/fuse/dev.c).
func (m *mounts) answers(device uint64) error {
	user, served := m.served[device]
	switch {
	case served && user != 0:
		return errors.New("its file system is, or may be, a program of a user (FUSE), which may never answer")
	case !m.known[device] && unix.Major(device) == 0:
		return errors.New("its file system is not among the mounts of the process")
	}
	return nil
}
