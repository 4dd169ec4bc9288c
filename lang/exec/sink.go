package exec

import (
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Sink takes what a program prints. [trace/lang/output.Printer] is one. at is the time of the output, on the clock of nsecs.
type Sink interface {
	// Event takes an event that a clause without a body prints.
	Event(at result.Moment, p *event.Probe, e event.Source) error
	// Text takes the text of a printf, and Time the text of a time(). b is changed after they return.
	Text(at result.Moment, b []byte) error
	Time(at result.Moment, b []byte) error
	// Value takes a value of print(). own reports that the program itself chose it.
	Value(at result.Moment, t event.Type, elems []event.Type, v any, own bool) error
	// Map takes what a map holds. Element takes one element, the only row of t.
	Map(at result.Moment, t result.Table) error
	Element(at result.Moment, t result.Table) error

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

func (mute) Event(result.Moment, *event.Probe, event.Source) error          { return nil }
func (mute) Text(result.Moment, []byte) error                               { return nil }
func (mute) Time(result.Moment, []byte) error                               { return nil }
func (mute) Value(result.Moment, event.Type, []event.Type, any, bool) error { return nil }
func (mute) Map(result.Moment, result.Table) error                          { return nil }
func (mute) Element(result.Moment, result.Table) error                      { return nil }
