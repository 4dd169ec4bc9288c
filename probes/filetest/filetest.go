//go:build linux

// Package filetest has what tests need of files: few that a process may open, so that system calls fail that return a descriptor, and file systems that do
// not answer.
package filetest

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
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
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	closeForgotten()
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
	for _, fd := range fill(more) {
		defer unix.Close(fd)
	}
	return f()
}

// closeForgotten collects garbage, and waits for the functions that this calls: they close files that an earlier test has left open.
func closeForgotten() {
	for range 2 { // what the functions of the first round let go of, the second collects
		var called sync.WaitGroup
		called.Add(2)
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { called.Done() })
		runtime.AddCleanup(new([64]byte), func(int) { called.Done() }, 0)
		runtime.GC()
		called.Wait()
	}
}

// fill opens all files that the limit allows, and closes so many of them. The garbage collector may have closed files of an earlier test.
func fill(free uint64) (held []int) {
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	for free > 0 && len(held) > 0 {
		last := len(held) - 1
		unix.Close(held[last])
		held, free = held[:last], free-1
	}
	return held
}
