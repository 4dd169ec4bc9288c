//go:build unix

package run

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WaitReadable waits until a file is readable, or ctx ends. It returns true if the file is readable.
func WaitReadable(ctx context.Context, f *os.File) bool { return waitFD(ctx, int(f.Fd()), unix.POLLIN) }

// waitFD waits until one of events, an error or a hang-up occurs on the file descriptor, or ctx ends. It returns false if ctx
// ended.
func waitFD(ctx context.Context, fd int, events int16) bool {
	// A poll does not end with a context, so it waits in pieces.
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

// waitWritable waits until a file is writable, and reports whether it is. Once ctx has ended it waits at most unreadDelay.
func waitWritable(ctx context.Context, f *os.File) bool {
	const piece = unreadDelay / 10
	for left := unreadDelay; left > 0; {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(piece.Milliseconds()))
		if n > 0 || err != nil && err != unix.EINTR {
			return true // the write returns the error
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

// waitClosed waits until the output has no readers, or ctx ends. It returns true if there are no readers. Without it `trace … |
// head -1` would stay until one more event comes.
func (o *Stream) waitClosed(ctx context.Context) bool {
	if o.file == nil {
		return false
	}
	return waitFD(ctx, int(o.file.Fd()), 0)
}
