//go:build linux

package probes

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// choose returns the processes that the options leave; nil: all.
func (s *Session) choose(o AttachOptions) *chosen {
	var c chosen
	if o.Process != 0 {
		c.conditions = append(c.conditions, func(pid int) bool { return pid == o.Process })
	}
	if o.Roots != nil {
		c.conditions = append(c.conditions, s.family.has)
	}
	if o.Cgroup != "" {
		c.conditions = append(c.conditions, s.below)
	}
	if o.Group != 0 {
		c.conditions = append(c.conditions, func(pid int) bool {
			group, err := unix.Getpgid(pid)
			return err != nil || group == o.Group
		})
	}
	if o.Namespace != 0 {
		c.conditions = append(c.conditions, func(pid int) bool {
			namespace, err := namespaceOf(pid)
			return err != nil || namespace == o.Namespace
		})
	}
	if c.conditions == nil {
		return nil
	}
	return &c
}

// below reports whether a thread of a process is in a cgroup of the session: in a threaded cgroup, others may be outside.
func (s *Session) below(pid int) bool {
	ids, err := s.host.catalog.cgroups.OfThreads(pid)
	if err != nil {
		return true
	}
	for _, id := range ids {
		var member answer
		if err := s.cgroups.members.Lookup(id, &member); err == nil {
			return true
		}
	}
	return false
}

// namespaceOf returns the number of the pid namespace of a process.
func namespaceOf(pid int) (number uint32, err error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err == nil {
		_, err = fmt.Sscanf(name, "pid:[%d]", &number)
	}
	return number, err
}
