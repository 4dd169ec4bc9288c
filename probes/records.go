//go:build linux

package probes

import (
	"errors"
	"slices"
	"sync/atomic"

	"trace/probes/event"
)

// records decodes and counts the records of generated code. Layouts may be added while records are read, and none is removed: a record may
// be read long after it was written.
type records struct{ known atomic.Pointer[known] }

// known are layouts, by ID, and how many records of each were delivered.
type known struct {
	layouts              []*event.Layout
	delivered, undecoded []*atomic.Uint64
}

// add adds layouts. It fails if an ID belongs to another layout.
func (r *records) add(layouts []*event.Layout) error {
	var before known
	if k := r.known.Load(); k != nil {
		before = *k
	}
	all := slices.DeleteFunc(slices.Clone(before.layouts), func(l *event.Layout) bool { return l == nil })
	for _, l := range layouts {
		if !slices.Contains(before.layouts, l) {
			all = append(all, l)
		}
	}
	byID, err := event.ByID(all)
	if err != nil {
		return err
	}
	after := &known{byID, slices.Clone(before.delivered), slices.Clone(before.undecoded)}
	for len(after.delivered) < len(byID) {
		after.delivered, after.undecoded = append(after.delivered, new(atomic.Uint64)), append(after.undecoded, new(atomic.Uint64))
	}
	r.known.Store(after)
	return nil
}

// deliver calls fn for a record. It only counts one that is not whole.
func (r *records) deliver(record []byte, e *event.Event, fn func(*event.Event) error) error {
	k := r.known.Load()
	err := event.Decode(k.layouts, record, e)
	var short *event.ShortError
	if errors.As(err, &short) {
		k.undecoded[short.Layout.ID].Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	if !e.Layout().Partial {
		k.delivered[e.Layout().ID].Add(1)
	}
	return fn(e)
}

// countsOf returns how many records of a probe were read, and how many could not be.
func (r *records) countsOf(p *event.Probe) (delivered, undecoded uint64) {
	k := r.known.Load()
	for id, l := range k.layouts {
		if l != nil && l.Probe == p {
			delivered += k.delivered[id].Load()
			undecoded += k.undecoded[id].Load()
		}
	}
	return delivered, undecoded
}
