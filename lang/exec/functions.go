package exec

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/expr-lang/expr/builtin"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/probes/event"
)

// This file calls the functions on strings and lists. They are expr's own, except the ones in bytestring.go, and this file
// converts between expr's values and ours. An absent operand or element makes the result absent, and so does a failure like
// int("x").

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
	case "ksym":
		compute = func(sc *scope, x []any) any { return sc.machine.symbols.kernelName(event.To[uint64](x[0])) }
	case "kaddr":
		compute = func(sc *scope, x []any) any { return sc.machine.symbols.kernelAddress(x[0].(string)) }
	case "usym":
		compute = func(sc *scope, x []any) any { return sc.machine.symbols.userName(sc, x) }
	case "strftime":
		compute = func(sc *scope, x []any) any { return format.Strftime(x[0].(string), sc.sink.Clock(x[1])) }
	case "string":
		compute = func(_ *scope, x []any) any { return stringOf(e.Args[0].Type, x[0]) }
	case "ntop":
		compute = func(_ *scope, x []any) any { return ntop(e.Args, x) }
	case "macaddr":
		compute = func(_ *scope, x []any) any { return macaddr(event.To[uint64](x[0])) }
	case "strerror":
		compute = func(_ *scope, x []any) any { return format.ErrorText(event.To[int64](x[0])) }
	case "signal_name":
		compute = func(_ *scope, x []any) any { return format.SignalText(event.To[int64](x[0])) }
	case "syscall_name":
		compute = func(_ *scope, x []any) any { return callName(e.Args[0].Type.Enum, event.To[int64](x[0])) }
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

// callName returns the name of a system call.
func callName(calls *event.Enum, n int64) any {
	if name := calls.NameOf(n); name != "" {
		return name
	}
	return "Unknown syscall"
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
