package exec

import (
	"cmp"
	"maps"
	"slices"

	"trace/lang/plan"
	"trace/probes/event"
)

// incomplete are the events whose output has begun, and whose last piece has not arrived.
type incomplete struct {
	all   map[execution]*pieces
	begun uint64
}

// execution is what the pieces of one event have in common.
type execution struct {
	site *plan.Site
	run  uint64
}

// pieces are the records of an event, in their order.
type pieces struct {
	number  uint64 // of events before
	records []*event.Event
}

// maxIncomplete is far above how many BPF programs run at once. More are only there if the last pieces of many events were lost.
const maxIncomplete = 1024

// add takes a piece, and returns the pieces that wait no longer: with the last one all pieces of its event. e is valid only until the
// next record is read.
func (i *incomplete) add(part *plan.Part, e *event.Event) (ready []*event.Event) {
	run, _ := e.Value(part.Piece.Run)
	from := execution{part.Site, event.To[uint64](run)}
	if part.Piece.First || part.Piece.Last {
		ready = i.take(from) // what is there before a first piece lost its last one
	}
	if part.Piece.Last {
		return append(ready, e)
	}
	if len(i.all) == maxIncomplete {
		ready = append(ready, i.rest()...)
	}
	if i.all[from] == nil {
		i.all[from] = &pieces{number: i.begun}
		i.begun++
	}
	i.all[from].records = append(i.all[from].records, e.Clone())
	return ready
}

func (i *incomplete) take(from execution) []*event.Event {
	begun := i.all[from]
	if begun == nil {
		return nil
	}
	delete(i.all, from)
	return begun.records
}

// rest takes all pieces, of one event after the other, in the order in which they began.
func (i *incomplete) rest() (all []*event.Event) {
	order := slices.SortedFunc(maps.Keys(i.all), func(a, b execution) int { return cmp.Compare(i.all[a].number, i.all[b].number) })
	for _, from := range order {
		all = append(all, i.take(from)...)
	}
	return all
}
