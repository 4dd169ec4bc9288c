//go:build !linux

package symbols

import (
	"errors"
	"os"
	"sync/atomic"
)

// changes exist on Linux only.
type changes struct {
	wake int
	lost atomic.Uint64
}

func watchChanges() (*changes, error) { return nil, errors.ErrUnsupported }

func (*changes) wait() bool        { return false }
func (*changes) stop()             {}
func (*changes) stopping() bool    { return true }
func (*changes) read(func(change)) {}
func (*changes) close() error      { return nil }

// BootClock is unknown here.
func BootClock() uint64 { return 0 }

func isFile(*os.File, file) bool { return false }

func ownerOf(*os.File) (int, error) { return 0, errors.ErrUnsupported }

func markOf(*os.File) (mark, error) { return mark{}, errors.ErrUnsupported }
