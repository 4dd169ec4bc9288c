//go:build linux

package probes

import (
	"slices"
	"sync/atomic"

	"trace/probes/event"
)

// records decodes and counts the records of generated code. Layouts may be added while records are read, and none is removed: a record may
// be read long after it was written.
type records struct{ known atomic.Pointer[known] }

// known are layouts, by ID, and how many records of each were delivered.
type known struct {
	layouts   []*event.Layout
	delivered []*atomic.Uint64
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
	after := &known{byID, slices.Clone(before.delivered)}
	for len(after.delivered) < len(byID) {
		after.delivered = append(after.delivered, new(atomic.Uint64))
	}
	r.known.Store(after)
	return nil
}

// deliver calls fn for a record.
func (r *records) deliver(record []byte, e *event.Event, fn func(*event.Event) error) error {
	k := r.known.Load()
	if err := event.Decode(k.layouts, record, e); err != nil {
		return err
	}
	k.delivered[e.Layout().ID].Add(1)
	return fn(e)
}

// deliveredOf returns how many records of a probe were read.
func (r *records) deliveredOf(p *event.Probe) (n uint64) {
	k := r.known.Load()
	for id, l := range k.layouts {
		if l != nil && l.Probe == p {
			n += k.delivered[id].Load()
		}
	}
	return n
}
