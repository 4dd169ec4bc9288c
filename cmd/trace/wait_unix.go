//go:build unix

package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waitReadable waits until there is something to read in a file, or ctx ends; it says which.
func waitReadable(ctx context.Context, f *os.File) bool { return waitFD(ctx, int(f.Fd()), unix.POLLIN) }

// waitFD waits until one of events happens to the file descriptor, or an error or hang-up, or ctx ends; it says which.
func waitFD(ctx context.Context, fd int, events int16) bool {
	// The wait is cut in pieces because a poll does not end with a context.
	const piece = 100 * time.Millisecond
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(fds, int(piece.Milliseconds()))
		if n > 0 {
			return ctx.Err() == nil
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
	return false
}

// waitClosed waits until nobody can read the output any more, or ctx ends; it says which. Without it `trace … | head -1` would
// stay until one more event comes.
func (o *output) waitClosed(ctx context.Context) bool {
	if o.file == nil {
		return false
	}
	return waitFD(ctx, int(o.file.Fd()), 0)
}
