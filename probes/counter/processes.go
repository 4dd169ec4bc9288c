//go:build linux

package counter

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MappingKinds are the counters of a process: how much it has mapped of each kind. They have the order of enum vm_kind of bpf/vm.bpf.c.
var MappingKinds = []string{"private_anon", "shared_anon", "private_file", "shared_file", "heap", "stack"}

const (
	privateAnon = iota
	sharedAnon
	privateFile
	sharedFile
	heap
	stack
	kinds
)

// processes has what processes have mapped.
type processes struct{ among func(pid int) bool }

// Processes opens what processes have mapped, by kind; among are the processes that count, nil for all.
func Processes(among func(pid int) bool) (Source, error) {
	if among == nil {
		among = func(int) bool { return true }
	}
	return processes{among}, nil
}

func (processes) Close() error { return nil }

// Read reads /proc/PID/maps of each process. What ends meanwhile, and threads of the kernel, have none.
func (p processes) Read(each func(Set)) error {
	folder, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || !p.among(pid) {
			continue
		}
		s, err := mapped(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH):
		case err != nil:
			each(Set{Key: Key{Device: uint64(pid)}, Err: err})
		case s.Counters != nil:
			each(s)
		}
	}
	return nil
}

// mapped reads what a process has mapped.
func mapped(pid int) (s Set, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil || len(maps) == 0 {
		return s, err
	}
	s.At = now()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	s.Device = uint64(pid)
	if s.Name, s.Began, err = nameAndBeginning(stat); err != nil {
		return s, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	sizes, err := sizesOf(maps)
	if err != nil {
		return s, fmt.Errorf("/proc/%d/maps: %w", pid, err)
	}
	for kind, size := range sizes {
		s.Counters = append(s.Counters, Counter{MappingKinds[kind], size})
	}
	return s, nil
}

// nameAndBeginning returns the second and the 22nd field of /proc/PID/stat: proc_pid_stat(5).
func nameAndBeginning(stat []byte) (name string, began uint64, err error) {
	const beginning = 22 - 3 // of those after the name
	before, after, _ := bytes.Cut(stat, []byte("("))
	end := bytes.LastIndexByte(after, ')')
	if len(before) == 0 || end < 0 {
		return "", 0, fmt.Errorf("no name in %q", stat)
	}
	fields := bytes.Fields(after[end+1:])
	if len(fields) <= beginning {
		return "", 0, fmt.Errorf("%d fields after the name", len(fields))
	}
	began, err = strconv.ParseUint(string(fields[beginning]), 10, 64)
	return string(after[:end]), began, err
}

// sizesOf adds up the lines of /proc/PID/maps by kind: proc_pid_maps(5).
func sizesOf(maps []byte) (sizes [kinds]uint64, err error) {
	for line := range bytes.Lines(maps) {
		m, err := mappingOf(string(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil {
			return sizes, err
		}
		if kind, counts := m.kind(); counts {
			sizes[kind] += m.end - m.start
		}
	}
	return sizes, nil
}

// A mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	shared     bool
	path       string
}

func mappingOf(line string) (m mapping, err error) {
	fields := strings.SplitN(line, " ", 6) // range, permissions, offset, device, inode, path
	start, end, ok := strings.Cut(fields[0], "-")
	if len(fields) < 5 || !ok || len(fields[1]) != 4 {
		return m, fmt.Errorf("a line %q", line)
	}
	var errs [2]error
	m.start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.end, errs[1] = strconv.ParseUint(end, 16, 64)
	m.shared = fields[1][3] == 's'
	if len(fields) > 5 {
		m.path = strings.TrimLeft(fields[5], " ")
	}
	return m, errors.Join(errs[:]...)
}

// kind returns the kind of a mapping. [vsyscall] is the same page in all processes, and belongs to none.
func (m mapping) kind() (kind int, counts bool) {
	switch {
	case m.path == "[vsyscall]":
		return 0, false
	case m.path == "[heap]":
		return heap, true
	case m.path == "[stack]":
		return stack, true
	case m.ofFile() && m.shared:
		return sharedFile, true
	case m.ofFile():
		return privateFile, true
	case m.shared:
		return sharedAnon, true
	}
	return privateAnon, true
}

// ofFile: memory that is shared without a file, large pages without one, and shmget(2) have files that only the kernel sees.
func (m mapping) ofFile() bool {
	return strings.HasPrefix(m.path, "/") && !(strings.HasSuffix(m.path, " (deleted)") &&
		(m.path == "/dev/zero (deleted)" || m.path == "/anon_hugepage (deleted)" || strings.HasPrefix(m.path, "/SYSV")))
}
