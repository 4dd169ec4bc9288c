package proc

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"time"
)

// Patience is how long a read of another process may sleep in the kernel. Natively a page takes less than a microsecond. FilePatience is how long a read
// of a file may, whose file system is no program of a user: some are slow.
const (
	Patience     = 100 * time.Millisecond
	FilePatience = 900 * time.Millisecond
)

// mostBusy is how long a read may go on that works, waits for a CPU, or sleeps for a moment again and again: on a busy machine that takes longer than
// [Patience].
const mostBusy = 2 * time.Second

// ErrNoAnswer means that a read was given up.
var ErrNoAnswer = errors.New("it does not answer")

// ErrNotAsked means that nothing was read, as too many reads were given up and still sleep in the kernel.
var ErrNotAsked = errors.New("too many reads of processes were not answered")

// How many reads may sleep in the kernel after they were given up, each in a thread of ours: of processes of one user, and of all.
const (
	mostUnanswered    = 4
	mostUnansweredAll = 64
)

// Questions are reads of other processes for which nobody waits forever. The zero value is ready to use.
//
// A process can keep a read waiting: by a page of memory under userfaultfd(2), by a page or an open of a file of FUSE, and, while one of its threads
// waits for one of these with the mmap_lock of the process, even at /proc/PID/maps. Such a read ends with our own process at the latest.
type Questions struct {
	mu         sync.Mutex
	unanswered map[uint32]int // by user
	all        int
	ended      chan struct{} // nil before anything was asked
	end        bool
}

// End gives all reads up, now and later.
func (q *Questions) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.end && q.ended != nil {
		close(q.ended)
	}
	q.end = true
}

// Ask calls a function that reads something of a process of a user, and returns what it returns. If it sleeps for longer than [Patience], Ask returns
// [ErrNoAnswer], and the function goes on in a thread that nobody waits for: it must not write to what its caller has. An [io.Closer] that it returns later
// is closed.
func Ask[T any](q *Questions, user uint32, read func() (T, error)) (answer T, err error) {
	return AskFor(q, user, Patience, read)
}

// AskFor is [Ask] with another patience.
func AskFor[T any](q *Questions, user uint32, patience time.Duration, read func() (T, error)) (answer T, err error) {
	ended, ok := q.mayAsk(user)
	if !ok {
		return answer, ErrNotAsked
	}
	type result struct {
		answer T
		err    error
	}
	thread, done, late := make(chan int, 1), make(chan result, 1), false // late is guarded by the lock of q
	go func() {
		runtime.LockOSThread() // it is known by its number
		defer runtime.UnlockOSThread()
		thread <- threadID()
		answer, err := read()
		q.mu.Lock()
		defer q.mu.Unlock()
		if !late {
			done <- result{answer, err}
			return
		}
		q.unanswered[user]--
		q.all--
		if c, ok := any(answer).(io.Closer); ok && err == nil {
			go c.Close() // it may sleep, too
		}
	}()
	id, began := <-thread, time.Now()
	var last sleep
	slept := began // when last began, or later
	for {
		select {
		case r := <-done:
			return r.answer, r.err
		case <-ended:
			patience = 0
		case <-time.After(Patience / 4):
		}
		if now := sleepOf(id); !now.asleep || now != last {
			last, slept = now, time.Now()
		}
		if time.Since(slept) < patience && time.Since(began) < mostBusy {
			continue
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case r := <-done:
			return r.answer, r.err
		default:
		}
		late = true
		if q.unanswered == nil {
			q.unanswered = make(map[uint32]int)
		}
		q.unanswered[user]++
		q.all++
		return answer, ErrNoAnswer
	}
}

// A sleep of a thread is another one if it has given up its CPU since.
type sleep struct {
	asleep   bool
	switches string
}

// mayAsk reports whether a read of a user's process may begin, and what closes when nobody waits for it any longer.
func (q *Questions) mayAsk(user uint32) (ended <-chan struct{}, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended == nil {
		q.ended = make(chan struct{})
	}
	return q.ended, !q.end && q.unanswered[user] < mostUnanswered && q.all < mostUnansweredAll
}
