//go:build linux && !vm

package probes

import (
	"encoding/binary"
	"testing"

	"trace/probes/event"
)

// A record that is not whole is counted, and what follows is read. One of an unknown layout is an error.
func TestUndecodedRecords(t *testing.T) {
	p := event.NewProbe("a", "b", "", []event.Field{{Name: "x", Type: event.Type{Kind: event.Uint, Size: 8}, Offset: 8}})
	l := event.NewLayout(1, p, p.Fields, nil)
	var r records
	if err := r.add([]*event.Layout{l}); err != nil {
		t.Fatal(err)
	}
	record := make([]byte, l.Size)
	binary.LittleEndian.PutUint64(record, 1)
	read := 0
	for _, size := range []int{l.Size, l.Size - 1, l.Size} {
		if err := r.deliver(record[:size], new(event.Event), func(*event.Event) error { read++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if delivered, undecoded := r.countsOf(p); read != 2 || delivered != 2 || undecoded != 1 {
		t.Errorf("%d read, %d delivered, %d undecoded", read, delivered, undecoded)
	}
	record[0] = 7
	if err := r.deliver(record, new(event.Event), nil); err == nil {
		t.Error("a record of an unknown layout was read")
	}
	if l := (Losses{Undecoded: 1}); l.Lost() != 1 {
		t.Errorf("%d lost, want 1", l.Lost())
	}
}
