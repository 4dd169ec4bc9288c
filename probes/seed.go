//go:build linux

package probes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"trace/probes/event"
)

// Steps of seeding, enum seeding in trace.h.
const (
	seeding  = 1
	watching = 2
	checking = 3
)

// seedSlack is how many objects may be there besides twice those of the start.
const seedSlack = 1 << 14

// size makes room for the objects of this host.
func (sd *seed) size(spec *ebpf.CollectionSpec, r *request) {
	spec.Maps[structName(r.Probe)+"_known"].MaxEntries = min(2*sd.objects()+seedSlack, maxSeeds)
}

// allHooks are its hooks, and the one on the kernel's way over its objects.
func (r *request) allHooks() []hook {
	if sd := r.source.hook.seed; sd != nil {
		return append(slices.Clip(r.hooks), sd.visit)
	}
	return r.hooks
}

// plant attaches what sees the objects that are there. Nothing is told before the first step. If it cannot be attached, what comes is
// told all the same.
func (s *Session) plant(l *loader, r *request) (*inventory, error) {
	inv, err := newInventory(l, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Probe, err)
	}
	before := len(r.attached)
	if err := s.attachHook(l, r, r.source.hook.seed.visit); err != nil {
		s.note(r.Probe, fmt.Sprintf("what was there before is not counted, and what the kernel skips not corrected: %v", err))
		inv.blind = true
	}
	// A visitor that is skipped costs no event: the object is met in the next walk.
	inv.visitors, r.attached = slices.Clone(r.attached[before:]), r.attached[:before]
	return inv, nil
}

// seed tells of what was there before, of all requests that were attached. That what cannot be told is no failure of the session, but
// is said.
func (s *Session) seed(ctx context.Context) (err error) {
	if len(s.inventories) == 0 {
		return nil
	}
	stop := s.keepEarly()
	defer func() { err = errors.Join(err, stop()) }()
	for _, inv := range s.inventories {
		if err := inv.set(seeding, 1, false); err != nil {
			return fmt.Errorf("%s: %w", inv.Probe, err)
		}
	}
	for _, all := range s.inventoriesByProbe() {
		w, err := all[0].walk(ctx)
		if err != nil && ctx.Err() == nil {
			w.notes = append(w.notes, fmt.Sprintf("what was there before is not all counted: %v", err))
		}
		for _, note := range w.notes {
			s.note(all[0].Probe, note)
		}
		for _, inv := range all {
			// One that was left out is told to come when it goes: else it would go without having come.
			if err := inv.set(watching, 1, len(w.notes) > 0 || inv.blind); err != nil {
				return fmt.Errorf("%s: %w", inv.Probe, err)
			}
			inv.accepted = inv.surplus(ctx)
		}
	}
	return ctx.Err()
}

// keepEarly keeps the records that are written before anybody reads them: there may be more of them than the ring buffer has room for.
// It ends when the returned function is called.
func (s *Session) keepEarly() (stop func() error) {
	done := make(chan error, 1)
	go func() {
		var sample ringbuf.Record
		for {
			err := s.ring.ReadInto(&sample)
			if errors.Is(err, ringbuf.ErrFlushed) {
				done <- nil
				return
			}
			if err != nil {
				done <- fmt.Errorf("ring buffer: %w", err)
				return
			}
			s.early = append(s.early, bytes.Clone(sample.RawSample))
		}
	}()
	return func() error { return errors.Join(s.ring.Flush(), <-done) }
}

// note keeps what is to be said of a probe, or of none if it is nil, in one line.
func (s *Session) note(p *event.Probe, text string) {
	s.noting.Lock()
	defer s.noting.Unlock()
	text = strings.ReplaceAll(text, "\n", "; ")
	if p != nil {
		text = fmt.Sprintf("%s: %s", p, text)
	}
	s.notes = append(s.notes, text)
}

// Notes say what is missing of the attached probes, or was for a while: what has not been returned before.
func (s *Session) Notes() []string {
	s.noting.Lock()
	defer s.noting.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}
