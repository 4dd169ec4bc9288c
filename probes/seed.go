//go:build linux

package probes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Steps of seeding, enum seeding in trace.h.
const (
	seeding = 1
	seeded  = 2
)

// seedSlack is how many objects may come and go while what is there is told.
const seedSlack = 1 << 14

// size makes room for the objects of this host.
func (sd *seed) size(spec *ebpf.CollectionSpec, r *request) {
	spec.Maps[r.Probe.event+"_known"].MaxEntries = min(2*sd.objects()+seedSlack, maxSeeds)
}

// allHooks are those that stay attached, and the one that does not.
func (r *request) allHooks() []hook {
	if sd := r.Probe.hook.seed; sd != nil {
		return append(slices.Clip(r.hooks), sd.visit)
	}
	return r.hooks
}

// seedling is a request while it is being seeded.
type seedling struct {
	*request
	state *ebpf.Map // of the object's variables
	value []byte    // of the map: all variables
	// at, and gone, are the places of X_seeding and X_gone in it.
	at, gone uint32
	// visitors are attached only for this time.
	visitors []*attached
	// partial says that not all objects were met.
	partial bool
}

// variableSection holds the variables of the C source.
const variableSection = ".bss"

// plant attaches what sees the objects that are there. Nothing is told before the first step. If it cannot be attached, what comes is
// told all the same.
func (s *Session) plant(l *loader, r *request) *seedling {
	variables := l.spec.Variables
	sl := &seedling{
		request: r, state: l.maps[variableSection],
		at: variables[r.Probe.event+"_seeding"].Offset, gone: variables[r.Probe.event+"_gone"].Offset,
	}
	before := len(r.attached)
	if err := s.attachHook(l, r, r.Probe.hook.seed.visit); err != nil {
		s.note(r.Probe, fmt.Sprintf("what was there before is not counted: %v", err))
		sl.partial = true
	}
	sl.visitors, r.attached = slices.Clone(r.attached[before:]), r.attached[:before]
	return sl
}

// step says how far seeding is.
func (sl *seedling) step(step uint32) error {
	var value []byte
	if err := sl.state.Lookup(uint32(0), &value); err != nil {
		return err
	}
	// What the programs count meanwhile, gone, is read only before the last step.
	binary.NativeEndian.PutUint32(value[sl.at:], step)
	return sl.state.Put(uint32(0), value)
}

// left is how many objects have gone since seeding began.
func (sl *seedling) left() (uint32, error) {
	var value []byte
	if err := sl.state.Lookup(uint32(0), &value); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint32(value[sl.gone:]), nil
}

// end detaches what saw the objects that were there, and then lets the programs forget about them. If some were not met, the programs
// go on: else these would go without having come.
func (sl *seedling) end() error {
	err := detachAll(sl.visitors)
	for _, a := range sl.visitors {
		if n, e := a.misses(); e == nil {
			sl.missed += n
		}
		err = errors.Join(err, a.close())
	}
	if sl.partial {
		return err
	}
	return errors.Join(err, sl.step(seeded))
}

// seed tells of what was there before, of all requests that were attached. That what cannot be told is no failure of the session, but
// is said.
func (s *Session) seed(ctx context.Context, all []*seedling) (err error) {
	if len(all) == 0 {
		return nil
	}
	stop := s.keepEarly()
	defer func() { err = errors.Join(err, stop()) }()
	for _, sl := range all {
		if err := sl.step(seeding); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", sl.Probe, err), endAll(all))
		}
	}
	for i, sl := range all {
		if sl.partial {
			continue
		}
		// One walk suffices for all requests for a probe.
		if j := slices.IndexFunc(all[:i], func(o *seedling) bool { return o.Probe == sl.Probe && len(o.visitors) > 0 }); j >= 0 {
			sl.partial = all[j].partial
			continue
		}
		notes, err := sl.Probe.hook.seed.walk(ctx, sl.left)
		if err != nil && ctx.Err() == nil {
			notes = append(notes, fmt.Sprintf("what was there before is not all counted: %v", err))
		}
		for _, note := range notes {
			s.note(sl.Probe, note)
		}
		sl.partial = len(notes) > 0
	}
	return errors.Join(endAll(all), ctx.Err())
}

func endAll(all []*seedling) (err error) {
	for _, sl := range all {
		err = errors.Join(err, sl.end())
	}
	return err
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

// note keeps what is to be said of a probe, in one line.
func (s *Session) note(p *Probe, text string) {
	s.notes = append(s.notes, fmt.Sprintf("%s: %s", p, strings.ReplaceAll(text, "\n", "; ")))
}

// Notes say what of the attached probes is missing that was there before.
func (s *Session) Notes() []string { return s.notes }
