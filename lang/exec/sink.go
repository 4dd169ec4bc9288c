package exec

import (
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Sink takes what a program prints. [trace/lang/output.Printer] is one. at is the time of the output, on the clock of nsecs.
type Sink interface {
	// Event takes an event that a clause without a body prints.
	Event(at uint64, p *event.Probe, e event.Source) error
	// Text takes the text of a printf, and Time the text of a time().
	Text(at uint64, b []byte) error
	Time(at uint64, b []byte) error
	// Value takes a value of print(). own reports that the program itself chose it.
	Value(at uint64, t event.Type, elems []event.Type, v any, own bool) error
	// Map takes what a map holds. Element takes one element, the only row of t.
	Map(at uint64, t result.Table) error
	Element(at uint64, t result.Table) error

	Presentation
}

// Presentation is how a sink writes values.
type Presentation interface {
	// Clock returns the time of day of nsecs.
	Clock(nsecs any) time.Time
	// Raw reports whether printf writes texts from outside the program unescaped.
	Raw() bool
	Presentable(t event.Type, elems []event.Type, v any) any
	PresentableTable(t result.Table) result.Table
}

// mute discards what is printed.
type mute struct{ Presentation }

func (mute) Event(uint64, *event.Probe, event.Source) error          { return nil }
func (mute) Text(uint64, []byte) error                               { return nil }
func (mute) Time(uint64, []byte) error                               { return nil }
func (mute) Value(uint64, event.Type, []event.Type, any, bool) error { return nil }
func (mute) Map(uint64, result.Table) error                          { return nil }
func (mute) Element(uint64, result.Table) error                      { return nil }
