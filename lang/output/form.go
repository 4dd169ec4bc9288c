package output

import (
	"io"
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Format is how events, maps and what a program prints are written. All formats are in the list of formats.go.
type Format string

// form writes what comes while a program runs, as a format has it: it is the part of a [Printer] that differs. Values and tables are
// presentable: see present.go.
type form interface {
	// show says that the columns of the pen are set, and which probes have events that the program prints.
	show(printed []*event.Probe)
	event(probe *event.Probe, e event.Source) error
	// text writes what a printf or a time() printed; what is its name.
	text(what string, b []byte) error
	// value writes a value of print(). Own says that the program itself chose it.
	value(t event.Type, elems []event.Type, v any, own bool) error
	table(t result.Table) error
	// element writes one entry, of print(@m[key]), the only row of a table.
	element(t result.Table) error
	// count writes how many there are of something.
	count(what, noun string, n uint64) error
	// begin and end write what stands around all the rest.
	begin() error
	end() error
}

// get returns the value of a field, or nil if it is absent, or there is no such field.
func get(e event.Source, f *event.Field) any {
	if f == nil {
		return nil
	}
	if v, ok := e.Get(f); ok {
		return v
	}
	return nil
}

// pen is what all forms write with: once for each event or entry of a map; the caller buffers.
type pen struct {
	w    io.Writer
	boot time.Time
	// raw says that strings are written as they are; escapes says that the format has escapes of its own for them.
	raw, escapes bool
	// columns are what is printed of events.
	columns Columns
	// moment is when that came which is printed now, as nsecs tells it.
	moment uint64
	line   []byte
}

// Most formats have nothing around the rest, and leave numbers of probes and lost events to the notes.
func (*pen) begin() error { return nil }
func (*pen) end() error   { return nil }

func (*pen) count(string, string, uint64) error { return nil }

// endLine ends the line and writes it.
func (p *pen) endLine() error {
	p.line = append(p.line, '\n')
	return p.flush()
}

// flush writes what line holds.
func (p *pen) flush() error {
	_, err := p.w.Write(p.line)
	p.line = p.line[:0]
	return err
}

// Clock is the time of day of nsecs.
func (p *pen) Clock(nsecs any) time.Time {
	return p.boot.Add(time.Duration(event.To[int64](nsecs)))
}
