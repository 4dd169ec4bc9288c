package main

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A batch takes less than a millisecond, so that some batches are not interrupted by anything.
const (
	batches    = 1000
	batchCalls = 4000
)

// A loop makes system calls on a thread of its own, which is bound to one CPU.
type loop struct {
	cpu  int
	tid  int
	made atomic.Int64 // calls so far
	jobs chan func()
}

// newLoop starts the thread of a loop on the last CPU that this process may use.
func newLoop() (*loop, error) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil, fmt.Errorf("read the allowed CPUs: %w", err)
	}
	l := &loop{cpu: lastCPU(&cpus), jobs: make(chan func())}
	bound := make(chan error)
	go l.serve(bound)
	if err := <-bound; err != nil {
		return nil, fmt.Errorf("bind a thread to CPU %d: %w", l.cpu, err)
	}
	return l, nil
}

func lastCPU(cpus *unix.CPUSet) int {
	cpu := len(cpus)*64 - 1
	for !cpus.IsSet(cpu) {
		cpu--
	}
	return cpu
}

// serve runs the jobs. The thread ends with it, because it is never unlocked.
func (l *loop) serve(bound chan<- error) {
	runtime.LockOSThread()
	l.tid = unix.Gettid()
	var only unix.CPUSet
	only.Set(l.cpu)
	bound <- unix.SchedSetaffinity(0, &only)
	for job := range l.jobs {
		job()
	}
}

func (l *loop) close() { close(l.jobs) }

// calls makes n system calls.
func (l *loop) calls(n int) {
	l.do(func() { l.call(n) })
}

// cost returns the ns of a call in the fastest of many batches. Anything else on the machine or on the other hardware thread of the core
// only adds to it, often a quarter for seconds; the least repeats within 1 %.
func (l *loop) cost() float64 {
	least := time.Duration(math.MaxInt64)
	l.do(func() {
		for range batches {
			start := time.Now()
			l.call(batchCalls)
			least = min(least, time.Since(start))
		}
	})
	return float64(least) / batchCalls
}

// during makes system calls as fast as possible while f runs.
func (l *loop) during(f func()) {
	var stop atomic.Bool
	ended := make(chan struct{})
	l.jobs <- func() {
		for !stop.Load() {
			l.call(100)
		}
		close(ended)
	}
	f()
	stop.Store(true)
	<-ended
}

func (l *loop) do(job func()) {
	done := make(chan struct{})
	l.jobs <- func() {
		job()
		close(done)
	}
	<-done
}

func (l *loop) call(n int) {
	for range n {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	l.made.Add(int64(n))
}
