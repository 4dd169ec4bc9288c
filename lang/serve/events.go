//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"trace"
	"trace/lang/serve/wire"
)

// maxEvents is how many events of a program wait for the web process. Older ones are dropped, and counted.
const maxEvents = 4096

// events are what a program has printed and nobody has read.
type events struct {
	program string
	mu      sync.Mutex
	all     []wire.Event
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
	if len(e.all) == maxEvents {
		e.all = e.all[1:]
		e.lost++
	}
	e.all = append(e.all, event)
}

// take returns the events, and leaves none. The first one has how many are missing before it.
func (e *events) take() []wire.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	if len(all) > 0 {
		all[0].Lost = e.lost
		e.all, e.lost = nil, 0
	}
	return all
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
