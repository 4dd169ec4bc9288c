package exec

import (
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Sink takes what a program prints; [trace/lang/output.Printer] is one. At is when that came, as nsecs tells it.
type Sink interface {
	// Event takes an event that a clause without a block prints.
	Event(at uint64, p *event.Probe, e event.Source) error
	// Text and Time take the text of a printf and of a time().
	Text(at uint64, b []byte) error
	Time(at uint64, b []byte) error
	// Value takes a value of print(). Own says that the program itself chose it.
	Value(at uint64, t event.Type, elems []event.Type, v any, own bool) error
	// Map takes what a map holds, and Element one entry, the only row of t.
	Map(at uint64, t result.Table) error
	Element(at uint64, t result.Table) error

	Presentation
}

// Presentation is how values look in what a sink writes.
type Presentation interface {
	// Clock is the time of day of nsecs.
	Clock(nsecs any) time.Time
	// Raw returns whether texts of others go into a printf as they are.
	Raw() bool
	Presentable(t event.Type, elems []event.Type, v any) any
	PresentableTable(t result.Table) result.Table
}

// mute takes what is printed and drops it.
type mute struct{ Presentation }

func (mute) Event(uint64, *event.Probe, event.Source) error          { return nil }
func (mute) Text(uint64, []byte) error                               { return nil }
func (mute) Time(uint64, []byte) error                               { return nil }
func (mute) Value(uint64, event.Type, []event.Type, any, bool) error { return nil }
func (mute) Map(uint64, result.Table) error                          { return nil }
func (mute) Element(uint64, result.Table) error                      { return nil }
