//go:build linux

package probes

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Burst is how long programs that are traps in the traced program are attached in each Period. The zero value attaches them all the time.
type Burst struct{ On, Period time.Duration }

// traps are programs that are attached a part of the time.
type traps interface {
	// let lets their events pass, or not.
	let(open bool) error
	// pause detaches them, and removes what they keep for each other.
	pause() error
	// resume attaches them again.
	resume() error
	// change does something while nothing is added or removed.
	change(do func() error)
}

// windows attaches traps a part of the time.
type windows struct {
	Burst
	traps traps
	stop  chan struct{}
	done  chan struct{}

	mu sync.Mutex
	// edges are when windows opened and closed, in turn, with the time that they were open until then.
	edges []edge
	open  bool
	ended bool
}

// An edge is the beginning or the end of a window, on the clock of nsecs.
type edge struct{ at, open uint64 }

// mostEdges bounds what is kept. Beyond that, the older half keeps every other window.
const mostEdges = 1 << 16

// openWindows opens the first window: everything is attached.
func openWindows(b Burst, t traps) (*windows, error) {
	w := &windows{Burst: b, traps: t, stop: make(chan struct{}), done: make(chan struct{})}
	if err := w.set(true); err != nil {
		return nil, err
	}
	go w.run(time.Now())
	return w, nil
}

// run closes and opens windows until stop is closed. It leaves the last one as it is.
func (w *windows) run(opened time.Time) {
	defer close(w.done)
	for w.wait(w.On) {
		w.traps.change(w.close)
		opened = opened.Add(w.Period)
		if late := time.Since(opened); late > 0 { // attaching takes longer than the rest of a period
			opened = opened.Add(late.Truncate(w.Period))
		}
		if !w.wait(time.Until(opened)) {
			return
		}
		w.traps.change(w.reopen)
	}
}

// wait returns false if the end comes first.
func (w *windows) wait(d time.Duration) bool {
	select {
	case <-w.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// close closes a window: no event passes, then nothing is attached. What was kept is removed.
func (w *windows) close() error { return errors.Join(w.set(false), w.traps.pause()) }

// reopen attaches everything, then lets events pass.
func (w *windows) reopen() error { return errors.Join(w.traps.resume(), w.set(true)) }

// set lets events pass, or not.
func (w *windows) set(open bool) error {
	err := w.traps.let(open)
	w.note(now(), open)
	return err
}

// note notes that a window opened or closed.
func (w *windows) note(at uint64, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := edge{at: at}
	if n := len(w.edges); n > 0 {
		e.open = w.edges[n-1].open
		if w.open {
			e.open += at - w.edges[n-1].at
		}
	}
	w.edges, w.open = append(w.edges, e), open
	if len(w.edges) < mostEdges {
		return
	}
	kept := w.edges[:0]
	for i, e := range w.edges {
		if i >= mostEdges/2 || i%4 < 2 {
			kept = append(kept, e)
		}
	}
	w.edges = kept
}

// openUntil returns for how long windows were open until a moment. The caller holds mu.
func (w *windows) openUntil(at uint64) uint64 {
	i, _ := slices.BinarySearchFunc(w.edges, at, func(e edge, at uint64) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	switch last := len(w.edges) - 1; {
	case i == 0:
		return 0
	case i <= last: // between two edges it grows evenly: with the time, or not at all
		a, b := w.edges[i-1], w.edges[i]
		return a.open + uint64(float64(at-a.at)*float64(b.open-a.open)/float64(b.at-a.at))
	case w.open:
		return w.edges[last].open + at - w.edges[last].at
	}
	return w.edges[len(w.edges)-1].open
}

// end waits until nothing changes.
func (w *windows) end() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
	if w.open {
		w.set(false)
	}
	w.note(now(), false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// now returns the time on the clock of nsecs.
func now() uint64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it cannot fail
	return uint64(t.Nano())
}

// share returns which part of the time from one moment to another the windows were open. The time before the first one and after the last one
// does not count. ok is false if no window was open meanwhile.
func (w *windows) share(from, to uint64) (share float64, ok bool) {
	if w == nil {
		return 1, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from = max(from, w.edges[0].at)
	if w.ended {
		to = min(to, w.edges[len(w.edges)-1].at)
	}
	open := w.openUntil(to) - w.openUntil(from)
	if to <= from || open == 0 {
		return 0, false
	}
	return float64(open) / float64(to-from), true
}
