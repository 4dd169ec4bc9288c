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
	// unhandled counts the records that were read, and whose reader returned ErrUnhandled.
	unhandled []*atomic.Uint64
}

// ErrUnhandled is what a reader of events returns for one that it does not handle, as nobody waits for it: the event is counted among
// the losses, and the next one comes.
var ErrUnhandled = errors.New("the event was not handled")

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
	after := &known{byID, slices.Clone(before.delivered), slices.Clone(before.undecoded), slices.Clone(before.unhandled)}
	for len(after.delivered) < len(byID) {
		for _, counters := range []*[]*atomic.Uint64{&after.delivered, &after.undecoded, &after.unhandled} {
			*counters = append(*counters, new(atomic.Uint64))
		}
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
	l := e.Layout()
	counts := k.delivered
	if err = fn(e); errors.Is(err, ErrUnhandled) {
		counts, err = k.unhandled, nil
	}
	if !l.Partial {
		counts[l.ID].Add(1)
	}
	return err
}

// addCounts adds to the losses of a probe how many of its records were read, and how many were not, or for nothing.
func (r *records) addCounts(to *Losses) {
	k := r.known.Load()
	for id, l := range k.layouts {
		if l != nil && l.Probe == to.Probe {
			to.Delivered += k.delivered[id].Load()
			to.Undecoded += k.undecoded[id].Load()
			to.Unhandled += k.unhandled[id].Load()
		}
	}
}
