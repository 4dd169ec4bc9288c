//go:build linux && !unproven

package verbs

import (
	"io"

	"golang.org/x/sys/unix"
)

// judge and trusts decide about files. Tests of what an attacker could do build a program without the proof (unproven.go).
func judge(r io.ReaderAt) (begins func(offset uint64) bool, buildID string, err error) {
	return proven(r)
}

// likeness reports whether files on overlays with the same number are the same one. Nobody but who sets the clock can choose the time of a change.
func likeness(a, b unix.Stat_t) bool { return a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim }

func trusts(open begun, m *mounts, by party) bool { return roots(open, m) && !by.alone }

// opens returns why a file of a device is not opened.
func opens(m *mounts, device uint64) error { return m.answers(device) }

// sufficient reports whether a function is followed in all processes because of one user.
func sufficient(user uint32) bool { return user == 0 }
