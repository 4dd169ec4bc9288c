//go:build unix

package run

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WaitReadable waits until there is something to read in a file, or ctx ends; it says which.
func WaitReadable(ctx context.Context, f *os.File) bool { return waitFD(ctx, int(f.Fd()), unix.POLLIN) }

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

// waitWritable waits until a file can be written to. Once ctx has ended it waits no longer than unreadDelay, and tells whether it can.
func waitWritable(ctx context.Context, f *os.File) bool {
	const piece = unreadDelay / 10
	for left := unreadDelay; left > 0; {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(piece.Milliseconds()))
		if n > 0 || err != nil && err != unix.EINTR {
			return true // the write tells of an error
		}
		if ctx.Err() != nil {
			left -= piece
		}
	}
	return false
}

// nonBlocking keeps an open from waiting for a reader.
const nonBlocking = unix.O_NONBLOCK

// unreadDelay is how long a reader may read nothing after an interrupt.
const unreadDelay = 500 * time.Millisecond

// waitClosed waits until nobody can read the output any more, or ctx ends; it says which. Without it `trace … | head -1` would
// stay until one more event comes.
func (o *Stream) waitClosed(ctx context.Context) bool {
	if o.file == nil {
		return false
	}
	return waitFD(ctx, int(o.file.Fd()), 0)
}
