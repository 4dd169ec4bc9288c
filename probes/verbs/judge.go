//go:build linux && !unproven

package verbs

import (
	"io"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// judge and trusts decide about files. Tests of what an attacker could do build a program without the proof (unproven.go).
func judge(r io.ReaderAt) (begins func(offset uint64) bool, buildID string, err error) {
	return proven(r)
}

// likeness reports whether files on overlays with the same number are the same one. Nobody but who sets the clock can choose the time of a change.
func likeness(a, b unix.Stat_t) bool { return a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim }

func trusts(open begun, by party) bool { return roots(open) && !by.alone }

// opens returns why a file that was looked up is not opened, by its mapping and by itself: another one may be mapped there by now.
func opens(m *proc.Mounts, mapping uint64, fd int) error {
	if err := m.Answers(mapping); err != nil {
		return err
	}
	return m.AnswersFile(fd)
}

// sufficient reports whether a function is followed in all processes because of one user.
func sufficient(user uint32) bool { return user == 0 }
