package output

import (
	"io"
	"time"

	"trace/lang/format"
	"trace/probes/event"
)

// Format is how events are written.
type Format string

const (
	// Text is one readable line for each event: enums as names, durations as 1.2ms, sizes as 4KiB, GIDs as addresses, nothing of what is
	// absent, nor of what people do not look at (see [Columns]).
	Text Format = "text"
	// JSON is one object in a line: see json.go and schema.json.
	JSON Format = "json"
	// CSV is a table of events, and one for each map: see csv.go.
	CSV Format = "csv"
	// Folded, Pprof and HTML are made at the end of a run, of what the maps hold then. Printers write text for them.
	Folded Format = "folded"
	Pprof  Format = "pprof"
	HTML   Format = "html"
)

// Printer writes events and what programs print. It writes once for each event or entry of a map; the caller buffers.
type Printer struct {
	w      io.Writer
	format Format
	boot   time.Time
	raw    bool
	line   []byte
	// columns are what is printed of events; table are those of CSV.
	columns Columns
	table   csvTable
	// objects and lines are how the events seen so far are written, as JSON and as text.
	objects map[*event.Probe][]member
	lines   map[*event.Probe]*lineForm
}

// NewPrinter returns a printer that writes to w. Events tell their time since the boot of the machine; boot is when that
// was, and its location the time zone of the output.
func NewPrinter(w io.Writer, format Format, boot time.Time) *Printer {
	return &Printer{w: w, format: format, boot: boot, objects: map[*event.Probe][]member{}, lines: map[*event.Probe]*lineForm{}}
}

// Show sets what is printed of the events of some probes. Raw says that strings are written as they are: see present.go.
func (p *Printer) Show(c Columns, printed []*event.Probe, raw bool) {
	p.columns, p.table, p.raw = c, csvTable{columns: c.tableOf(printed)}, raw
	clear(p.objects)
	clear(p.lines)
}

// OfMaps returns a printer of maps as text, which writes to w as this one does.
func (p *Printer) OfMaps(w io.Writer) *Printer {
	maps := NewPrinter(w, Text, p.boot)
	maps.raw = p.raw
	return maps
}

// Raw tells whether texts of others go into a printf as they are: JSON escapes the whole.
func (p *Printer) Raw() bool { return p.raw || p.format == JSON }

// Source is what has values of fields: an [event.Event].
type Source interface {
	// Get returns the value of f, or false if it is absent.
	Get(f *event.Field) (v any, ok bool)
}

// Event writes an event.
func (p *Printer) Event(probe *event.Probe, e Source) error {
	switch p.format {
	case CSV:
		return p.eventCSV(probe, e)
	case JSON:
		return p.eventJSON(probe, e)
	default:
		p.line = p.appendText(p.line[:0], probe, e)
	}
	return p.endLine()
}

// endLine ends the line and writes it.
func (p *Printer) endLine() error {
	p.line = append(p.line, '\n')
	return p.flush()
}

// flush writes what line holds.
func (p *Printer) flush() error {
	_, err := p.w.Write(p.line)
	p.line = p.line[:0]
	return err
}

// Text writes the text of a printf.
func (p *Printer) Text(b []byte) error { return p.text("printf", b) }

// Time writes the text of a time().
func (p *Printer) Time(b []byte) error { return p.text("time", b) }

func (p *Printer) text(what string, b []byte) error {
	if p.format == JSON {
		return p.textJSON(what, string(b))
	}
	_, err := p.w.Write(b)
	return err
}

// Value writes a value of print(). Own says that the program itself chose it.
func (p *Printer) Value(t event.Type, elems []event.Type, v any, own bool) error {
	v = p.Presentable(t, elems, v)
	if p.format == JSON {
		return p.valueJSON(t, elems, v)
	}
	if text, ok := v.(string); ok && t.Kind == event.String && own {
		v = format.Verbatim(text)
	}
	p.line = format.Append(p.line[:0], t, elems, v)
	return p.endLine()
}
