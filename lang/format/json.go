package format

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"trace/probes/event"
)

// AppendJSON appends a value, a tuple or a list, for programs.
func AppendJSON(b []byte, t event.Type, elems []event.Type, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case Frames:
		return appendFramesJSON(b, v)
	case Formed:
		return JSONStyle.Append(b, v.Form, len(v.Values), func(b []byte, i int) []byte { return AppendJSON(b, elems[i], nil, v.Values[i]) })
	case []any:
		return append(appendElements(append(b, '['), elems, v, ",", AppendJSON), ']')
	}
	return AppendJSONValue(b, t, v)
}

// AppendJSONValue appends a value for programs: numbers as they are, except enum values, whose names no program could look up.
func AppendJSONValue(b []byte, t event.Type, v any) []byte {
	switch t.Kind {
	case event.Bool:
		return strconv.AppendBool(b, v.(bool))
	case event.String:
		return AppendJSONString(b, v.(string))
	case event.GID:
		return append(Address(t, v.(string)).AppendTo(append(b, '"')), '"')
	}
	if t.Unit == event.Cgroup {
		return appendCgroup(b, t, v)
	}
	if t.Enum != nil {
		if name := t.Enum.NameOf(event.To[int64](v)); name != "" {
			return AppendJSONString(b, name)
		}
	}
	return AppendNumber(b, v)
}

// appendCgroup appends the id of a cgroup, which other programs may know, and its path; null if the path is unknown.
func appendCgroup(b []byte, t event.Type, v any) []byte {
	b = append(AppendNumber(append(b, `{"id":`...), v), `,"path":`...)
	if t.Enum == nil {
		return append(b, "null}"...)
	}
	if path := t.Enum.NameOf(event.To[int64](v)); path != "" {
		return append(AppendJSONString(b, path), '}')
	}
	return append(b, "null}"...)
}

// AppendJSONString appends s in quotes. It escapes what a terminal would interpret. Bytes that are not UTF-8 become U+FFFD, because
// JSON cannot hold them.
func AppendJSONString(b []byte, s string) []byte {
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

func appendFramesJSON(b []byte, all Frames) []byte {
	b = append(b, '[')
	for i, f := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendJSONString(b, f)
	}
	return append(b, ']')
}
