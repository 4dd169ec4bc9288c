//go:build linux

// Package filetest limits how many files a process may open, so that a test can make system calls fail that return a descriptor.
package filetest

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// With calls f while this process can open only so many more files, and returns its error.
func With(t *testing.T, more uint64, f func() error) error {
	t.Helper()
	if _, err := ebpf.PossibleCPU(); err != nil { // the library keeps the first answer, also an error
		t.Fatal(err)
	}
	first, second, err := os.Pipe() // with the first file of a process the runtime opens its poller
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(first.Fd())
	first.Close()
	second.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: next + more, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	return f()
}
