//go:build unix

package recording

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// nonBlocking avoids waiting for the reader of a FIFO.
const nonBlocking = unix.O_NONBLOCK

// claim locks a file for as long as it is open.
func claim(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s is being written by another recorder", f.Name())
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL):
		return nil // a file system without locks
	}
	return err
}
