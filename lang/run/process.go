//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// initialPIDs is the namespace of the process ids that events have (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

// process is another process that is watched, held by a descriptor so that its number cannot come to mean another one. The nil
// process never ends.
type process struct{ fd int }

// hostPIDs tells why something that takes a process id of this process' own namespace for one of an event cannot work.
func hostPIDs(what string) error {
	if own, err := os.Readlink("/proc/self/ns/pid"); err == nil && own != initialPIDs {
		return fmt.Errorf("%s: this container has process ids of its own, and events have the host's; start it with the host's (--pid=host), or filter by comm, cgroup or pidns", what)
	}
	return nil
}

// openProcess returns the process with number pid, or nil for 0.
func openProcess(pid int) (*process, error) {
	if pid == 0 {
		return nil, nil
	}
	if err := hostPIDs(fmt.Sprintf("-p %d", pid)); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("-p %d: there is no such process", pid)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("-p %d: this is a thread; give the id of its process", pid)
	case err != nil:
		return nil, fmt.Errorf("-p %d: %w", pid, err)
	}
	return &process{fd}, nil
}

// wait waits until the process has ended, or ctx ends; it says which.
func (p *process) wait(ctx context.Context) bool {
	return p != nil && waitFD(ctx, p.fd, unix.POLLIN)
}

func (p *process) close() {
	if p != nil {
		unix.Close(p.fd)
	}
}
