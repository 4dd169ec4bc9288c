package output

import (
	"io"

	"trace/lang/result"
	"trace/probes/event"
)

// Printer writes events and what programs print in a format.
type Printer struct {
	pen
	form form
}

// NewPrinter returns a printer that writes to w. wall has the times of events. Its time zone is the time zone of the
// output.
func NewPrinter(w io.Writer, format Format, wall *event.WallClock) *Printer {
	traits := format.traits()
	p := &Printer{pen: pen{w: w, wall: wall, escapes: traits.escapes}}
	p.form = traits.form(&p.pen)
	return p
}

// Colour makes the printer write for a terminal with colours.
func (p *Printer) Colour(coloured bool) { p.coloured = coloured }

// Show sets what is printed of the events of some probes. With raw, strings are written unescaped: see present.go.
func (p *Printer) Show(c Columns, printed []*event.Probe, raw bool) {
	p.columns, p.raw = c, raw
	p.form.show(printed)
}

// AsText returns a printer of text, which writes to w in the way of this one.
func (p *Printer) AsText(w io.Writer) *Printer {
	maps := NewPrinter(w, Text, p.wall)
	maps.raw = p.raw
	return maps
}

// Raw reports whether printf writes texts from outside the program unescaped: the format may escape the result.
func (p *Printer) Raw() bool { return p.raw || p.escapes }

// Event writes an event. Here and below at is the time of the output.
func (p *Printer) Event(at result.Moment, probe *event.Probe, e event.Source) error {
	p.moment = at
	return p.form.event(probe, e)
}

// Text writes the text of a printf.
func (p *Printer) Text(at result.Moment, b []byte) error {
	p.moment = at
	return p.form.text("printf", b)
}

// Time writes the text of a time().
func (p *Printer) Time(at result.Moment, b []byte) error {
	p.moment = at
	return p.form.text("time", b)
}

// Attached writes how many probes are attached, and Lost how many events were lost since the last call. JSON, like bpftrace, and
// traces have them among the data, for programs that read nothing else. The notes have them in all formats.
func (p *Printer) Attached(at uint64, probes int) error {
	p.moment = result.At(at)
	return p.form.count("attached_probes", "probes", uint64(probes))
}

// Lost is described at Attached.
func (p *Printer) Lost(at, events uint64) error {
	p.moment = result.At(at)
	return p.form.count("lost_events", "events", events)
}

// Value writes a value of print(). own reports that the program itself chose it.
func (p *Printer) Value(at result.Moment, t event.Type, elems []event.Type, v any, own bool) error {
	p.moment = at
	return p.form.value(t, elems, p.Presentable(t, elems, v), own)
}

// Map writes what a map holds.
func (p *Printer) Map(at result.Moment, t result.Table) error {
	p.moment = at
	return p.form.table(p.PresentableTable(t))
}

// Element writes one element of a map, of print(@m[key]): the only row of t.
func (p *Printer) Element(at result.Moment, t result.Table) error {
	p.moment = at
	return p.form.element(p.PresentableTable(t))
}

// Tested writes the last of the results so far. all is how many there will be.
func (p *Printer) Tested(results []Tested, all int) error { return p.form.tested(results, all) }

// Measured writes a result. names are the names of all benchmarks.
func (p *Printer) Measured(m Measured, names []string) error { return p.form.measured(m, names) }

// Begin writes the begin of the output, even if nothing follows.
func (p *Printer) Begin() error { return p.form.begin() }

// End writes the end of the output, if it has begun.
func (p *Printer) End() error { return p.form.end() }
