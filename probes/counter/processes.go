//go:build linux

package counter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
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
	maps, err := proc.Mappings(pid)
	if err != nil || len(maps) == 0 {
		return s, err
	}
	s.At = now()
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return s, err
	}
	s.Device, s.Name = uint64(pid), stat.Name
	if s.Began, err = stat.Number(proc.StartTime); err != nil {
		return s, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	sizes := sizesOf(maps)
	for kind, size := range sizes {
		s.Counters = append(s.Counters, Counter{MappingKinds[kind], size})
	}
	return s, nil
}

// sizesOf adds up mappings by kind.
func sizesOf(maps []proc.Mapping) (sizes [kinds]uint64) {
	for _, m := range maps {
		if kind, counts := kindOf(m); counts {
			sizes[kind] += m.End - m.Start
		}
	}
	return sizes
}

// kindOf returns the kind of a mapping. [vsyscall] is the same page in all processes, and belongs to none.
func kindOf(m proc.Mapping) (kind int, counts bool) {
	switch {
	case m.Path == "[vsyscall]":
		return 0, false
	case m.Path == "[heap]":
		return heap, true
	case m.Path == "[stack]":
		return stack, true
	case ofFile(m) && m.Shared():
		return sharedFile, true
	case ofFile(m):
		return privateFile, true
	case m.Shared():
		return sharedAnon, true
	}
	return privateAnon, true
}

// ofFile: memory that is shared without a file, large pages without one, and shmget(2) have files that only the kernel sees.
func ofFile(m proc.Mapping) bool {
	return strings.HasPrefix(m.Path, "/") && !(strings.HasSuffix(m.Path, " (deleted)") &&
		(m.Path == "/dev/zero (deleted)" || m.Path == "/anon_hugepage (deleted)" || strings.HasPrefix(m.Path, "/SYSV")))
}
