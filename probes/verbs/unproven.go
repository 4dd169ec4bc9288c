//go:build linux && unproven

package verbs

import (
	"io"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// This is trace as it was before anything was proven, for tests that show what an attacker could do. No release has it.

func judge(io.ReaderAt) (begins func(offset uint64) bool, buildID string, err error) {
	return func(uint64) bool { return true }, "", nil
}

func likeness(a, b unix.Stat_t) bool { return a.Size == b.Size && a.Mtim == b.Mtim }

func trusts(begun, party) bool { return true }

func opens(*proc.Mounts, uint64, int) error { return nil }

func sufficient(uint32) bool { return true }
