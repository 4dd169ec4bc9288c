package lang

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trace/probes"
)

// Format is how events are written.
type Format string

const (
	// Text is one readable line for each event: enums as names, durations as 1.2ms, sizes as 4KiB, GIDs as addresses.
	Text Format = "text"
	// JSON is one object in a line for each event, with plain numbers for durations and sizes.
	JSON Format = "json"
)

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case Text, JSON:
		return f, nil
	}
	return "", fmt.Errorf("no output format %q: write text or json", name)
}

// Printer writes events. It writes once for each event; the caller buffers.
type Printer struct {
	w      io.Writer
	format Format
	boot   time.Time
	line   []byte
	// objects are the JSON objects of the events seen so far.
	objects map[*probes.Probe][]member
}

// NewPrinter returns a printer that writes to w. Events tell their time since the boot of the machine; boot is when that
// was, and its location the time zone of the output.
func NewPrinter(w io.Writer, format Format, boot time.Time) *Printer {
	return &Printer{w: w, format: format, boot: boot, objects: map[*probes.Probe][]member{}}
}

// Event writes e.
func (p *Printer) Event(e *probes.Event) error { return p.event(e.Probe, e) }

func (p *Printer) event(probe *probes.Probe, e event) error {
	if p.format == JSON {
		object, ok := p.objects[probe]
		if !ok {
			object = members(probe.Fields)
			p.objects[probe] = object
		}
		p.line = p.appendObject(append(p.line[:0], `{"probe":`...), probe, object, e)
	} else {
		p.line = p.appendText(p.line[:0], probe, e)
	}
	p.line = append(p.line, '\n')
	_, err := p.w.Write(p.line)
	return err
}

// appendText appends `time probe comm/pid name=value …`. Of the common fields, only those that tell who and when are in it.
func (p *Printer) appendText(b []byte, probe *probes.Probe, e event) []byte {
	common := func(name string) (v any, ok bool) {
		if f := probe.Field(name); f != nil {
			return e.Get(f)
		}
		return nil, false
	}
	if nsecs, ok := common("nsecs"); ok {
		b = p.time(nsecs).AppendFormat(b, "15:04:05.000000")
	} else {
		b = append(b, '-')
	}
	b = append(append(b, ' '), probe.String()...)
	b = append(b, ' ')
	if comm, ok := common("comm"); ok {
		b = appendWord(b, comm.(string))
	} else {
		b = append(b, '-')
	}
	b = append(b, '/')
	if pid, ok := common("pid"); ok {
		b = appendNumber(b, pid)
	} else {
		b = append(b, '-')
	}
	for _, f := range probe.Fields {
		if f.Common {
			continue
		}
		b = append(append(append(b, ' '), f.Name...), '=')
		if v, ok := e.Get(f); ok {
			b = appendValue(b, f.Type, v)
		} else {
			b = append(b, '-')
		}
	}
	return b
}

func (p *Printer) time(nsecs any) time.Time { return p.boot.Add(time.Duration(to[int64](nsecs))) }

// appendValue appends a value as text for people.
func appendValue(b []byte, t probes.Type, v any) []byte {
	switch t.Kind {
	case probes.Bool:
		return strconv.AppendBool(b, v.(bool))
	case probes.String:
		return appendWord(b, v.(string))
	case probes.GID:
		return address(v.(string)).AppendTo(b)
	}
	n := to[int64](v)
	if t.Enum != nil {
		if name := t.Enum.NameOf(n); name != "" {
			return append(b, name...)
		}
	}
	switch t.Unit {
	case probes.Nanoseconds:
		return appendDuration(b, v)
	case probes.Bytes:
		return appendSize(b, v)
	case probes.Hex:
		return strconv.AppendUint(append(b, "0x"...), bits(t, v), 16)
	case probes.Errno:
		if name := errnoNames().NameOf(-n); n < 0 && name != "" {
			return append(append(b, '-'), name...)
		}
	}
	return appendNumber(b, v)
}

func appendNumber(b []byte, v any) []byte {
	if i, ok := v.(int64); ok {
		return strconv.AppendInt(b, i, 10)
	}
	return strconv.AppendUint(b, v.(uint64), 10)
}

// bits of a number, no more than its field has.
func bits(t probes.Type, v any) uint64 {
	n := to[uint64](v)
	if t.Size < 8 {
		n &= 1<<(8*t.Size) - 1
	}
	return n
}

// address returns the GID of 16 raw bytes.
func address(raw string) netip.Addr { return netip.AddrFrom16([16]byte([]byte(raw))) }

// appendWord appends a string, in quotes if it would not read as one word.
func appendWord(b []byte, s string) []byte {
	plain := s != "" && s != "-" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '"' || r == ' ' || !strconv.IsPrint(r)
	})
	if plain {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// appendSign appends the sign of a number and returns its size.
func appendSign(b []byte, v any) ([]byte, uint64) {
	if i, ok := v.(int64); ok && i < 0 {
		return append(b, '-'), -uint64(i)
	}
	return b, to[uint64](v)
}

// appendDuration appends nanoseconds with three digits: 850ns 12.3us 1.2ms 3.05s. Seconds keep all digits before the point.
func appendDuration(b []byte, v any) []byte {
	b, n := appendSign(b, v)
	unit, name := uint64(1), "ns"
	for _, next := range []string{"us", "ms", "s"} {
		// 999.5us and more round to 1ms.
		if n < unit*1000-unit/2 {
			break
		}
		unit, name = unit*1000, next
	}
	number := float64(n) / float64(unit)
	decimals := 0
	switch {
	case number < 10:
		decimals = 2
	case number < 100:
		decimals = 1
	}
	digits := strconv.FormatFloat(number, 'f', decimals, 64)
	if decimals > 0 {
		digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	return append(append(b, digits...), name...)
}

// appendSize appends bytes, in a binary unit if that is exact: 4KiB, but 1500B.
func appendSize(b []byte, v any) []byte {
	b, n := appendSign(b, v)
	name := "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, name = n/1024, next
	}
	return append(strconv.AppendUint(b, n, 10), name...)
}

// member is a member of a JSON object: a field, or an object of the fields whose names begin with its name and a dot.
type member struct {
	name    string
	field   *probes.Field // nil for an object
	members []member
}

// members makes an object of the fields, in their order: qp.num and qp.state are members of one object, qp.
func members(fields []*probes.Field) []member {
	var object []member
	for _, f := range fields {
		object = insert(object, f.Name, f)
	}
	return object
}

func insert(object []member, name string, f *probes.Field) []member {
	head, rest, nested := strings.Cut(name, ".")
	if !nested {
		return append(object, member{name: name, field: f})
	}
	i := slices.IndexFunc(object, func(m member) bool { return m.name == head && m.field == nil })
	if i < 0 {
		i = len(object)
		object = append(object, member{name: head})
	}
	object[i].members = insert(object[i].members, rest, f)
	return object
}

// appendObject appends the name of the probe and the members, and closes the object. The time of day comes after nsecs,
// which it is computed from.
func (p *Printer) appendObject(b []byte, probe *probes.Probe, object []member, e event) []byte {
	b = appendJSONString(b, probe.String())
	for _, m := range object {
		b = p.appendMember(append(b, ','), m, e)
		if m.name != "nsecs" || m.field == nil {
			continue
		}
		b = append(b, `,"time":`...)
		if nsecs, ok := e.Get(m.field); ok {
			b = append(p.time(nsecs).AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

func (p *Printer) appendMember(b []byte, m member, e event) []byte {
	b = append(appendJSONString(b, m.name), ':')
	if m.field != nil {
		v, ok := e.Get(m.field)
		if !ok {
			return append(b, "null"...)
		}
		return appendJSONValue(b, m.field.Type, v)
	}
	sep := byte('{')
	for _, inner := range m.members {
		b = p.appendMember(append(b, sep), inner, e)
		sep = ','
	}
	return append(b, '}')
}

// appendJSONValue appends a value for programs: numbers as they are, but the names of enums, which no program could look up.
func appendJSONValue(b []byte, t probes.Type, v any) []byte {
	switch t.Kind {
	case probes.Bool:
		return strconv.AppendBool(b, v.(bool))
	case probes.String:
		return appendJSONString(b, v.(string))
	case probes.GID:
		return append(address(v.(string)).AppendTo(append(b, '"')), '"')
	}
	if t.Enum != nil {
		if name := t.Enum.NameOf(to[int64](v)); name != "" {
			return appendJSONString(b, name)
		}
	}
	return appendNumber(b, v)
}

// appendJSONString appends s in quotes. Bytes that are no UTF-8 become U+FFFD, as JSON cannot hold them.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
