package format

import (
	"net/netip"
	"strconv"
	"strings"

	"trace/lang/syntax"
	"trace/probes/event"
)

// Kinds of values that are not fields.
const (
	Tuple event.Kind = 100 + iota // has elements, each with a type of its own
	Array                         // has elements of one type
	Stack                         // the frames of a stack, held as the number of the stack, a uint64
)

// How a stack is written: its unit. Without one a frame is the name of a function and an offset.
const (
	PerfFrames event.Unit = 110 + iota // like perf: the address and the name
	RawFrames                          // the address
)

// Frames are the frames of a stack as they are printed, innermost first.
type Frames []string

// Verbatim is text that is written as it is.
type Verbatim string

// VisibleLine escapes what a terminal could not show or would interpret.
func VisibleLine(s string) string {
	if syntax.IsVisible(s) {
		return s
	}
	return string(syntax.AppendVisible(nil, s))
}

// Visible escapes the same in a text of several lines, and keeps newlines and tabs.
func Visible(s string) string { return syntax.Visible(s) }

// Append appends a value as print writes it: like AppendValue, but strings have no quotes, as in bpftrace. An absent value is a
// dash.
func Append(b []byte, t event.Type, elems []event.Type, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, '-')
	case Frames:
		return appendFrames(b, t.Unit, v)
	case Formed:
		return TextStyle.Append(b, v.Form, len(v.Values), func(b []byte, i int) []byte { return Append(b, elems[i], nil, v.Values[i]) })
	case []any:
		if t.Kind == Tuple {
			return append(appendElements(append(b, '('), elems, v, ", ", Append), ')')
		}
		return append(appendElements(append(b, '['), elems, v, ",", Append), ']')
	case Verbatim:
		return append(b, v...)
	case string:
		if t.Kind == event.String {
			return syntax.AppendVisible(b, v)
		}
	}
	return AppendValue(b, t, v)
}

// appendElements appends the elements of a tuple or of a list. The last type in elems is the type of all further elements.
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

// AppendValue appends a value as text for people.
func AppendValue(b []byte, t event.Type, v any) []byte {
	if text, ok := v.(Verbatim); ok {
		return append(b, text...)
	}
	switch t.Kind {
	case event.Bool:
		return strconv.AppendBool(b, v.(bool))
	case event.String:
		return AppendWord(b, v.(string))
	case event.GID:
		return Address(t, v.(string)).AppendTo(b)
	}
	n := event.To[int64](v)
	if t.Enum != nil {
		return appendName(b, t, v)
	}
	switch t.Unit {
	case event.Nanoseconds:
		return AppendDuration(b, v)
	case event.Bytes:
		return AppendSize(b, v)
	case event.Hex:
		return strconv.AppendUint(append(b, "0x"...), Bits(t, v), 16)
	case event.Errno:
		if name := event.ErrnoNames().NameOf(-n); n < 0 && name != "" {
			return append(append(b, '-'), name...)
		}
	}
	return AppendNumber(b, v)
}

// appendName appends the name of a value of an enum. A cgroup without a name is its id. No flags at all are 0.
func appendName(b []byte, t event.Type, v any) []byte {
	name := t.Enum.NameOf(event.To[int64](v))
	switch {
	case name != "":
		return syntax.AppendVisible(b, name)
	case t.Unit == event.Cgroup || t.Enum.Flags:
		return AppendNumber(b, v)
	}
	return append(b, t.Enum.Unknown(Bits(t, v))...)
}

// AppendNumber appends a number without unit and name.
func AppendNumber(b []byte, v any) []byte {
	if i, ok := v.(int64); ok {
		return strconv.AppendInt(b, i, 10)
	}
	return strconv.AppendUint(b, v.(uint64), 10)
}

// Bits returns the bits of a number, no more than its field has.
func Bits(t event.Type, v any) uint64 {
	n := event.To[uint64](v)
	if 0 < t.Size && t.Size < 8 {
		n &= 1<<(8*t.Size) - 1
	}
	return n
}

// Address returns the GID, or the IP address, of 16 raw bytes.
func Address(t event.Type, raw string) netip.Addr {
	a := netip.AddrFrom16([16]byte([]byte(raw)))
	if t.Unit == event.IP {
		return a.Unmap()
	}
	return a
}

// AppendWord appends a string. It adds quotes unless the string reads as one word.
func AppendWord(b []byte, s string) []byte {
	if s != "" && s != "-" && syntax.IsVisible(s) && !strings.ContainsAny(s, `" `) {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// appendFrames appends frames like bpftrace: each on a line of its own, after the current line.
func appendFrames(b []byte, how event.Unit, all Frames) []byte {
	b = append(b, '\n')
	for _, f := range all {
		switch how {
		case PerfFrames:
			b = append(b, '\t')
		case RawFrames:
		default:
			b = append(b, "        "...)
		}
		b = append(append(b, f...), '\n')
	}
	return b
}

// SortOf names the sort of a value. Values of the same sort can be compared.
func SortOf(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "a boolean"
	case event.String:
		return "a string"
	case event.GID:
		return "an address"
	case Tuple:
		return "a tuple"
	case Array:
		return "a list"
	case Stack:
		return "a stack"
	}
	return "a number"
}
