package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// process is another process that is watched, held by a descriptor so that its number cannot come to mean another one. The nil
// process never ends.
type process struct{ fd int }

// openProcess returns the process with number pid, or nil for 0.
func openProcess(pid int) (*process, error) {
	if pid == 0 {
		return nil, nil
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
