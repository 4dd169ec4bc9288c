package lang

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"trace/lang/syntax"
	"trace/probes/event"
)

// Format is how events are written.
type Format string

const (
	// Text is one readable line for each event: enums as names, durations as 1.2ms, sizes as 4KiB, GIDs as addresses, nothing of what is
	// absent, nor of what people do not look at (see [Columns]).
	Text Format = "text"
	// JSON is one object in a line, with plain numbers for durations and sizes, names for enums, {"id":…,"path":…} for cgroups, whose
	// path may be null, and null for what is absent:
	//
	//	{"probe":"ib:modify_qp","nsecs":…,"time":"2024-…","pid":…,…,"qp":{"num":17,"state":"RTR"},…}    an event
	//	{"type":"printf","text":"…"}                                                                  printf()
	//	{"type":"time","text":"…"}                                                                    time()
	//	{"type":"value","value":…,"unit":"ns"}                                                        print(x)
	//	{"type":"map","name":"@x","fn":"avg","unit":"ns","entries":[{"key":["fio",4096],"value":…}]}  print(@x)
	//
	// The unit, "ns" or "bytes", is that of the numbers, and left out if they have none; fn is the aggregation, and left out if the
	// map has none. A key is a list, empty if the map has no key. A tuple is a list, too, and a stack one of its frames as text. Entries
	// come in the order of the text. Values of aggregations are a number, or null if there is none yet, but for these:
	//
	//	hist, lhist  [{"lo":0,"hi":64,"n":5},…]   buckets lo <= x < hi, from the first to the last with a value; null for a side that is open
	//	stats        {"count":3,"average":5,"total":15}
	//	quantile     {"count":3,"p50":81200,"p99.9":{"lo":1099511627776,"hi":null}}   beyond what is measured only a bound is known
	//	rate         {"total":3,"per_second":1.5}   null if no time has passed
	JSON Format = "json"
	// CSV is a table of events, and one for each map: see csv.go.
	CSV Format = "csv"
	// Folded, Pprof and HTML are made at the end of a run, of what [Run.Profiles] and [Run.Views] return. Printers write text for them.
	Folded Format = "folded"
	Pprof  Format = "pprof"
	HTML   Format = "html"
)

// AtEnd tells whether the format is made at the end of a run.
func (f Format) AtEnd() bool { return f == Folded || f == Pprof || f == HTML }

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case Text, JSON, CSV, Folded, Pprof, HTML:
		return f, nil
	}
	return "", fmt.Errorf("no output format %q: write text, json, csv, folded, pprof or html", name)
}

// show sets what is printed of the events of a program.
func (p *Printer) show(c Columns, program *Program) {
	p.columns, p.table = c, csvTable{columns: c.tableOf(program)}
	clear(p.objects)
	clear(p.lines)
}

// Printer writes events and what programs print. It writes once for each event or entry of a map; the caller buffers.
type Printer struct {
	w      io.Writer
	format Format
	boot   time.Time
	stacks *stackStore // nil if the program captures none
	// raw says that strings are written as they are: see present.go.
	raw  bool
	line []byte
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

// Event writes e.
func (p *Printer) Event(e *event.Event) error { return p.event(e.Probe, e) }

func (p *Printer) event(probe *event.Probe, e source) error {
	switch p.format {
	case CSV:
		return p.eventCSV(probe, e)
	case JSON:
		p.line = p.appendObject(append(p.line[:0], '{'), probe, p.objectOf(probe), e)
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

// Time writes t, of time().
func (p *Printer) Time(f *format, t time.Time) error { return p.text("time", appendTime(nil, f, t)) }

func (p *Printer) text(what string, b []byte) error {
	if p.format != JSON {
		_, err := p.w.Write(b)
		return err
	}
	p.line = appendJSONString(append(p.line[:0], `{"type":`...), what)
	p.line = appendJSONString(append(p.line, `,"text":`...), string(b))
	p.line = append(p.line, '}')
	return p.endLine()
}

// Value writes the value v of e, of print(e).
func (p *Printer) Value(e *expr, v any) error {
	v = p.presentable(e.typ, e.elems, v)
	if p.format != JSON {
		if text, ok := v.(string); ok && e.typ.Kind == event.String && own(e) {
			v = verbatim(text)
		}
		p.line = appendShown(p.line[:0], e.typ, e.elems, v)
		return p.endLine()
	}
	p.line = append(p.line[:0], `{"type":"value","value":`...)
	p.line = appendUnit(appendJSON(p.line, e.typ, e.elems, v), e.typ.Unit)
	p.line = append(p.line, '}')
	return p.endLine()
}

// appendShown appends what print writes: like appendValue, but a string has no quotes, as in bpftrace. What is absent is a dash.
func appendShown(b []byte, t event.Type, elems []event.Type, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, '-')
	case frames:
		return appendFrames(b, v)
	case []any:
		if t.Kind == tuple {
			return append(appendElements(append(b, '('), elems, v, ", ", appendShown), ')')
		}
		return append(appendElements(append(b, '['), elems, v, ",", appendShown), ']')
	case verbatim:
		return append(b, v...)
	case string:
		if t.Kind == event.String {
			return syntax.AppendVisible(b, v)
		}
	}
	return appendValue(b, t, v)
}

// appendElements appends the elements of a tuple, or of a list, whose type of elements is the last of elems for all others too.
func appendElements(b []byte, elems []event.Type, values []any, separator string,
	appendTo func(b []byte, t event.Type, elems []event.Type, v any) []byte) []byte {
	for i, v := range values {
		if i > 0 {
			b = append(b, separator...)
		}
		b = appendTo(b, elems[min(i, len(elems)-1)], nil, v)
	}
	return b
}

// appendValue appends a value as text for people.
func appendValue(b []byte, t event.Type, v any) []byte {
	if text, ok := v.(verbatim); ok {
		return append(b, text...)
	}
	switch t.Kind {
	case event.Bool:
		return strconv.AppendBool(b, v.(bool))
	case event.String:
		return appendWord(b, v.(string))
	case event.GID:
		return address(t, v.(string)).AppendTo(b)
	}
	n := to[int64](v)
	if t.Enum != nil {
		return appendName(b, t, v)
	}
	switch t.Unit {
	case event.Nanoseconds:
		return appendDuration(b, v)
	case event.Bytes:
		return appendSize(b, v)
	case event.Hex:
		return strconv.AppendUint(append(b, "0x"...), bits(t, v), 16)
	case event.Errno:
		if name := errnoNames().NameOf(-n); n < 0 && name != "" {
			return append(append(b, '-'), name...)
		}
	}
	return appendNumber(b, v)
}

// appendName appends the name of a value of an enum. A cgroup without one is its id, and no flags at all are 0.
func appendName(b []byte, t event.Type, v any) []byte {
	name := t.Enum.NameOf(to[int64](v))
	switch {
	case name != "":
		return syntax.AppendVisible(b, name)
	case t.Unit == event.Cgroup || t.Enum.Flags:
		return appendNumber(b, v)
	}
	return append(b, t.Enum.Unknown(bits(t, v))...)
}

func appendNumber(b []byte, v any) []byte {
	if i, ok := v.(int64); ok {
		return strconv.AppendInt(b, i, 10)
	}
	return strconv.AppendUint(b, v.(uint64), 10)
}

// bits of a number, no more than its field has.
func bits(t event.Type, v any) uint64 {
	n := to[uint64](v)
	if 0 < t.Size && t.Size < 8 {
		n &= 1<<(8*t.Size) - 1
	}
	return n
}

// address returns the GID, or the IP address, of 16 raw bytes.
func address(t event.Type, raw string) netip.Addr {
	a := netip.AddrFrom16([16]byte([]byte(raw)))
	if t.Unit == event.IP {
		return a.Unmap()
	}
	return a
}

// appendWord appends a string, in quotes if it would not read as one word.
func appendWord(b []byte, s string) []byte {
	if s != "" && s != "-" && syntax.IsVisible(s) && !strings.ContainsAny(s, `" `) {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// appendUnit appends the member of an object that tells the unit of its numbers.
func appendUnit(b []byte, u event.Unit) []byte {
	switch u {
	case event.Nanoseconds:
		return append(b, `,"unit":"ns"`...)
	case event.Bytes:
		return append(b, `,"unit":"bytes"`...)
	}
	return b
}

// appendJSON appends a value, a tuple or a list, for programs.
func appendJSON(b []byte, t event.Type, elems []event.Type, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case frames:
		return appendFramesJSON(b, v)
	case []any:
		return append(appendElements(append(b, '['), elems, v, ",", appendJSON), ']')
	}
	return appendJSONValue(b, t, v)
}

// appendJSONValue appends a value for programs: numbers as they are, but the names of enums, which no program could look up.
func appendJSONValue(b []byte, t event.Type, v any) []byte {
	switch t.Kind {
	case event.Bool:
		return strconv.AppendBool(b, v.(bool))
	case event.String:
		return appendJSONString(b, v.(string))
	case event.GID:
		return append(address(t, v.(string)).AppendTo(append(b, '"')), '"')
	}
	if t.Unit == event.Cgroup {
		return appendCgroup(b, t, v)
	}
	if t.Enum != nil {
		if name := t.Enum.NameOf(to[int64](v)); name != "" {
			return appendJSONString(b, name)
		}
	}
	return appendNumber(b, v)
}

// appendCgroup appends the id of a cgroup, which other programs may know it by, and its path; null if that is not known here.
func appendCgroup(b []byte, t event.Type, v any) []byte {
	b = append(appendNumber(append(b, `{"id":`...), v), `,"path":`...)
	if t.Enum == nil {
		return append(b, "null}"...)
	}
	if path := t.Enum.NameOf(to[int64](v)); path != "" {
		return append(appendJSONString(b, path), '}')
	}
	return append(b, "null}"...)
}

// appendJSONString appends s in quotes, with escapes for what a terminal would obey. Bytes that are no UTF-8 become U+FFFD, as JSON cannot
// hold them.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case !strconv.IsPrint(r):
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
