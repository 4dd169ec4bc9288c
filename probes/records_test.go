//go:build linux && !vm

package probes

import (
	"encoding/binary"
	"fmt"
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
	if text := ErrUnhandled.Error(); text != "the event was not handled" {
		t.Error(text)
	}
	// One that is not handled is counted, too; a piece of an event counts with the last one.
	for _, partial := range []bool{true, false} {
		l.Partial = partial
		if err := r.deliver(record, new(event.Event), func(*event.Event) error { return fmt.Errorf("at its end: %w", ErrUnhandled) }); err != nil {
			t.Fatal(err)
		}
	}
	counted := Losses{Probe: p}
	if r.addCounts(&counted); read != 2 || counted.Delivered != 2 || counted.Undecoded != 1 || counted.Unhandled != 1 || counted.Lost() != 2 {
		t.Errorf("%d read, counted %+v", read, counted)
	}
	record[0] = 7
	if err := r.deliver(record, new(event.Event), nil); err == nil {
		t.Error("a record of an unknown layout was read")
	}
}
