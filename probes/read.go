//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"trace/probes/event"
)

// Read calls fn for every event, in the order of the ring buffer. When ctx ends it detaches the probes, reads what they left in the
// buffer, and returns nil. An error of fn ends it at once and is returned.
func (s *Session) Read(ctx context.Context, fn func(*event.Event) error) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		err := s.Detach()
		stopped <- errors.Join(err, s.ring.Flush())
	})
	defer stop()

	var sample ringbuf.Record
	var event event.Event
	for _, record := range s.early {
		if err := s.deliver(record, &event, fn); err != nil {
			return err
		}
	}
	for {
		err := s.ring.ReadInto(&sample)
		if errors.Is(err, ringbuf.ErrFlushed) {
			return <-stopped
		}
		if err != nil {
			return fmt.Errorf("ring buffer: %w", err)
		}
		if err := s.deliver(sample.RawSample, &event, fn); err != nil {
			return err
		}
	}
}

// deliver calls fn for a record.
func (s *Session) deliver(record []byte, e *event.Event, fn func(*event.Event) error) error {
	if err := event.Decode(s.layouts, record, e); err != nil {
		return err
	}
	s.delivered[e.Layout().ID].Add(1)
	return fn(e)
}

// Losses is what is missing from the events of a probe.
type Losses struct {
	Probe *event.Probe
	// Counted tells whether the programs counted the Events that they saw in the kernel and could build, lost ones included: Passed,
	// which some clause of the program wanted, and Rejected. See Request.
	Counted                  bool
	Events, Passed, Rejected uint64
	// Delivered counts records that were read; an event may send one for each clause.
	Delivered uint64
	// RingBuffer counts records that were lost because the ring buffer was full.
	RingBuffer uint64
	// Unseen counts events that could not be built, because their beginning was not seen, before the filter could be asked.
	Unseen uint64
	// Missed counts runs of the programs that tell of events that the kernel skipped, before the filter could be asked, because the
	// program was under way on that CPU: interrupted, or, in kernels that allow that, preempted. A program at the entry of a call
	// is not among them: its return is, or is unseen.
	Missed uint64
	// Unmatched counts events that lack what their beginning tells, because it was not seen: as a rule what was in progress when
	// tracing began. They passed the filter, unless it is Unasked: it asks for just that.
	Unmatched uint64
	Unasked   bool
	// InFlightFull counts beginnings that there was no room to remember, MissedBeginnings those that the kernel skipped, of helpers; their
	// ends are among the unmatched or unseen.
	InFlightFull, MissedBeginnings uint64
	// Corrected counts objects of which events came late, by the kernel's own list: theirs were skipped. What the kernel tells of that
	// is among the missed.
	Corrected uint64
	// Gaps counts times in which the functions of a module, which was unloaded and loaded again, were not seen: nobody knows how many
	// events that were.
	Gaps uint64
}

// Lost is the number of events that should have been delivered and were not.
func (l Losses) Lost() uint64 { return l.RingBuffer + l.Unseen + l.Missed }

// Losses returns the counts of each probe so far.
func (s *Session) Losses() ([]Losses, error) {
	var all []Losses
	for _, r := range s.requests {
		l, err := r.losses()
		if err != nil {
			return nil, fmt.Errorf("counts of %s: %w", r.Probe, err)
		}
		if i := slices.IndexFunc(all, func(o Losses) bool { return o.Probe == r.Probe }); i >= 0 {
			all[i].add(l)
			continue
		}
		l.Delivered = s.deliveredOf(r.Probe)
		all = append(all, l)
	}
	return all, s.countCorrected(all)
}

// deliveredOf returns how many records of a probe were read.
func (s *Session) deliveredOf(p *event.Probe) (n uint64) {
	for id, l := range s.layouts {
		if l != nil && l.Probe == p {
			n += s.delivered[id].Load()
		}
	}
	return n
}

// add adds what another request for the same probe counted.
func (l *Losses) add(o Losses) {
	l.Counted = l.Counted && o.Counted
	l.Events += o.Events
	l.Passed += o.Passed
	l.Rejected += o.Rejected
	l.RingBuffer += o.RingBuffer
	l.Unseen += o.Unseen
	l.Missed += o.Missed
	l.Unmatched += o.Unmatched
	l.Unasked = l.Unasked || o.Unasked
	l.InFlightFull += o.InFlightFull
	l.MissedBeginnings += o.MissedBeginnings
	l.Gaps += o.Gaps
}

func (r *request) losses() (Losses, error) {
	n, err := r.counted()
	if err != nil {
		return Losses{}, err
	}
	l := Losses{
		Probe: r.Probe, Counted: r.Counted, Events: n[countPassed] + n[countRejected], Passed: n[countPassed], Rejected: n[countRejected],
		RingBuffer: n[countRingFull], Unseen: n[countUnseen], InFlightFull: n[countInflightFull],
	}
	// Without helpers nothing looks for beginnings.
	if len(r.hooks) > 1 {
		l.Unmatched, l.Unasked = n[countUnmatched], r.Code.begins(r.source) == stageBefore
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.Missed, l.Gaps = r.missed, r.gaps
	for _, a := range r.attached {
		n, err := a.misses()
		if err != nil {
			return Losses{}, err
		}
		switch {
		case a.helper:
			l.MissedBeginnings += n
		case a.tells:
			l.Missed += n
		}
	}
	l.Missed = max(l.Missed, n[countUnended]) // the same, where the kernel does not tell
	return l, nil
}

// counted returns what the programs counted. Without a map there is nothing that they count.
func (r *request) counted() (n [counters]uint64, err error) {
	if r.counts == nil {
		return n, nil
	}
	var perCPU [][counters]uint64
	if err := r.counts.Lookup(uint32(0), &perCPU); err != nil {
		return n, err
	}
	for _, cpu := range perCPU {
		for i, v := range cpu {
			n[i] += v
		}
	}
	return n, nil
}

// missedByLink is how often a kprobe was hit and could not run its program; kernels before 6.7 do not tell.
func missedByLink(c io.Closer) uint64 {
	l, ok := c.(link.Link)
	if !ok {
		return 0
	}
	info, err := l.Info()
	if err != nil {
		return 0
	}
	if perf := info.PerfEvent(); perf != nil {
		if kprobe := perf.Kprobe(); kprobe != nil {
			return kprobe.Missed
		}
	}
	return 0
}
