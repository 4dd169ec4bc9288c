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

// maxIncomplete is far above how many BPF programs run at once. More are only there if pieces of many events found no room.
const maxIncomplete = 1024

// add takes a piece. With the last one it returns all pieces of the event. e is valid only until the next record is read.
func (i *incomplete) add(part *plan.Part, e *event.Event) []*event.Event {
	run, _ := e.Value(part.Piece.Run)
	number, _ := e.Value(part.Piece.Number)
	from := execution{part.Site, event.To[uint64](run)}
	if event.To[uint64](number) == 0 {
		delete(i.all, from) // a piece of that event found no room, and was counted
	}
	if event.To[uint64](number) != uint64(len(i.recordsOf(from))) {
		delete(i.all, from) // a piece before was not whole
		return nil
	}
	if part.Piece.Last {
		defer delete(i.all, from)
		return append(i.recordsOf(from), e)
	}
	if len(i.all) == maxIncomplete {
		i.forgetHalf()
	}
	if i.all[from] == nil {
		i.all[from] = &pieces{number: i.begun}
		i.begun++
	}
	i.all[from].records = append(i.all[from].records, e.Clone())
	return nil
}

func (i *incomplete) recordsOf(from execution) []*event.Event {
	if begun := i.all[from]; begun != nil {
		return begun.records
	}
	return nil
}

// forgetHalf forgets the older half of the events.
func (i *incomplete) forgetHalf() {
	order := slices.SortedFunc(maps.Keys(i.all), func(a, b execution) int { return cmp.Compare(i.all[a].number, i.all[b].number) })
	for _, from := range order[:len(order)/2] {
		delete(i.all, from)
	}
}
