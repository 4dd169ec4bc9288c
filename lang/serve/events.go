//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"trace"
	"trace/lang/serve/wire"
)

// Limits of the events of a program that wait for the web process, in number and in bytes. Older ones are dropped, and counted.
const (
	maxEvents     = 4096
	maxEventBytes = 4 << 20
)

// events are what a program has printed and nobody has read.
type events struct {
	program string
	mu      sync.Mutex
	all     []wire.Event
	bytes   int
	lost    uint64
}

// collect takes what a run prints.
func (e *events) collect(ctx context.Context, run *trace.Run) {
	for r, err := range run.Records(ctx) {
		if err != nil {
			return // the run has it, too
		}
		e.add(eventOf(e.program, r))
	}
}

func (e *events) add(event wire.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.bytes = append(e.all, event), e.bytes+sizeOf(event)
	e.trim()
}

// trim drops the oldest events that there is no room for.
func (e *events) trim() {
	for len(e.all) > maxEvents || e.bytes > maxEventBytes {
		e.bytes -= sizeOf(e.all[0])
		e.all = e.all[1:]
		e.lost++
	}
}

// sizeOf returns how many bytes of an event the program has chosen.
func sizeOf(e wire.Event) int { return len(e.Text) + len(e.Fields) }

// take returns the events, and leaves none. The first one has how many are missing before it.
func (e *events) take() []wire.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	if len(all) > 0 {
		all[0].Lost = e.lost
		e.all, e.bytes, e.lost = nil, 0, 0
	}
	return all
}

// putBack returns events that were taken and that nobody got.
func (e *events) putBack(all []wire.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += all[0].Lost
	e.all = slices.Concat(all, e.all)
	for _, event := range all {
		e.bytes += sizeOf(event)
	}
	e.trim()
}

// eventOf describes a record.
func eventOf(program string, r *trace.Record) wire.Event {
	e := wire.Event{Program: program, Probe: r.Probe, Time: r.Time, Text: r.Text}
	fields := map[string]any{}
	for i, name := range r.Names {
		if r.Values[i] != nil {
			fields[name] = plain(r.Values[i])
		}
	}
	switch {
	case r.Map != "":
		e.Text = fmt.Sprintf("%s has %d keys", r.Map, len(r.Rows))
	case r.Value != nil:
		e.Text = fmt.Sprint(r.Value)
	}
	if len(fields) > 0 {
		e.Fields, _ = json.Marshal(fields) // numbers, texts and booleans
	}
	return e
}

// plain returns a value as a number, a text or a boolean.
func plain(v any) any {
	switch v := v.(type) {
	case bool, int64, uint64, string:
		return v
	case trace.Bytes:
		return int64(v)
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}
