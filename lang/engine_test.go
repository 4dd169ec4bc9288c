package lang

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/probes/event"
)

// Trees by hand, for what the typed tree has and no program can make it have in one place.

// lit is a literal of a Go value; a []any is a list, nil is an absent field.
func lit(v any) *expr {
	switch v := v.(type) {
	case *expr:
		return v
	case nil:
		return &expr{op: opField, field: field("absent", u64), typ: u64, optional: true}
	case int:
		if v < 0 {
			return &expr{op: opLit, val: int64(v), typ: s64}
		}
		return &expr{op: opLit, val: uint64(v), typ: u64}
	case bool:
		return &expr{op: opLit, val: v, typ: boolean}
	case string:
		return &expr{op: opLit, val: v, typ: text}
	case []any:
		return &expr{op: opList, args: lits(v...)}
	}
	panic(v)
}

func lits(values ...any) []*expr {
	var out []*expr
	for _, v := range values {
		out = append(out, lit(v))
	}
	return out
}

// typed is a literal of a type.
func typed(t event.Type, v any) *expr {
	e := lit(v)
	e.typ = t
	return e
}

func node(op string, typ event.Type, args ...any) *expr {
	return &expr{op: op, typ: typ, args: lits(args...)}
}

func call(fn string, typ event.Type, args ...any) *expr {
	return &expr{op: opCall, fn: fn, typ: typ, args: lits(args...)}
}

// evaluate computes e in a scope, and once more to see that it leaves nothing behind.
func evaluate(t *testing.T, e *expr, sc *scope) any {
	t.Helper()
	v, err := newEvaluator(e)
	if err != nil {
		t.Fatal(err)
	}
	first, err := v.eval(sc)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := v.eval(sc); err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("got %v, and then %v, %v", first, second, err)
	}
	return first
}

func TestFunctions(t *testing.T) {
	element := func() *expr { return &expr{op: opElement, typ: u64} }
	above := func(n any) *expr { return node(">", boolean, element(), n) }
	list := func(v ...any) []any { return append([]any{}, v...) }
	for _, test := range []struct {
		e    *expr
		want any
	}{
		// strings
		{call("len", u64, "añ"), uint64(3)},
		{call("upper", text, "b\xffñ"), "B\xffñ"},
		{call("lower", text, "B\xff\xfeÑ"), "b\xff\xfeÑ"},
		{call("trim", text, "\u00a0 x\u00a0\n"), "\u00a0 x\u00a0"},
		{call("trim", text, "\xff\xfex\xfe", "\xfe\xff"), "x"},
		{call("split", text, "ñ\xff", ""), list("\xc3", "\xb1", "\xff")},
		{call("split", text, "añ", "", 2), list("a", "ñ")},
		{call("split", text, "añ", "", 0), list()},
		{call("split", text, "a\xffb", "\xff"), list("a", "b")},
		{call("replace", text, "ñ", "", "-"), "-\xc3-\xb1-"},
		{call("replace", text, "ñ", "", "-", 2), "-\xc3-\xb1"},
		{call("replace", text, "a\xff", "\xff", "b"), "ab"},
		{call("repeat", text, "\xff", 2), "\xff\xff"},
		{call("join", text, list("\xff", "a"), "\xfe"), "\xff\xfea"},
		{call("indexOf", s64, "hé\xff!", "!"), int64(4)},
		{call("lastIndexOf", s64, "\xffé\xff", "\xff"), int64(3)},
		{call("trim", text, "  x "), "x"},
		{call("trim", text, "--x-", "-"), "x"},
		{call("trimPrefix", text, "nvme0", "nvme"), "0"},
		{call("trimSuffix", text, "nvme0", "0"), "nvme"},
		{call("upper", text, "fio"), "FIO"},
		{call("lower", text, "FIO"), "fio"},
		{call("split", text, "a/b/c", "/"), list("a", "b", "c")},
		{call("split", text, "a/b/c", "/", 2), list("a", "b/c")},
		{call("replace", text, "aaa", "a", "b"), "bbb"},
		{call("replace", text, "aaa", "a", "b", 1), "baa"},
		{call("repeat", text, "ab", 2), "abab"},
		{call("repeat", text, "ab", 1<<40), nil},
		{call("repeat", text, "ab", -1), nil},
		{call("join", text, list("a", "b"), "-"), "a-b"},
		{call("join", text, list("a", "b")), "ab"},
		{call("join", text, call("split", text, "a/b", "/"), "+"), "a+b"},
		{call("indexOf", s64, "abc", "c"), int64(2)},
		{call("indexOf", s64, "abc", "x"), int64(-1)},
		{call("lastIndexOf", s64, "abca", "a"), int64(3)},
		{call("hasPrefix", boolean, "abc", "ab"), true},
		{call("hasSuffix", boolean, "abc", "ab"), false},
		{call("int", s64, "-12"), int64(-12)},
		{call("int", s64, "x"), nil},
		{call("string", text, 12), "12"},
		{call("string", text, node("-", u64, 0, 1)), "18446744073709551615"},
		{call("string", text, true), "true"},
		{call("string", text, typed(ns, 5_000_000)), "5ms"},
		{call("string", text, typed(size, 4096)), "4KiB"},
		{call("string", text, typed(hex, 255)), "0xff"},
		{call("string", text, "a\n"), "a\n"},
		{call("string", text, typed(opcode, 99)), "unknown(0x63)"},
		{call("string", text, typed(qpState, 2)), "RTR"},
		{call("string", text, typed(errno, -22)), "-EINVAL"},
		{call("string", text, typed(gid, addresses["fe80::1"])), "fe80::1"},
		{call("ntop", text, addresses["fe80::1"]), "fe80::1"},
		{call("ntop", text, 0x0100000a), "10.0.0.1"},
		{call("ntop", text, 1<<32), nil},

		// lists
		{call("len", u64, list(1, 2)), uint64(2)},
		{call("len", u64, list()), uint64(0)},
		{call("first", u64, list(1, 2)), uint64(1)},
		{call("first", u64, list()), nil},
		{call("last", text, call("split", text, "a/b", "/")), "b"},

		// predicates
		{call("all", boolean, list(1, 2), above(0)), true},
		{call("all", boolean, list(1, 2), above(1)), false},
		{call("none", boolean, list(1, 2), above(2)), true},
		{call("any", boolean, list(1, 2), above(1)), true},
		{call("any", boolean, list(), above(1)), false},
		{call("one", boolean, list(1, 2), above(1)), true},
		{call("one", boolean, list(1, 2), above(0)), false},
		{call("filter", u64, list(1, 2, 3), above(1)), list(uint64(2), uint64(3))},
		{call("map", u64, list(1, 2), node("+", u64, element(), 1)), list(uint64(2), uint64(3))},
		{call("map", boolean, list(1, 2), above(1)), list(false, true)},
		{call("any", boolean, call("split", text, "a,b", ","), node("==", boolean, &expr{op: opElement, typ: text}, "b")), true},
		// one loop in another, with a choice in it
		{call("filter", u64, list(1, 2, 3), node("&&", boolean,
			call("any", boolean, list(2, 3), node("==", boolean, element(), 2)), above(2))), list(uint64(3))},
		{call("filter", u64, call("map", u64, list(1, 2), node("*", u64, element(), 2)), above(2)), list(uint64(4))},

		// absent operands, elements and predicates
		{call("upper", text, nil), nil},
		{call("replace", text, "a", nil, "b"), nil},
		{call("join", text, list("a", nil)), nil},
		{call("len", u64, list(nil)), nil},
		{call("any", boolean, list(1, nil), above(0)), nil},
		{call("any", boolean, list(1), above(nil)), false},
		{call("all", boolean, list(1), above(nil)), false},
		{call("filter", u64, list(1), above(nil)), list()},
		{call("map", u64, list(1), node("+", u64, element(), nil)), nil},
		{call("first", u64, call("map", u64, list(1), node("??", u64, nil, element()))), uint64(1)},
	} {
		got := evaluate(t, test.e, &scope{event: table{}})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s%v: got %T %[3]v, want %v", test.e.fn, describeArgs(test.e), got, test.want)
		}
	}
}

func describeArgs(e *expr) []any {
	var out []any
	for _, a := range e.args {
		if a.op == opLit {
			out = append(out, a.val)
		} else {
			out = append(out, a.op)
		}
	}
	return out
}

// TestOperators checks the operators that predicates of the old kind did not have; value_test.go has the others.
func TestOperators(t *testing.T) {
	u16, s16 := event.Type{Kind: event.Uint, Size: 2}, event.Type{Kind: event.Int, Size: 2}
	cast := func(bits int, typ event.Type, x any) *expr {
		return &expr{op: opCast, index: bits, typ: typ, args: lits(x)}
	}
	pair := func(a, b any) *expr { return node(opTuple, event.Type{Kind: format.Tuple}, a, b) }
	member := func(i int, of *expr) *expr { return &expr{op: opMember, index: i, typ: u64, args: []*expr{of}} }
	for i, test := range []struct {
		e    *expr
		want any
	}{
		{cast(16, u16, 0x12345), uint64(0x2345)},
		{cast(16, u16, -1), uint64(0xffff)},
		{cast(16, s16, 0xffff), int64(-1)},
		{cast(16, s16, 0x7fff), int64(0x7fff)},
		{cast(64, s64, node("-", u64, 0, 1)), int64(-1)},
		{cast(64, u64, -1), uint64(1<<64 - 1)},
		{cast(1, u64, 3), uint64(1)},
		{cast(16, u16, nil), nil},
		{cast(8, u64, true), uint64(1)},

		{pair(1, nil), []any{uint64(1), nil}},
		{member(0, pair(1, "x")), uint64(1)},
		{member(1, pair(1, "x")), "x"},
		{member(1, pair(1, nil)), nil},
		{node("==", boolean, pair(1, "x"), pair(1, "x")), true},
		{node("==", boolean, pair(1, "x"), pair(1, "y")), false},
		{node("!=", boolean, pair(1, "x"), pair(1, "y")), true},
		{node("==", boolean, pair(nil, "x"), pair(1, "x")), nil},
		{node("!=", boolean, pair(nil, "x"), pair(1, "x")), nil},
		{node("==", boolean, pair(nil, "x"), pair(1, "y")), false},
		{node("in", boolean, pair(1, "x"), pair(2, "x"), pair(1, "x")), true},
		{node("in", boolean, pair(1, "x"), pair(2, nil), pair(1, nil)), nil},
		{node(opAbsent, boolean, pair(nil, nil)), false},
		{node(opCond, u64, true, pair(1, 2), pair(3, 4)), []any{uint64(1), uint64(2)}},
	} {
		if got := evaluate(t, test.e, &scope{event: table{}}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d, %s: got %T %[3]v, want %v", i, test.e.op, got, test.want)
		}
	}
}

// slots is an event with values that the kernel has computed.
type slots struct {
	table
	values []any
}

func (s slots) Value(i int) (any, bool) { return s.values[i], s.values[i] != nil }

// TestScope checks what expressions read besides the fields of the event.
func TestScope(t *testing.T) {
	v := &variable{name: "v", index: 1, typ: u64}
	counts := &mapInfo{name: "@n", key: columns(u64), agg: &agg.Agg{Func: agg.Count{}}, value: columns(u64)}
	last := &mapInfo{name: "@last", key: columns(u64), value: columns(text)}
	m := &machine{now: func() uint64 { return 1100 }, started: 1000, stores: map[*mapInfo]mapStore{}}
	for _, info := range []*mapInfo{counts, last} {
		m.stores[info] = newUserStore(info, 10)
	}
	m.stores[counts].update([]any{uint64(7)}, 1, false)
	m.stores[counts].update([]any{nil}, 1, false)
	m.stores[last].set([]any{uint64(7)}, []any{"x"})
	read := func(op string, info *mapInfo, typ event.Type, key ...any) *expr {
		return &expr{op: op, m: info, typ: typ, args: lits(key...)}
	}
	sc := &scope{
		machine: m, vars: []any{nil, uint64(5)},
		event: slots{table{"nsecs": uint64(1010)}, []any{nil, uint64(9)}},
	}
	for i, test := range []struct {
		e    *expr
		want any
	}{
		{&expr{op: opVar, variable: v}, uint64(5)},
		{node("+", u64, &expr{op: opVar, variable: v}, 1), uint64(6)},
		{&expr{op: opNow}, uint64(1100)},
		{&expr{op: opElapsed}, uint64(100)},
		{&expr{op: opElapsed, field: field("nsecs", u64)}, uint64(10)},
		{&expr{op: opSlot, index: 0}, nil},
		{&expr{op: opSlot, index: 1}, uint64(9)},
		{read(opLookup, counts, u64, 7), uint64(1)},
		{read(opLookup, counts, s64, 7), int64(1)},
		{read(opLookup, counts, u64, 8), uint64(0)},
		{read(opLookup, counts, u64, nil), uint64(1)},
		{read(opLookup, last, text, 7), "x"},
		{read(opLookup, last, text, 8), ""},
		{read(opHasKey, counts, boolean, 7), true},
		{read(opHasKey, last, boolean, 8), false},
		{read(opLen, counts, u64), uint64(2)},
		{node(">", boolean, read(opLookup, counts, u64, node("+", u64, 6, 1)), 0), true},
		{read(opLookup, last, text, read(opLookup, counts, u64, 7)), ""},
	} {
		if got := evaluate(t, test.e, sc); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d, %s: got %T %[3]v, want %v", i, test.e.op, got, test.want)
		}
	}
	gidMap := &mapInfo{key: columns(u64), value: columns(gid)}
	m.stores[gidMap] = newUserStore(gidMap, 1)
	if got := evaluate(t, read(opLookup, gidMap, gid, 1), sc); got != strings.Repeat("\x00", 16) {
		t.Errorf("an address that was never set is %q", got)
	}
}

// broken is a map that cannot be read.
type broken struct{ mapStore }

var errBroken = errors.New("the map is broken")

func (broken) lookup([]any) ([]any, bool, error) { return nil, false, errBroken }

// TestFailure checks that the error of a map comes out as it is.
func TestFailure(t *testing.T) {
	info := &mapInfo{value: columns(u64)}
	sc := &scope{machine: &machine{stores: map[*mapInfo]mapStore{info: broken{}}}}
	for _, e := range []*expr{
		{op: opLookup, m: info, typ: u64},
		node("+", u64, &expr{op: opLookup, m: info, typ: u64}, 1),
		node(opAbsent, boolean, &expr{op: opHasKey, m: info, typ: boolean}),
	} {
		v, err := newEvaluator(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.eval(sc); got != nil || err != errBroken {
			t.Errorf("%s: got %v, %v", e.op, got, err)
		}
	}
}
