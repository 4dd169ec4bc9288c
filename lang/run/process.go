//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// initialPIDs is the namespace of the process ids in events (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

// process is another process that is watched. A descriptor keeps its number from being reused. The nil process never ends.
type process struct{ fd int }

// hostPIDs returns an error if the process ids of this process's namespace differ from the ones in events. what is the option that
// uses them.
func hostPIDs(what string) error {
	if own, err := os.Readlink("/proc/self/ns/pid"); err == nil && own != initialPIDs {
		return fmt.Errorf("%s: this container has its own process ids, but events have the host's: start it with --pid=host, or filter by comm, cgroup or pidns", what)
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
		return nil, fmt.Errorf("-p %d: this is a thread: use the id of its process", pid)
	case err != nil:
		return nil, fmt.Errorf("-p %d: %w", pid, err)
	}
	return &process{fd}, nil
}

// wait waits until the process has ended, or ctx ends. It returns true if the process has ended.
func (p *process) wait(ctx context.Context) bool {
	return p != nil && waitFD(ctx, p.fd, unix.POLLIN)
}

func (p *process) close() {
	if p != nil {
		unix.Close(p.fd)
	}
}
