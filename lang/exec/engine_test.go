package exec

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/probes/event"
)

// Trees built by hand, for combinations that no program has in one place.

// lit is a literal of a Go value; a []any is a list, nil is an absent field.
func lit(v any) *ir.Expr {
	switch v := v.(type) {
	case *ir.Expr:
		return v
	case nil:
		return &ir.Expr{Op: ir.OpField, Field: langtest.Field("absent", langtest.U64), Type: langtest.U64, Optional: true}
	case int:
		if v < 0 {
			return &ir.Expr{Op: ir.OpLit, Val: int64(v), Type: langtest.S64}
		}
		return &ir.Expr{Op: ir.OpLit, Val: uint64(v), Type: langtest.U64}
	case bool:
		return &ir.Expr{Op: ir.OpLit, Val: v, Type: ir.Boolean}
	case string:
		return &ir.Expr{Op: ir.OpLit, Val: v, Type: ir.Text}
	case []any:
		return &ir.Expr{Op: ir.OpList, Args: lits(v...)}
	}
	panic(v)
}

func lits(values ...any) []*ir.Expr {
	var out []*ir.Expr
	for _, v := range values {
		out = append(out, lit(v))
	}
	return out
}

// typed is a literal of a type.
func typed(t event.Type, v any) *ir.Expr {
	e := lit(v)
	e.Type = t
	return e
}

func node(op ir.Op, typ event.Type, args ...any) *ir.Expr {
	return &ir.Expr{Op: op, Type: typ, Args: lits(args...)}
}

func call(fn string, typ event.Type, args ...any) *ir.Expr {
	return &ir.Expr{Op: ir.OpCall, Fn: fn, Type: typ, Args: lits(args...)}
}

// evaluate computes e in a scope, twice, to check that it leaves nothing behind.
func evaluate(t *testing.T, e *ir.Expr, sc *scope) any {
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
	element := func() *ir.Expr { return &ir.Expr{Op: ir.OpElement, Type: langtest.U64} }
	above := func(n any) *ir.Expr { return node(ir.OpGt, ir.Boolean, element(), n) }
	list := func(v ...any) []any { return append([]any{}, v...) }
	for _, test := range []struct {
		e    *ir.Expr
		want any
	}{
		// strings
		{call("len", langtest.U64, "añ"), uint64(3)},
		{call("upper", ir.Text, "b\xffñ"), "B\xffñ"},
		{call("lower", ir.Text, "B\xff\xfeÑ"), "b\xff\xfeÑ"},
		{call("trim", ir.Text, "\u00a0 x\u00a0\n"), "\u00a0 x\u00a0"},
		{call("trim", ir.Text, "\xff\xfex\xfe", "\xfe\xff"), "x"},
		{call("split", ir.Text, "ñ\xff", ""), list("\xc3", "\xb1", "\xff")},
		{call("split", ir.Text, "añ", "", 2), list("a", "ñ")},
		{call("split", ir.Text, "añ", "", 0), list()},
		{call("split", ir.Text, "a\xffb", "\xff"), list("a", "b")},
		{call("replace", ir.Text, "ñ", "", "-"), "-\xc3-\xb1-"},
		{call("replace", ir.Text, "ñ", "", "-", 2), "-\xc3-\xb1"},
		{call("replace", ir.Text, "a\xff", "\xff", "b"), "ab"},
		{call("repeat", ir.Text, "\xff", 2), "\xff\xff"},
		{call("join", ir.Text, list("\xff", "a"), "\xfe"), "\xff\xfea"},
		{call("indexOf", langtest.S64, "hé\xff!", "!"), int64(4)},
		{call("lastIndexOf", langtest.S64, "\xffé\xff", "\xff"), int64(3)},
		{call("trim", ir.Text, "  x "), "x"},
		{call("trim", ir.Text, "--x-", "-"), "x"},
		{call("trimPrefix", ir.Text, "nvme0", "nvme"), "0"},
		{call("trimSuffix", ir.Text, "nvme0", "0"), "nvme"},
		{call("upper", ir.Text, "fio"), "FIO"},
		{call("lower", ir.Text, "FIO"), "fio"},
		{call("split", ir.Text, "a/b/c", "/"), list("a", "b", "c")},
		{call("split", ir.Text, "a/b/c", "/", 2), list("a", "b/c")},
		{call("replace", ir.Text, "aaa", "a", "b"), "bbb"},
		{call("replace", ir.Text, "aaa", "a", "b", 1), "baa"},
		{call("repeat", ir.Text, "ab", 2), "abab"},
		{call("repeat", ir.Text, "ab", 1<<40), nil},
		{call("repeat", ir.Text, "ab", -1), nil},
		{call("join", ir.Text, list("a", "b"), "-"), "a-b"},
		{call("join", ir.Text, list("a", "b")), "ab"},
		{call("join", ir.Text, call("split", ir.Text, "a/b", "/"), "+"), "a+b"},
		{call("indexOf", langtest.S64, "abc", "c"), int64(2)},
		{call("indexOf", langtest.S64, "abc", "x"), int64(-1)},
		{call("lastIndexOf", langtest.S64, "abca", "a"), int64(3)},
		{call("hasPrefix", ir.Boolean, "abc", "ab"), true},
		{call("hasSuffix", ir.Boolean, "abc", "ab"), false},
		{call("int", langtest.S64, "-12"), int64(-12)},
		{call("int", langtest.S64, "x"), nil},
		{call("string", ir.Text, 12), "12"},
		{call("string", ir.Text, node(ir.OpSub, langtest.U64, 0, 1)), "18446744073709551615"},
		{call("string", ir.Text, true), "true"},
		{call("string", ir.Text, typed(langtest.Ns, 5_000_000)), "5ms"},
		{call("string", ir.Text, typed(langtest.Size, 4096)), "4KiB"},
		{call("string", ir.Text, typed(langtest.Hex, 255)), "0xff"},
		{call("string", ir.Text, "a\n"), "a\n"},
		{call("string", ir.Text, typed(langtest.Opcode, 99)), "unknown(0x63)"},
		{call("string", ir.Text, typed(langtest.QpState, 2)), "RTR"},
		{call("string", ir.Text, typed(langtest.Errno, -22)), "-EINVAL"},
		{call("string", ir.Text, typed(langtest.Gid, langtest.Addresses["fe80::1"])), "fe80::1"},
		{call("ntop", ir.Text, langtest.Addresses["fe80::1"]), "fe80::1"},
		{call("ntop", ir.Text, 0x0100000a), "10.0.0.1"},
		{call("ntop", ir.Text, 1<<32), nil},

		// lists
		{call("len", langtest.U64, list(1, 2)), uint64(2)},
		{call("len", langtest.U64, list()), uint64(0)},
		{call("first", langtest.U64, list(1, 2)), uint64(1)},
		{call("first", langtest.U64, list()), nil},
		{call("last", ir.Text, call("split", ir.Text, "a/b", "/")), "b"},

		// predicates
		{call("all", ir.Boolean, list(1, 2), above(0)), true},
		{call("all", ir.Boolean, list(1, 2), above(1)), false},
		{call("none", ir.Boolean, list(1, 2), above(2)), true},
		{call("any", ir.Boolean, list(1, 2), above(1)), true},
		{call("any", ir.Boolean, list(), above(1)), false},
		{call("one", ir.Boolean, list(1, 2), above(1)), true},
		{call("one", ir.Boolean, list(1, 2), above(0)), false},
		{call("filter", langtest.U64, list(1, 2, 3), above(1)), list(uint64(2), uint64(3))},
		{call("map", langtest.U64, list(1, 2), node(ir.OpAdd, langtest.U64, element(), 1)), list(uint64(2), uint64(3))},
		{call("map", ir.Boolean, list(1, 2), above(1)), list(false, true)},
		{call("any", ir.Boolean, call("split", ir.Text, "a,b", ","), node(ir.OpEq, ir.Boolean, &ir.Expr{Op: ir.OpElement, Type: ir.Text}, "b")), true},
		// a loop in another, with a choice in it
		{call("filter", langtest.U64, list(1, 2, 3), node(ir.OpAnd, ir.Boolean,
			call("any", ir.Boolean, list(2, 3), node(ir.OpEq, ir.Boolean, element(), 2)), above(2))), list(uint64(3))},
		{call("filter", langtest.U64, call("map", langtest.U64, list(1, 2), node(ir.OpMul, langtest.U64, element(), 2)), above(2)), list(uint64(4))},

		// absent operands, elements and predicates
		{call("upper", ir.Text, nil), nil},
		{call("replace", ir.Text, "a", nil, "b"), nil},
		{call("join", ir.Text, list("a", nil)), nil},
		{call("len", langtest.U64, list(nil)), nil},
		{call("any", ir.Boolean, list(1, nil), above(0)), nil},
		{call("any", ir.Boolean, list(1), above(nil)), false},
		{call("all", ir.Boolean, list(1), above(nil)), false},
		{call("filter", langtest.U64, list(1), above(nil)), list()},
		{call("map", langtest.U64, list(1), node(ir.OpAdd, langtest.U64, element(), nil)), nil},
		{call("first", langtest.U64, call("map", langtest.U64, list(1), node(ir.OpCoalesce, langtest.U64, nil, element()))), uint64(1)},
	} {
		got := evaluate(t, test.e, &scope{event: langtest.Table{}})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s%v: got %T %[3]v, want %v", test.e.Fn, describeArgs(test.e), got, test.want)
		}
	}
}

func describeArgs(e *ir.Expr) []any {
	var out []any
	for _, a := range e.Args {
		if a.Op == ir.OpLit {
			out = append(out, a.Val)
		} else {
			out = append(out, a.Op)
		}
	}
	return out
}

// TestOperators checks the operators that value_test.go does not.
func TestOperators(t *testing.T) {
	u16, s16 := event.Type{Kind: event.Uint, Size: 2}, event.Type{Kind: event.Int, Size: 2}
	cast := func(bits int, typ event.Type, x any) *ir.Expr {
		return &ir.Expr{Op: ir.OpCast, Bits: bits, Type: typ, Args: lits(x)}
	}
	pair := func(a, b any) *ir.Expr { return node(ir.OpTuple, event.Type{Kind: format.Tuple}, a, b) }
	member := func(i int, of *ir.Expr) *ir.Expr {
		return &ir.Expr{Op: ir.OpMember, Index: i, Type: langtest.U64, Args: []*ir.Expr{of}}
	}
	for i, test := range []struct {
		e    *ir.Expr
		want any
	}{
		{cast(16, u16, 0x12345), uint64(0x2345)},
		{cast(16, u16, -1), uint64(0xffff)},
		{cast(16, s16, 0xffff), int64(-1)},
		{cast(16, s16, 0x7fff), int64(0x7fff)},
		{cast(64, langtest.S64, node(ir.OpSub, langtest.U64, 0, 1)), int64(-1)},
		{cast(64, langtest.U64, -1), uint64(1<<64 - 1)},
		{cast(1, langtest.U64, 3), uint64(1)},
		{cast(16, u16, nil), nil},
		{cast(8, langtest.U64, true), uint64(1)},

		{pair(1, nil), []any{uint64(1), nil}},
		{member(0, pair(1, "x")), uint64(1)},
		{member(1, pair(1, "x")), "x"},
		{member(1, pair(1, nil)), nil},
		{node(ir.OpEq, ir.Boolean, pair(1, "x"), pair(1, "x")), true},
		{node(ir.OpEq, ir.Boolean, pair(1, "x"), pair(1, "y")), false},
		{node(ir.OpNe, ir.Boolean, pair(1, "x"), pair(1, "y")), true},
		{node(ir.OpEq, ir.Boolean, pair(nil, "x"), pair(1, "x")), nil},
		{node(ir.OpNe, ir.Boolean, pair(nil, "x"), pair(1, "x")), nil},
		{node(ir.OpEq, ir.Boolean, pair(nil, "x"), pair(1, "y")), false},
		{node(ir.OpIn, ir.Boolean, pair(1, "x"), pair(2, "x"), pair(1, "x")), true},
		{node(ir.OpIn, ir.Boolean, pair(1, "x"), pair(2, nil), pair(1, nil)), nil},
		{node(ir.OpAbsent, ir.Boolean, pair(nil, nil)), false},
		{node(ir.OpCond, langtest.U64, true, pair(1, 2), pair(3, 4)), []any{uint64(1), uint64(2)}},
	} {
		if got := evaluate(t, test.e, &scope{event: langtest.Table{}}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d, %s: got %T %[3]v, want %v", i, test.e.Op, got, test.want)
		}
	}
}

// slots is an event with values that the kernel has computed.
type slots struct {
	langtest.Table
	values []any
}

func (s slots) Value(i int) (any, bool) { return s.values[i], s.values[i] != nil }

// TestScope checks what expressions read besides the fields of the event.
func TestScope(t *testing.T) {
	v := &ir.Variable{Name: "v", Index: 1, Type: langtest.U64}
	counts := &ir.Map{Name: "@n", Key: columns(langtest.U64), Agg: &agg.Agg{Func: agg.Count{}}, Value: columns(langtest.U64)}
	last := &ir.Map{Name: "@last", Key: columns(langtest.U64), Value: columns(ir.Text)}
	m := &machine{clock: func() uint64 { return 1100 }, started: 1000, stores: map[*ir.Map]mapStore{}}
	for _, info := range []*ir.Map{counts, last} {
		m.stores[info] = newUserStore(info, 10)
	}
	m.stores[counts].update([]any{uint64(7)}, 1, false)
	m.stores[counts].update([]any{nil}, 1, false)
	m.stores[last].set([]any{uint64(7)}, []any{"x"})
	read := func(op ir.Op, info *ir.Map, typ event.Type, key ...any) *ir.Expr {
		return &ir.Expr{Op: op, Map: info, Type: typ, Args: lits(key...)}
	}
	sc := &scope{
		machine: m, vars: []any{nil, uint64(5)},
		event: slots{langtest.Table{"nsecs": uint64(1010)}, []any{nil, uint64(9)}},
	}
	for i, test := range []struct {
		e    *ir.Expr
		want any
	}{
		{&ir.Expr{Op: ir.OpVar, Variable: v}, uint64(5)},
		{node(ir.OpAdd, langtest.U64, &ir.Expr{Op: ir.OpVar, Variable: v}, 1), uint64(6)},
		{&ir.Expr{Op: ir.OpNow}, uint64(1100)},
		{&ir.Expr{Op: ir.OpElapsed}, uint64(100)},
		{&ir.Expr{Op: ir.OpElapsed, Field: langtest.Field("nsecs", langtest.U64)}, uint64(10)},
		{&ir.Expr{Op: ir.OpSlot, Index: 0}, nil},
		{&ir.Expr{Op: ir.OpSlot, Index: 1}, uint64(9)},
		{read(ir.OpLookup, counts, langtest.U64, 7), uint64(1)},
		{read(ir.OpLookup, counts, langtest.S64, 7), int64(1)},
		{read(ir.OpLookup, counts, langtest.U64, 8), uint64(0)},
		{read(ir.OpLookup, counts, langtest.U64, nil), uint64(1)},
		{read(ir.OpLookup, last, ir.Text, 7), "x"},
		{read(ir.OpLookup, last, ir.Text, 8), ""},
		{read(ir.OpHasKey, counts, ir.Boolean, 7), true},
		{read(ir.OpHasKey, last, ir.Boolean, 8), false},
		{read(ir.OpLen, counts, langtest.U64), uint64(2)},
		{node(ir.OpGt, ir.Boolean, read(ir.OpLookup, counts, langtest.U64, node(ir.OpAdd, langtest.U64, 6, 1)), 0), true},
		{read(ir.OpLookup, last, ir.Text, read(ir.OpLookup, counts, langtest.U64, 7)), ""},
	} {
		if got := evaluate(t, test.e, sc); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d, %s: got %T %[3]v, want %v", i, test.e.Op, got, test.want)
		}
	}
	gidMap := &ir.Map{Key: columns(langtest.U64), Value: columns(langtest.Gid)}
	m.stores[gidMap] = newUserStore(gidMap, 1)
	if got := evaluate(t, read(ir.OpLookup, gidMap, langtest.Gid, 1), sc); got != strings.Repeat("\x00", 16) {
		t.Errorf("an address that was never set is %q", got)
	}
}

// broken is a map that cannot be read.
type broken struct{ mapStore }

var errBroken = errors.New("the map is broken")

func (broken) lookup([]any) ([]any, bool, error) { return nil, false, errBroken }

// TestFailure checks that the error of a map is returned unchanged.
func TestFailure(t *testing.T) {
	info := &ir.Map{Value: columns(langtest.U64)}
	sc := &scope{machine: &machine{stores: map[*ir.Map]mapStore{info: broken{}}}}
	for _, e := range []*ir.Expr{
		{Op: ir.OpLookup, Map: info, Type: langtest.U64},
		node(ir.OpAdd, langtest.U64, &ir.Expr{Op: ir.OpLookup, Map: info, Type: langtest.U64}, 1),
		node(ir.OpAbsent, ir.Boolean, &ir.Expr{Op: ir.OpHasKey, Map: info, Type: ir.Boolean}),
	} {
		v, err := newEvaluator(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.eval(sc); got != nil || err != errBroken {
			t.Errorf("%s: got %v, %v", e.Op, got, err)
		}
	}
}
