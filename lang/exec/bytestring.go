package exec

import (
	"strings"

	"trace/lang/ir"
	"trace/probes/event"
)

// This file holds the functions for which expr treats a string as UTF-8. Ours are byte strings: the name of a process may hold any
// byte.

// onBytes returns the implementation of a function on byte strings, or nil if expr's own function works on bytes.
func onBytes(e *ir.Expr) func(x []any) any {
	switch e.Fn {
	case "len":
		return func(x []any) any { return lenBytes(e, x) }
	case "upper":
		return eachByte('a', 'z')
	case "lower":
		return eachByte('A', 'Z')
	case "trim":
		return trimBytes
	case "split":
		return func(x []any) any { return splitBytes(e, x) }
	case "replace":
		return func(x []any) any { return replaceBytes(e, x) }
	case "buf":
		return firstBytes
	case "memcmp":
		return compareBytes
	}
	return nil
}

// firstBytes returns the first n bytes of a string.
func firstBytes(x []any) any {
	s := x[0].(string)
	if len(x) > 1 {
		s = s[:min(uint64(len(s)), event.To[uint64](x[1]))]
	}
	return s
}

// compareBytes returns the difference of the first bytes that differ among the first n. A string ends with zeros.
func compareBytes(x []any) any {
	a, b, n := x[0].(string), x[1].(string), event.To[uint64](x[2])
	at := func(s string, i uint64) int64 {
		if i < uint64(len(s)) {
			return int64(s[i])
		}
		return 0
	}
	for i := range min(n, uint64(max(len(a), len(b)))) {
		if d := at(a, i) - at(b, i); d != 0 {
			return d
		}
	}
	return int64(0)
}

func lenBytes(e *ir.Expr, x []any) any {
	if s, ok := x[0].(string); ok {
		return ir.As(e.Type.Kind, int64(len(s)))
	}
	return callExpr(e, x) // of a list
}

// eachByte changes the case of ASCII letters.
func eachByte(first, last byte) func(x []any) any {
	return func(x []any) any {
		b := []byte(x[0].(string))
		for i, c := range b {
			if first <= c && c <= last {
				b[i] = c ^ ('a' ^ 'A')
			}
		}
		return string(b)
	}
}

// trimBytes trims ASCII white space, or the bytes of another string, from both ends.
func trimBytes(x []any) any {
	s, cut := x[0].(string), " \t\n\v\f\r"
	if len(x) > 1 {
		cut = x[1].(string)
	}
	for s != "" && strings.IndexByte(cut, s[0]) >= 0 {
		s = s[1:]
	}
	for s != "" && strings.IndexByte(cut, s[len(s)-1]) >= 0 {
		s = s[:len(s)-1]
	}
	return s
}

// splitBytes makes a list of single bytes if the separator is empty.
func splitBytes(e *ir.Expr, x []any) any {
	s, separator := x[0].(string), x[1].(string)
	if separator != "" {
		return callExpr(e, x)
	}
	most := len(s)
	if len(x) > 2 {
		if n := event.To[int64](x[2]); n >= 0 && n < int64(most) {
			most = int(n)
		}
	}
	list := make([]any, most)
	for i := range list {
		list[i] = s[i : i+1]
		if i == most-1 {
			list[i] = s[i:]
		}
	}
	return list
}

// replaceBytes inserts the new string before each byte and after the last one if the old string is empty.
func replaceBytes(e *ir.Expr, x []any) any {
	s, old, with := x[0].(string), x[1].(string), x[2].(string)
	if old != "" {
		return callExpr(e, x)
	}
	most := len(s) + 1
	if len(x) > 3 {
		if n := event.To[int64](x[3]); n >= 0 && n < int64(most) {
			most = int(n)
		}
	}
	var b strings.Builder
	for i := range most {
		b.WriteString(with)
		b.WriteString(s[i:min(i+1, len(s))])
	}
	b.WriteString(s[min(most, len(s)):])
	return b.String()
}
