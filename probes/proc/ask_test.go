//go:build linux

package proc

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// closing is what a read returns and somebody must close.
type closing struct{ closed *atomic.Bool }

func (c closing) Close() error {
	c.closed.Store(true)
	return nil
}

// pipe returns a pipe whose reads sleep in the kernel until it is written to.
func pipe(t *testing.T) (read, write int) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[0]); unix.Close(ends[1]) })
	return ends[0], ends[1]
}

func TestAskIsAnswered(t *testing.T) {
	var q Questions
	n, err := Ask(&q, 1000, func() (int, error) { return 7, os.ErrNotExist })
	if n != 7 || err != os.ErrNotExist {
		t.Errorf("Ask returns %d, %v", n, err)
	}
}

// A read that sleeps is given up, and its thread is counted until it ends; what it opened is closed then.
func TestAskGivesUp(t *testing.T) {
	var q Questions
	var closed atomic.Bool
	read, write := pipe(t)
	sleep := func() (closing, error) {
		var b [1]byte
		_, err := unix.Read(read, b[:])
		return closing{&closed}, err
	}
	for i := range mostUnanswered {
		began := time.Now()
		if _, err := Ask(&q, 1000, sleep); !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("read %d: %v, it should be given up", i, err)
		}
		if took := time.Since(began); took < Patience {
			t.Errorf("read %d was given up after %v", i, took)
		}
	}
	if _, err := Ask(&q, 1000, sleep); err == nil || err.Error() != "too many reads of processes were not answered" {
		t.Errorf("a read more of the same user: %v", err)
	}
	if _, err := Ask(&q, 1001, func() (int, error) { return 0, nil }); err != nil {
		t.Errorf("a read of another user: %v", err)
	}
	if closed.Load() {
		t.Error("something is closed that was not read")
	}
	if _, err := unix.Write(write, make([]byte, mostUnanswered)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := Ask(&q, 1000, func() (int, error) { return 0, nil }); err == nil && closed.Load() {
			break
		} else if time.Now().After(end) {
			t.Fatalf("after the answers: %v, closed: %v", err, closed.Load())
		}
	}
}

// A read that works is not given up: it does not sleep.
func TestAskWaitsForWork(t *testing.T) {
	var q Questions
	work := func() (int, error) {
		n := 0
		for end := time.Now().Add(3 * Patience); time.Now().Before(end); n++ {
		}
		return n, nil
	}
	if n, err := Ask(&q, 1000, work); err != nil || n == 0 {
		t.Errorf("Ask returns %d, %v", n, err)
	}
}

// A read that sleeps for a moment again and again is not given up: it goes on. On a machine without time a moment may be long, so it is tried again.
func TestAskWaitsForProgress(t *testing.T) {
	const steps = 24
	try := func() (int, error) {
		var q Questions
		var writing sync.WaitGroup
		read, write := pipe(t)
		defer writing.Wait()
		writing.Go(func() {
			for range steps {
				time.Sleep(Patience / 10)
				unix.Write(write, []byte{1})
			}
		})
		return Ask(&q, 1000, func() (n int, err error) {
			var b [1]byte
			for n < steps && err == nil {
				_, err = unix.Read(read, b[:])
				n++
			}
			return n, err
		})
	}
	for range 10 {
		if n, err := try(); err == nil && n == steps {
			return
		}
	}
	t.Error("it is given up each time")
}

// When the end has come, nobody waits for a read.
func TestAskEnds(t *testing.T) {
	var q Questions
	read, write := pipe(t)
	time.AfterFunc(50*time.Millisecond, q.End)
	_, err := AskFor(&q, 1000, time.Hour, func() (int, error) {
		var b [1]byte
		return unix.Read(read, b[:])
	})
	if !errors.Is(err, ErrNoAnswer) {
		t.Errorf("the read: %v", err)
	}
	if _, err := Ask(&q, 1000, func() (int, error) { return 0, nil }); !errors.Is(err, ErrNotAsked) {
		t.Errorf("after the end: %v", err)
	}
	q.End()
	if _, err := unix.Write(write, []byte{1}); err != nil {
		t.Fatal(err)
	}
}

func TestAskHasABound(t *testing.T) {
	var q Questions
	read, write := pipe(t)
	users := uint32(mostUnansweredAll / mostUnanswered)
	for user := range users {
		for range mostUnanswered {
			go Ask(&q, user, func() (int, error) {
				var b [1]byte
				return unix.Read(read, b[:])
			})
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(Patience) {
		if _, err := Ask(&q, users, func() (int, error) { return 0, nil }); errors.Is(err, ErrNotAsked) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("one more user: %v", err)
		}
	}
	if _, err := unix.Write(write, make([]byte, mostUnansweredAll)); err != nil {
		t.Fatal(err)
	}
}
