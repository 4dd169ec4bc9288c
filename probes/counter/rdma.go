//go:build linux

package counter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rdma has the counters of RDMA devices: the files in this folder.
type rdma string

// RDMA opens the counters of RDMA devices.
func RDMA() (Source, error) {
	const class = "/sys/class/infiniband"
	_, err := os.Stat(class) // ib_core makes it
	return rdma(class), err
}

func (rdma) Close() error { return nil }

// Folders of counters, enum rdma_source of bpf/rdma_counters.h.
var rdmaKinds = []string{"hw_counters", "counters"}

// Read reads the counters of each device, and of each of its ports.
func (r rdma) Read(each func(Set)) error {
	devices, err := names(string(r))
	if err != nil {
		return unlessGone(err)
	}
	for _, device := range devices {
		folder := filepath.Join(string(r), device)
		var stat unix.Stat_t
		if err := unix.Stat(folder, &stat); err != nil {
			continue // it has gone
		}
		set := Set{Key: Key{Device: stat.Ino}, Name: device}
		set.readIn(folder, each)
		ports, err := names(filepath.Join(folder, "ports"))
		if err := unlessGone(err); err != nil {
			return err
		}
		for _, port := range ports {
			n, _ := strconv.ParseUint(port, 10, 32)
			set.Port = uint32(n)
			set.readIn(filepath.Join(folder, "ports", port), each)
		}
	}
	return nil
}

// readIn reads the folders of counters that a device or a port has.
func (s Set) readIn(folder string, each func(Set)) {
	for kind, name := range rdmaKinds {
		s.Kind = uint32(kind)
		if s.Counters, s.Err = readFolder(filepath.Join(folder, name)); s.Counters != nil || s.Err != nil {
			s.At = now()
			each(s)
		}
	}
}

// names returns what is in a folder.
func names(folder string) (all []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, err
}

// readFolder reads the counters in a folder, nil if it is not there, or its device has gone.
func readFolder(folder string) (counters []Counter, err error) {
	all, err := names(folder)
	if err != nil {
		return nil, unlessGone(err)
	}
	for _, name := range all {
		text, err := readFile(filepath.Join(folder, name))
		if err != nil {
			return nil, unlessGone(err)
		}
		value, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err == nil && name != "lifespan" { // for how long the kernel keeps what it has read, in ms
			counters = append(counters, Counter{name, value})
		}
	}
	return counters, nil
}

// unlessGone returns the error unless it means that there are no such counters, or their device has gone.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// readFile reads a file of sysfs, "" if the device does not have what it shows.
func readFile(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var text [64]byte
	n, err := unix.Read(fd, text[:])
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return "", nil
	case err != nil:
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return string(text[:n]), nil
}
