//go:build linux

package probes

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// family is a set of processes.
type family struct{ *set }

// follow makes a family of processes and, with descendants, of all that they have forked. It finds descendants by their parents: if a
// parent has ended, its children cannot be found.
func (h *Host) follow(roots []int, descendants bool) (family, error) {
	s, err := h.newSet(processes, nil)
	if err != nil {
		return family{}, err
	}
	f := family{s}
	if err := f.add(roots, descendants); err != nil {
		return family{}, errors.Join(err, f.close())
	}
	return f, nil
}

// add puts processes into the family, which follows forks already. It writes the map through memory: a system call would write the whole
// value, and so undo what the program adds meanwhile.
func (f family) add(pids []int, descendants bool) (err error) {
	members, err := unix.Mmap(f.members.FD(), 0, PIDs, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map memory of %s: %w", MembersName, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(members)) }()
	for _, pid := range pids {
		if pid <= 0 || pid >= PIDs {
			return fmt.Errorf("%d is not a process id", pid)
		}
		members[pid] = 1
	}
	for more := descendants; more; {
		if more, err = addChildren(members); err != nil {
			return err
		}
	}
	return nil
}

// addChildren adds the children of the members, and reports whether it found new ones. A child that was forked before its parent was added
// has been in /proc since then, so a search that finds none has seen all. The kernel adds children that are forked later.
func addChildren(members []byte) (added bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid >= PIDs || members[pid] == 1 {
			continue
		}
		if parent := parentOf(pid); parent > 0 && parent < PIDs && members[parent] == 1 {
			members[pid], added = 1, true
		}
	}
	return added, nil
}

// parentOf returns the parent of a process, 0 if it has ended.
func parentOf(pid int) int {
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return 0
	}
	parent, _ := stat.Number(proc.Parent)
	return int(parent)
}

// has reports whether a process belongs to the family.
func (f family) has(pid int) bool {
	members, err := unix.Mmap(f.members.FD(), 0, PIDs, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return true
	}
	defer unix.Munmap(members)
	return pid >= PIDs || members[pid] == 1
}
