package proc

import (
	"errors"
	"fmt"
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

// ErrServed means that a file was not opened.
var ErrServed = errors.New("its file system is, or may be, a program of a user (FUSE), which may never answer")

var errUnknownMount = errors.New("its file system is not among the mounts of the process")

// How many reads may sleep in the kernel after they were given up, each in a thread or a helper of ours: of processes of one user, and of all.
const (
	mostUnanswered    = 4
	mostUnansweredAll = 64
)

// A Holder is a process that keeps a helper of ours waiting.
type Holder struct {
	Helper int // its process id
	PID    int // 0: it is a file of ours
	User   uint32
}

// String names what cannot be killed, and what can.
func (h Holder) String() string {
	of := ""
	if h.PID != 0 {
		of = fmt.Sprintf("of process %d ", h.PID)
	}
	return fmt.Sprintf("process %d, which read for trace, is left behind: what it reads %sis in a file of FUSE that does not answer (it ends when the program is killed by which user %d serves the file)", h.Helper, of, h.User)
}

// Questions are reads of other processes for which nobody waits forever. The zero value is ready to use.
//
// A process can keep a read waiting: by a page of memory under userfaultfd(2), by a page or an open of a file of FUSE, and, while one of its threads
// waits for one of these with the mmap_lock of the process, even at /proc/PID/maps.
//
// What FUSE keeps waiting not even SIGKILL ends, and a thread that waits keeps its process. So [Ask] is for what ends when it is killed, and everything that
// may ask a file of a user's, as memory does that a file is mapped to, is read by a helper: [Questions.ReadMemory], [Questions.OpenMapped],
// [Questions.OpenBelow], [Questions.Device].
type Questions struct {
	helpers    helpers
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
	q.helpers.dismiss()
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
	w := newWait(<-thread, patience)
	for {
		select {
		case r := <-done:
			return r.answer, r.err
		case <-ended:
			w.patience = 0
		case <-time.After(Patience / 4):
		}
		if !w.over(sleepOf("self", w.thread)) {
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
		q.leftLocked(user)
		return answer, ErrNoAnswer
	}
}

// leftLocked counts a read that was given up.
func (q *Questions) leftLocked(user uint32) {
	if q.unanswered == nil {
		q.unanswered = make(map[uint32]int)
	}
	q.unanswered[user]++
	q.all++
}

// A wait is for a thread that reads.
type wait struct {
	thread       int
	patience     time.Duration
	began, slept time.Time
	last         sleep // began at slept, or later
}

func newWait(thread int, patience time.Duration) *wait {
	now := time.Now()
	return &wait{thread: thread, patience: patience, began: now, slept: now}
}

// over reports whether nobody waits any longer.
func (w *wait) over(now sleep) bool {
	if !now.asleep || now != w.last {
		w.last, w.slept = now, time.Now()
	}
	return time.Since(w.slept) >= w.patience || time.Since(w.began) >= mostBusy
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
