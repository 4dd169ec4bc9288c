//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// Burst is how long programs that are traps in the traced program are attached in each Period. The zero value attaches them all the time.
type Burst struct{ On, Period time.Duration }

// IsTrap reports whether each call that a probe sees is a trap in the traced program, see [Burst].
func (h *Host) IsTrap(p *event.Probe) bool {
	whole := h.request(Request{Probe: p, Code: &Code{Before: []Span{{0, p.Size}}}})
	return slices.ContainsFunc(h.hostHookFor(whole, whole.origin.hook).variants(), func(v variant) bool { return v.way.traps() })
}

// A pausable link can be detached for a while.
type pausable interface {
	io.Closer
	Pause() error
	Resume() error
}

// pausables returns the links of the traps.
func (r *request) pausables() (all []pausable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attached {
		for _, l := range a.links {
			if p, ok := l.(pausable); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// A gate opens and closes the windows of a batch: window.h.
type gate struct {
	controls *ebpf.Map
	at       uint32
	// kept is what programs keep for others.
	kept []*ebpf.Map
}

// newGate returns the gate of a loaded object, nil if it has none. Maps that others share, fill or read are not emptied.
func newGate(l *loader, shared map[string]*ebpf.Map) *gate {
	open, controls := l.spec.Variables["window_open"], l.maps[controlSection]
	if open == nil || controls == nil {
		return nil
	}
	g := &gate{controls: controls, at: open.Offset}
	for name, m := range l.maps {
		if shared[name] == nil && name != clocksName && name != callersMap && (m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash) {
			g.kept = append(g.kept, m)
		}
	}
	return g
}

func (g *gate) set(open byte) error {
	if g == nil {
		return nil
	}
	var value []byte
	if err := g.controls.Lookup(uint32(0), &value); err != nil {
		return err
	}
	value[g.at] = open
	return g.controls.Put(uint32(0), value)
}

// empty removes what programs keep, while none is attached.
func (g *gate) empty() error {
	if g == nil {
		return nil
	}
	for _, m := range g.kept {
		var key []byte
		for {
			if err := m.NextKey(nil, &key); errors.Is(err, ebpf.ErrKeyNotExist) {
				break
			} else if err != nil {
				return err
			}
			if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
	}
	return nil
}

// windows attaches the traps of a session a part of the time.
type windows struct {
	Burst
	session *Session
	stop    chan struct{}
	done    chan struct{}

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

// begin opens the first window: everything is attached.
func (s *Session) begin(b Burst) error {
	w := &windows{Burst: b, session: s, stop: make(chan struct{}), done: make(chan struct{})}
	if err := w.set(true); err != nil {
		return err
	}
	s.windows = w
	go w.run(time.Now())
	return nil
}

// run closes and opens windows until stop is closed. It leaves the last one as it is.
func (w *windows) run(opened time.Time) {
	defer close(w.done)
	for w.wait(w.On) {
		w.change(w.close)
		opened = opened.Add(w.Period)
		if late := time.Since(opened); late > 0 { // attaching takes longer than the rest of a period
			opened = opened.Add(late.Truncate(w.Period))
		}
		if !w.wait(time.Until(opened)) {
			return
		}
		w.change(w.reopen)
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

// change does something while nothing is added or removed.
func (w *windows) change(do func() error) {
	w.session.changing.Lock()
	defer w.session.changing.Unlock()
	if err := do(); err != nil {
		w.session.notes.add(nil, fmt.Sprintf("--burst: a window could not be opened or closed: %v", err))
	}
}

// close closes a window: no event passes, then nothing is attached. What was kept is removed.
func (w *windows) close() error {
	errs := []error{w.set(false), w.each(pausable.Pause)}
	for _, b := range w.session.batches {
		errs = append(errs, b.gate.empty())
	}
	return errors.Join(errs...)
}

// each calls a method of all links side by side: each may wait until the kernel has left the programs.
func (w *windows) each(do func(pausable) error) error {
	var all []pausable
	for _, b := range w.session.batches {
		for _, r := range b.requests {
			all = append(all, r.pausables()...)
		}
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reopen attaches everything, then lets events pass.
func (w *windows) reopen() error { return errors.Join(w.each(pausable.Resume), w.set(true)) }

// set lets events pass, or not.
func (w *windows) set(open bool) error {
	var value byte
	if open {
		value = 1
	}
	var errs []error
	for _, b := range w.session.batches {
		errs = append(errs, b.gate.set(value))
	}
	w.note(now(), open)
	return errors.Join(errs...)
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

// Share returns which part of the time from one moment to another, on the clock of nsecs, the windows of [AttachOptions.Burst] were open. The
// time before the first one and after the last one does not count. ok is false if no window was open meanwhile.
func (s *Session) Share(from, to uint64) (share float64, ok bool) {
	w := s.windows
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
