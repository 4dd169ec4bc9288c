//go:build unix

package repl

import (
	"os"

	"golang.org/x/sys/unix"
)

// filters: pastes are filtered.
const filters = true

// waitInput waits until one of two files can be read, and reports whether the second can.
func waitInput(first, second *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(first.Fd()), Events: unix.POLLIN}, {Fd: int32(second.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err == nil && fds[1].Revents != 0
		}
	}
}
