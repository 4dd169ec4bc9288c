package exec

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/expr-lang/expr/builtin"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/probes/event"
)

// This file calls the functions on strings and lists. They are expr's own, except where expr treats a string as UTF-8: ours are
// byte strings, because the name of a process may hold any byte. This file also converts between expr's values and ours. An absent
// operand or element makes the result absent, and so does a failure like int("x").

// loops reports whether a function evaluates an operand for each element of a list. The VM runs such functions.
func loops(fn string) bool {
	i, ok := builtin.Index[fn]
	return ok && builtin.Builtins[i].Predicate
}

// library returns the function of a call that is not a loop.
func library(e *ir.Expr) func(*scope, []any) (any, error) {
	compute := func(_ *scope, x []any) any { return callExpr(e, x) }
	if f := onBytes(e); f != nil {
		compute = func(_ *scope, x []any) any { return f(x) }
	}
	switch e.Fn {
	case "len":
		if e.Args[0].Type.Kind == format.Stack {
			compute = func(sc *scope, x []any) any { return sc.machine.stacks.length(x[0].(uint64)) }
		}
	case "ksym":
		compute = func(sc *scope, x []any) any { return sc.machine.symbols.kernelName(event.To[uint64](x[0])) }
	case "kaddr":
		compute = func(sc *scope, x []any) any { return sc.machine.symbols.kernelAddress(x[0].(string)) }
	case "usym":
		compute = func(sc *scope, x []any) any {
			return sc.machine.symbols.userName(int(event.To[int64](x[1])), sc.Nsecs(), event.To[uint64](x[0]))
		}
	case "username":
		compute = func(_ *scope, x []any) any { return username(int(event.To[int64](x[0]))) }
	case "comm":
		compute = func(_ *scope, x []any) any { return commOf(int(event.To[int64](x[0]))) }
	case "strftime":
		compute = func(sc *scope, x []any) any { return format.Strftime(x[0].(string), sc.sink.Clock(x[1])) }
	case "string":
		compute = func(_ *scope, x []any) any { return stringOf(e.Args[0].Type, x[0]) }
	case "ntop":
		compute = func(_ *scope, x []any) any { return ntop(e.Args, x) }
	case "macaddr":
		compute = func(_ *scope, x []any) any { return macaddr(event.To[uint64](x[0])) }
	}
	if naming := ir.NamingOf(e.Type); naming != nil {
		compute = func(_ *scope, x []any) any { return naming.Of(event.To[int64](x[0])) }
	}
	return func(sc *scope, x []any) (any, error) {
		if slices.Contains(x, nil) {
			return nil, nil
		}
		return compute(sc, x), nil
	}
}

// callExpr calls a function of expr, which takes positions and counts as int.
func callExpr(e *ir.Expr, x []any) (result any) {
	defer func() {
		if recover() != nil { // expr panics if it rejects an operand
			result = nil
		}
	}()
	args := slices.Clone(x)
	for i, v := range args {
		switch v.(type) {
		case int64, uint64:
			args[i] = int(event.To[int64](v))
		}
	}
	f := builtin.Builtins[builtin.Index[e.Fn]]
	var err error
	switch {
	case f.Fast != nil:
		result = f.Fast(args[0])
	case f.Safe != nil:
		result, _, err = f.Safe(args...)
	default:
		result, err = f.Func(args...)
	}
	if err != nil {
		return nil
	}
	return fromExpr(e, result)
}

// ntop writes an address: a GID, an IP address, or the 32 bits of an IPv4 address as in memory. Its family may come before it.
func ntop(args []*ir.Expr, x []any) any {
	last := len(x) - 1
	if raw, ok := x[last].(string); ok {
		return format.Address(args[last].Type, raw).String()
	}
	n := event.To[uint64](x[last])
	if n > math.MaxUint32 {
		return nil
	}
	return netip.AddrFrom4([4]byte(binary.LittleEndian.AppendUint32(nil, uint32(n)))).String()
}

// macaddr writes the six bytes of an address as they are in memory.
func macaddr(n uint64) string {
	return net.HardwareAddr(binary.LittleEndian.AppendUint64(nil, n)[:6]).String()
}

// stringOf returns the text of a value as it is printed. It returns a string unchanged.
func stringOf(t event.Type, v any) string {
	if s, ok := v.(string); ok && t.Kind != event.GID {
		return s
	}
	if t.Unit == event.Cgroup && t.Enum != nil { // unescaped: the printer escapes it
		if path := t.Enum.NameOf(event.To[int64](v)); path != "" {
			return path
		}
	}
	return string(format.AppendValue(nil, t, v))
}

// fromExpr converts the result of a function or loop of expr to one of our values.
func fromExpr(e *ir.Expr, v any) any {
	switch v := v.(type) {
	case int:
		return ir.As(e.Type.Kind, int64(v))
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return list
	case []any:
		if slices.Contains(v, nil) {
			return nil
		}
	}
	return v
}

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
	case "repeat":
		return repeatBytes
	case "join":
		return func(x []any) any { return joinBytes(e, x) }
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

// fits reports whether a string may be as long as count parts of size bytes. A program could double one again and again, so a
// longer one is absent.
func fits(count, size int) bool { return size == 0 || count <= ir.MaxString/size }

// repeatBytes repeats a string. It is absent for a negative number.
func repeatBytes(x []any) any {
	s, n := x[0].(string), event.To[int64](x[1])
	if n < 0 || n > math.MaxInt32 || !fits(int(n), len(s)) {
		return nil
	}
	return strings.Repeat(s, int(n))
}

// joinBytes joins the elements of a list.
func joinBytes(e *ir.Expr, x []any) any {
	size := 0
	for i, part := range x[0].([]any) {
		if s, is := part.(string); is {
			size += len(s)
		}
		if i > 0 && len(x) > 1 {
			size += len(x[1].(string))
		}
		if !fits(1, size) {
			return nil
		}
	}
	return callExpr(e, x)
}

// replaceBytes replaces at most so many parts of a string. If the old part is empty, the new string comes before each byte and after the last one.
func replaceBytes(e *ir.Expr, x []any) any {
	s, old, with := x[0].(string), x[1].(string), x[2].(string)
	parts := len(s) + 1
	if old != "" {
		parts = strings.Count(s, old)
	}
	if len(x) > 3 {
		if n := event.To[int64](x[3]); n >= 0 && n < int64(parts) {
			parts = int(n)
		}
	}
	if !fits(parts, len(with)) || !fits(1, len(s)+parts*(len(with)-len(old))) {
		return nil
	}
	if old != "" {
		return strings.Replace(s, old, with, parts)
	}
	var b strings.Builder
	for i := range parts {
		b.WriteString(with)
		b.WriteString(s[i:min(i+1, len(s))])
	}
	b.WriteString(s[min(parts, len(s)):])
	return b.String()
}
