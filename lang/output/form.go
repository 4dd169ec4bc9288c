package output

import (
	"io"
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Format is a format for events, maps and what a program prints. formats.go lists all formats.
type Format string

// form is the part of a [Printer] that differs between formats. Its values and tables are presentable: see present.go.
type form interface {
	// show is called when the columns of the pen are set. printed are the probes whose events the program prints.
	show(printed []*event.Probe)
	event(probe *event.Probe, e event.Source) error
	// text writes what printf or time() printed; what is the name of the function.
	text(what string, b []byte) error
	// value writes a value of print(). own reports that the program itself chose it.
	value(t event.Type, elems []event.Type, v any, own bool) error
	table(t result.Table) error
	// element writes one element, of print(@m[key]): the only row of a table.
	element(t result.Table) error
	// count writes how many there are of something.
	count(what, noun string, n uint64) error
	// tested writes the last result of tests, and measured the result of a benchmark.
	tested(results []Tested, all int) error
	measured(m Measured, names []string) error
	// begin and end write what surrounds the rest.
	begin() error
	end() error
}

// Tested is the result of a test.
type Tested struct {
	Name   string
	Passed bool
	Took   time.Duration
	// Output is what it printed and reported.
	Output string
}

// Measured is the result of a benchmark: how often it ran, and the time of each run.
type Measured struct {
	Name string
	Each time.Duration
	Runs int
}

// get returns the value of a field, or nil if the value is absent or f is nil.
func get(e event.Source, f *event.Field) any {
	if f == nil {
		return nil
	}
	if v, ok := e.Get(f); ok {
		return v
	}
	return nil
}

// pen is what all forms write with, once for each event or row. The caller buffers.
type pen struct {
	w    io.Writer
	wall *event.WallClock
	// raw reports that strings are written unescaped. escapes reports that the format has escapes of its own.
	raw, escapes bool
	// columns are what is printed of events.
	columns Columns
	// moment is the time of the current output.
	moment result.Moment
	line   []byte
	// coloured reports that a terminal shows it in colours. written reports that something was written.
	coloured, written bool
}

// Most formats have nothing around the rest, and leave the numbers of probes and lost events to the notes.
func (*pen) begin() error { return nil }
func (*pen) end() error   { return nil }

func (*pen) count(string, string, uint64) error { return nil }
func (*pen) tested([]Tested, int) error         { return nil }
func (*pen) measured(Measured, []string) error  { return nil }

// endLine ends the line and writes it.
func (p *pen) endLine() error {
	p.line = append(p.line, '\n')
	return p.flush()
}

// flush writes what line holds.
func (p *pen) flush() error {
	p.written = p.written || len(p.line) > 0
	_, err := p.w.Write(p.line)
	p.line = p.line[:0]
	return err
}

// Clock returns the time of day of nsecs.
func (p *pen) Clock(nsecs any) time.Time {
	return p.wall.Time(event.To[uint64](nsecs))
}
