//go:build linux

package serve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/serve/config"
	"trace/lang/serve/wire"
)

// Events that the web process did not get are sent to the next one, in their order, and what there was no room for meanwhile is counted.
func TestEventsArePutBack(t *testing.T) {
	p := &program{events: &events{program: "p"}}
	s := &Service{programs: []*program{p}}
	s.config = &config.Config{}
	add := func(texts ...string) {
		for _, text := range texts {
			p.events.add(wire.Event{Text: text})
		}
	}
	p.events.lost = 2
	add("a", "b")
	broken := errors.New("broken")
	if err := s.Events(t.Context(), func([]wire.Event) error { add("c"); return broken }); err != broken {
		t.Error(err)
	}
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	var got []wire.Event
	s.Events(ctx, func(all []wire.Event) error { got = all; end(); return nil })
	if len(got) != 3 || got[0].Text+got[1].Text+got[2].Text != "abc" || got[0].Lost != 2 {
		t.Errorf("got %+v", got)
	}
	got[0].Lost = 1
	p.events.add(wire.Event{})
	p.events.putBack(slices.Concat(got, make([]wire.Event, maxEvents)))
	if all := p.events.take(); len(all) != maxEvents || all[0].Lost != 1+4 {
		t.Errorf("%d events, %d lost", len(all), all[0].Lost)
	}
}

// Long texts are bounded by their bytes. One that is longer than all the room is lost alone.
func TestBytesOfEventsAreBounded(t *testing.T) {
	e := &events{}
	text := strings.Repeat("x", maxEventBytes/10)
	for range 15 {
		e.add(wire.Event{Text: text})
	}
	if all := e.take(); len(all) != 10 || all[0].Lost != 5 {
		t.Errorf("%d events, %d lost", len(all), all[0].Lost)
	}
	e.add(wire.Event{Text: strings.Repeat("x", maxEventBytes+1)})
	e.add(wire.Event{Text: "short"})
	if all := e.take(); len(all) != 1 || all[0].Text != "short" || all[0].Lost != 1 {
		t.Errorf("%d events, %+v", len(all), all[0])
	}
}

// A changed program sends what its old form has printed.
func TestEventsOfTheReplaced(t *testing.T) {
	before, after := &program{events: &events{}}, &program{events: &events{}}
	before.events.add(wire.Event{Text: "a"})
	after.replaces(before)
	before.events.add(wire.Event{Text: "b"})
	if all := after.events.take(); len(all) != 2 {
		t.Errorf("got %+v", all)
	}
}
