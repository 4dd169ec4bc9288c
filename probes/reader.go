//go:build linux

package probes

import (
	"sync"
	"time"

	"trace/probes/counter"
	"trace/probes/kernel"
)

// A reader reads counters again and again, and makes events of what has changed.
type reader struct {
	maker
	series
	source  counter.Source
	cgroups *kernel.Cgroups
	before  map[counter.Key]counter.Set // nil before the first reading
	noted   map[string]bool             // failures
	end     chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	closed bool // no event may be made from now on
}

// lastReading is for how long the end waits for the last reading: a device may not answer.
const lastReading = time.Second

// Close reads what has changed since the last reading, and ends the readings.
func (r *reader) Close() error {
	close(r.end)
	select {
	case <-r.ended:
	case <-time.After(lastReading):
		r.late(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

func (r *reader) readEvery(period time.Duration) {
	defer close(r.ended)
	defer r.source.Close()
	for due := time.Now().Add(period); ; due = due.Add(period) {
		if left := time.Until(due); left < 0 {
			skipped := -left/period + 1
			due = due.Add(skipped * period)
			r.late(int(skipped))
		}
		select {
		case <-time.After(time.Until(due)):
			r.read()
		case <-r.end:
			r.read()
			return
		}
	}
}

// late counts readings that are left out.
func (r *reader) late(n int) {
	for range n {
		r.unlessClosed(func() { r.lost(countLate) })
	}
}

func (r *reader) unlessClosed(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		f()
	}
}

// read reads the counters. What could not be read keeps the values from before, for the next reading.
func (r *reader) read() {
	sets := make(map[counter.Key]counter.Set)
	err := r.source.Read(func(s counter.Set) {
		before, known := r.before[s.Key]
		switch {
		case s.Err != nil:
			r.failed(s.Err)
			s = before
		case known:
			r.changes(s, before)
		case r.whole:
			r.changes(s, s.Without())
		}
		sets[s.Key] = s
	})
	if err != nil {
		r.failed(err)
		return
	}
	for key, gone := range r.before {
		if _, there := sets[key]; !there && r.whole {
			r.changes(gone.Without(), gone)
		}
	}
	r.before = sets
}

// failed counts a reading that failed, and reports why, once.
func (r *reader) failed(err error) {
	if text := r.probe.String() + ": " + err.Error(); !r.noted[text] {
		r.noted[text] = true
		r.note(text)
	}
	r.late(1)
}

// changes makes the events of a set.
func (r *reader) changes(now, before counter.Set) {
	changed := now.Since(before)
	if len(changed) == 0 {
		return
	}
	all := r.event()
	all.number("nsecs", now.At)
	if before.At != 0 {
		all.number("period", now.At-before.At)
	}
	r.owner(all, now, r.cgroups)
	for _, c := range changed {
		f := all.clone()
		r.counter(f, c, r.before == nil)
		r.unlessClosed(func() { r.deliver(f) })
	}
}
