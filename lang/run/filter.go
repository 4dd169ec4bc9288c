//go:build linux

package run

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"trace/lang/check"
)

// unlessKept removes the conditions for which there are sets in the kernel.
func (f Filter) unlessKept(conditions check.Filter) check.Filter {
	if f.Children {
		conditions.PID = 0
	}
	conditions.Cgroup = ""
	return conditions
}

// leavesOutSelf reports whether events of trace itself are left out. Where its process id is not known as events have it, they cannot be; where
// another process was chosen, there are none.
func (o Options) leavesOutSelf() bool {
	return o.WithoutSelf && (o.Filter.PID == 0 || o.Filter.Children) && hostPIDs("") == nil
}

// checkFilter returns an error if no event of this host can pass the filter. The process of -p is open already.
func (l *Live) checkFilter() error {
	f := l.options.Filter
	if f.PGID != 0 {
		if err := hostPIDs(fmt.Sprintf("--pgid %d", f.PGID)); err != nil {
			return err
		}
		if err := unix.Kill(-f.PGID, 0); errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("--pgid %d: there is no such process group; ps -e -o pgid,comm lists them", f.PGID)
		}
	}
	if f.PGID != 0 || f.PIDNS != 0 {
		if err := l.host.TasksDescribed(); err != nil {
			return fmt.Errorf("--pgid and --pidns need the types of the kernel: %w", err)
		}
	}
	if f.Cgroup != "" {
		id, ok := l.catalog.Cgroups().ID(f.Cgroup)
		if !ok {
			return fmt.Errorf("--cgroup %s: there is no such cgroup; cat /proc/PID/cgroup shows the cgroup of a process", f.Cgroup)
		}
		l.below = id
	}
	return nil
}

// only returns the process to which the program is restricted; 0: there may be others.
func (l *Live) only() int {
	if l.options.Filter.Children {
		return 0
	}
	return l.options.Filter.PID
}

// roots returns the processes to which, with their descendants, the program is restricted; nil: it is not.
func (l *Live) roots() []int {
	f := l.options.Filter
	switch {
	case !f.Children:
		return nil
	case f.PID != 0:
		return []int{f.PID}
	}
	return []int{l.child.pid()}
}
