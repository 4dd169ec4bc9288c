package codegen_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"trace/lang/codegen"
	"trace/lang/codegen/bpftest"
)

type (
	expr = codegen.Expr
	kind = codegen.Kind
)

// The event of the tests, with the offsets of its fields:
//
//	0 a, 8 b     64 bits
//	16 c, 20 d, 22 e   32, 16, 8 bits
//	23 bool
//	24 has       presence bits: a 1, b 2, s 4, bool 8
//	28 s         char[16], aligned to 4
//	44 t         char[12]
//	56 g         16 bytes
//	72 u         char[6], at an odd place of the struct
//	80 end
const eventSize = 80

var (
	u64t, i64t = codegen.Type{Kind: codegen.Uint}, codegen.Type{Kind: codegen.Int}
	boolT      = codegen.Type{Kind: codegen.Bool}
)

func text(size int) codegen.Type { return codegen.Type{Kind: codegen.String, Size: size} }

func field(t codegen.Type, offset, size int) *expr {
	return &expr{Op: codegen.OpField, Type: t, Field: &codegen.Field{Name: fmt.Sprint("f", offset), Offset: offset, Size: size}}
}

func optional(e *expr, mask uint8) *expr {
	f := *e.Field
	f.Optional, f.HasOffset, f.HasMask = true, 24, mask
	return &expr{Op: codegen.OpField, Type: e.Type, Field: &f}
}

var (
	a, b       = field(u64t, 0, 8), field(u64t, 8, 8)
	ia, ib     = field(i64t, 0, 8), field(i64t, 8, 8)
	bit        = field(boolT, 23, 1)
	s          = field(text(16), 28, 16)
	t12        = field(text(12), 44, 12)
	gid        = field(codegen.Type{Kind: codegen.Bytes, Size: 16}, 56, 16)
	u6         = field(text(6), 73, 6)
	oa, ob, os = optional(a, 1), optional(b, 2), optional(s, 4)
	obit       = optional(bit, 8)
)

func lit(x uint64) *expr  { return &expr{Op: codegen.OpLit, Type: u64t, Num: x} }
func ilit(x int64) *expr  { return &expr{Op: codegen.OpLit, Type: i64t, Num: uint64(x)} }
func slit(x string) *expr { return &expr{Op: codegen.OpLit, Type: text(len(x)), Str: x} }
func truth(holds bool) *expr {
	e := &expr{Op: codegen.OpLit, Type: boolT}
	if holds {
		e.Num = 1
	}
	return e
}

func op(o codegen.Op, t codegen.Type, args ...*expr) *expr { return &expr{Op: o, Type: t, Args: args} }
func is(o codegen.Op, args ...*expr) *expr                 { return op(o, boolT, args...) }

// event makes an event from fields by offset.
func event(fields map[int]any) []byte {
	raw := make([]byte, eventSize)
	for at, v := range fields {
		switch v := v.(type) {
		case uint64:
			binary.LittleEndian.PutUint64(raw[at:], v)
		case int64:
			binary.LittleEndian.PutUint64(raw[at:], uint64(v))
		case uint32:
			binary.LittleEndian.PutUint32(raw[at:], v)
		case uint16:
			binary.LittleEndian.PutUint16(raw[at:], v)
		case uint8:
			raw[at] = v
		case string:
			copy(raw[at:], v)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return raw
}

func skipUnlessPermitted(t *testing.T) {
	t.Helper()
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
}

func newRunner(t testing.TB, p codegen.Spec, maps ...*codegen.Map) *bpftest.Runner {
	t.Helper()
	p.Ring, p.Lost, p.CmpXchg = bpftest.Ring, bpftest.Lost, true
	return start(t, p, maps...)
}

func start(t testing.TB, p codegen.Spec, maps ...*codegen.Map) *bpftest.Runner {
	t.Helper()
	return load(t, p, func(*codegen.Code) {}, maps...)
}

// load generates code, changes it, and loads it.
func load(t testing.TB, p codegen.Spec, change func(*codegen.Code), maps ...*codegen.Map) *bpftest.Runner {
	t.Helper()
	if p.Stack == 0 {
		p.Stack = bpftest.Stack(eventSize)
	}
	p.Ring, p.Lost, p.Prefix = bpftest.Ring, bpftest.Lost, "x_"
	code, err := codegen.Generate(p)
	if err != nil {
		t.Fatal(err)
	}
	change(code)
	r, err := bpftest.New(code, maps, eventSize)
	if err != nil {
		t.Fatalf("%+v\n%v", err, code)
	}
	t.Cleanup(r.Close)
	return r
}

func run(t testing.TB, r *bpftest.Runner, events ...[]byte) (masks []uint64, records [][]byte) {
	t.Helper()
	masks, records, err := r.Run(events)
	if err != nil {
		t.Fatal(err)
	}
	return masks, records
}

// values evaluates expressions for events, in batches that fit in a record each. Row i has the values for event i; nil is absent.
func values(t testing.TB, exprs []*expr, events [][]byte) [][]any {
	t.Helper()
	rows := make([][]any, len(events))
	for len(exprs) > 0 {
		batch := exprs[:min(len(exprs), 40)]
		exprs = exprs[len(batch):]
		emit := &codegen.Emit{ID: 7, Size: 8}
		for _, e := range batch {
			width := 8
			if e.Type.Size > 0 {
				width = e.Type.Size
			}
			emit.Values = append(emit.Values, codegen.Slot{Value: e, To: emit.Size, Presence: emit.Size + width})
			emit.Size += (width + 8) &^ 7
		}
		r := newRunner(t, codegen.Spec{Parts: []codegen.Part{{Body: []codegen.Stmt{emit}, Comment: "test"}}})
		for done := 0; done < len(events); done += bpftest.MaxEvents {
			part := events[done:min(len(events), done+bpftest.MaxEvents)]
			_, records := run(t, r, part...)
			if len(records) != len(part) {
				t.Fatalf("%d records of %d events", len(records), len(part))
			}
			for i, record := range records {
				for _, slot := range emit.Values {
					var v any
					if record[slot.Presence] != 0 {
						v = slot.Value.Type.Decode(record[slot.To:])
					}
					rows[done+i] = append(rows[done+i], v)
				}
			}
		}
		r.Close()
	}
	return rows
}

var boundaries = []uint64{0, 1, 2, 3, 7, 63, 64, 1000, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32, 1 << 62, math.MaxInt64, 1 << 63,
	1<<63 + 1, math.MaxUint64 - 63, math.MaxUint64 - 1, math.MaxUint64}

// meaning computes an operation with exact integers.
func meaning(o codegen.Op, x, y *big.Int) *big.Int {
	z := new(big.Int)
	truth := func(holds bool) *big.Int {
		if holds {
			return z.SetInt64(1)
		}
		return z
	}
	count := uint(new(big.Int).And(y, big.NewInt(63)).Uint64())
	switch o {
	case codegen.OpAdd:
		return z.Add(x, y)
	case codegen.OpSub:
		return z.Sub(x, y)
	case codegen.OpMul:
		return z.Mul(x, y)
	case codegen.OpDiv:
		if y.Sign() == 0 {
			return z
		}
		return z.Quo(x, y)
	case codegen.OpMod:
		if y.Sign() == 0 {
			return x
		}
		return z.Rem(x, y)
	case codegen.OpBitAnd:
		return z.And(x, y)
	case codegen.OpBitOr:
		return z.Or(x, y)
	case codegen.OpBitXor:
		return z.Xor(x, y)
	case codegen.OpShl:
		return z.Lsh(x, count)
	case codegen.OpShr:
		return z.Rsh(x, count)
	case codegen.OpEq:
		return truth(x.Cmp(y) == 0)
	case codegen.OpNe:
		return truth(x.Cmp(y) != 0)
	case codegen.OpLt:
		return truth(x.Cmp(y) < 0)
	case codegen.OpLe:
		return truth(x.Cmp(y) <= 0)
	case codegen.OpGt:
		return truth(x.Cmp(y) > 0)
	default:
		return truth(x.Cmp(y) >= 0)
	}
}

func number(k kind, x uint64) *big.Int {
	if k == codegen.Int {
		return big.NewInt(int64(x))
	}
	return new(big.Int).SetUint64(x)
}

// wrap returns the low 64 bits as a value of the kind.
func wrap(k kind, x *big.Int) any {
	low := new(big.Int).And(x, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	switch k {
	case codegen.Int:
		return int64(low)
	case codegen.Bool:
		return low != 0
	}
	return low
}

func TestOperators(t *testing.T) {
	skipUnlessPermitted(t)
	var exprs []*expr
	var want []func(x, y uint64) any
	add := func(e *expr, f func(x, y uint64) any) { exprs, want = append(exprs, e), append(want, f) }
	sides := []struct {
		kind kind
		a, b *expr
	}{{codegen.Uint, a, b}, {codegen.Int, ia, ib}}
	twice := func(e *expr) *expr { return op(codegen.OpCompl, e.Type, op(codegen.OpCompl, e.Type, e)) } // not a leaf
	for o := codegen.OpEq; o <= codegen.OpShr; o++ {
		for _, left := range sides {
			for _, right := range sides {
				x, y, result := left.a, right.b, codegen.Type{Kind: left.kind}
				if o <= codegen.OpGe {
					result = boolT
				} else if left.kind != right.kind {
					continue
				}
				f := func(x, y uint64) any {
					return wrap(result.Kind, meaning(o, number(left.kind, x), number(right.kind, y)))
				}
				add(op(o, result, x, y), f)
				add(op(o, result, twice(x), y), f)
				add(op(o, result, x, twice(y)), f)
				add(op(o, result, twice(x), twice(y)), f)
				for _, c := range boundaries {
					l := &expr{Op: codegen.OpLit, Type: codegen.Type{Kind: right.kind}, Num: c}
					add(op(o, result, x, l), func(x, _ uint64) any { return f(x, c) })
					l = &expr{Op: codegen.OpLit, Type: codegen.Type{Kind: left.kind}, Num: c}
					add(op(o, result, l, y), func(_, y uint64) any { return f(c, y) })
				}
			}
		}
	}
	for _, side := range sides {
		k := side.kind
		typ := codegen.Type{Kind: k}
		add(op(codegen.OpNeg, typ, side.a), func(x, _ uint64) any { return wrap(k, new(big.Int).Neg(number(k, x))) })
		add(op(codegen.OpCompl, typ, side.a), func(x, _ uint64) any { return wrap(k, new(big.Int).Not(number(k, x))) })
		add(is(codegen.OpTruth, side.a), func(x, _ uint64) any { return x != 0 })
		add(op(codegen.OpSigned, i64t, side.a), func(x, _ uint64) any { return int64(x) })
		for _, bits := range []uint64{1, 8, 16, 31, 32, 33, 63, 64} {
			cast := op(codegen.OpCast, typ, side.a)
			cast.Num = bits
			add(cast, func(x, _ uint64) any {
				if shift := 64 - bits; k == codegen.Int {
					return int64(x) << shift >> shift
				} else {
					return x << shift >> shift
				}
			})
		}
		in := is(codegen.OpIn, side.a, side.b, lit(7), ilit(-1), is(codegen.OpBetween, lit(1000), lit(1<<33)), lit(math.MaxUint64))
		add(in, func(x, y uint64) any {
			n := number(k, x)
			in := func(l, h *big.Int) bool { return n.Cmp(l) >= 0 && n.Cmp(h) <= 0 }
			same := func(c *big.Int) bool { return n.Cmp(c) == 0 }
			return x == y || x == 7 || same(big.NewInt(-1)) || in(big.NewInt(1000), big.NewInt(1<<33)) || same(new(big.Int).SetUint64(math.MaxUint64))
		})
	}
	var events [][]byte
	var operands [][2]uint64
	for _, x := range boundaries {
		for _, y := range boundaries {
			events, operands = append(events, event(map[int]any{0: x, 8: y})), append(operands, [2]uint64{x, y})
		}
	}
	failed := 0
	for i, row := range values(t, exprs, events) {
		for j, got := range row {
			if x, y := operands[i][0], operands[i][1]; got != want[j](x, y) {
				t.Errorf("op %d %v of %#x, %#x = %#x, want %#x", exprs[j].Op, exprs[j].Args, x, y, got, want[j](x, y))
				if failed++; failed > 20 {
					t.FailNow()
				}
			}
		}
	}
}

func TestNarrowFields(t *testing.T) {
	skipUnlessPermitted(t)
	exprs := []*expr{field(u64t, 16, 4), field(i64t, 16, 4), field(u64t, 20, 2), field(i64t, 20, 2), field(u64t, 22, 1), field(i64t, 22, 1), bit,
		is(codegen.OpLt, field(i64t, 16, 4), lit(0)), is(codegen.OpGt, a, field(i64t, 22, 1)), is(codegen.OpGt, ia, field(u64t, 16, 4))}
	got := values(t, exprs, [][]byte{
		event(map[int]any{0: int64(-1), 16: uint32(0x80000001), 20: uint16(0x8002), 22: uint8(0xfe), 23: uint8(2)}),
		event(map[int]any{0: uint64(2), 16: uint32(1), 20: uint16(2), 22: uint8(3)}),
	})
	want := [][]any{
		{uint64(0x80000001), int64(math.MinInt32 + 1), uint64(0x8002), int64(math.MinInt16 + 2), uint64(0xfe), int64(-2), true, true, true, false},
		{uint64(1), int64(1), uint64(2), int64(2), uint64(3), int64(3), false, false, false, true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// kleene is a bool that may be absent.
type kleene = any

func TestAbsence(t *testing.T) {
	skipUnlessPermitted(t)
	obits := []*expr{obit, optional(field(boolT, 22, 1), 16), optional(field(boolT, 21, 1), 32)}
	and := func(x, y kleene) kleene {
		switch {
		case x == false || y == false:
			return false
		case x == nil || y == nil:
			return nil
		}
		return true
	}
	not := func(x kleene) kleene {
		if x == nil {
			return nil
		}
		return x == false
	}
	or := func(x, y kleene) kleene { return not(and(not(x), not(y))) }
	both := func(f func(x, y any) any) func(x, y kleene) kleene {
		return func(x, y kleene) kleene {
			if x == nil || y == nil {
				return nil
			}
			return f(x, y)
		}
	}
	eq := both(func(x, y any) any { return x == y })
	coalesce := func(x, y kleene) kleene {
		if x == nil {
			return y
		}
		return x
	}
	x, y, z := obits[0], obits[1], obits[2]
	cases := []struct {
		e    *expr
		want func(x, y, z kleene) kleene
	}{
		{is(codegen.OpAnd, x, y), func(x, y, z kleene) kleene { return and(x, y) }},
		{is(codegen.OpOr, x, y), func(x, y, z kleene) kleene { return or(x, y) }},
		{is(codegen.OpAnd, is(codegen.OpAnd, x, y), z), func(x, y, z kleene) kleene { return and(and(x, y), z) }},
		{is(codegen.OpOr, x, is(codegen.OpOr, y, z)), func(x, y, z kleene) kleene { return or(x, or(y, z)) }},
		{is(codegen.OpAnd, is(codegen.OpOr, x, y), is(codegen.OpNot, z)), func(x, y, z kleene) kleene { return and(or(x, y), not(z)) }},
		{is(codegen.OpNot, is(codegen.OpAnd, x, is(codegen.OpNot, is(codegen.OpOr, y, z)))), func(x, y, z kleene) kleene { return not(and(x, not(or(y, z)))) }},
		{is(codegen.OpCond, x, y, z), func(x, y, z kleene) kleene {
			if x == true {
				return y
			}
			return z
		}},
		{is(codegen.OpCoalesce, x, is(codegen.OpCoalesce, y, z)), func(x, y, z kleene) kleene { return coalesce(x, coalesce(y, z)) }},
		{is(codegen.OpCond, is(codegen.OpAnd, x, y), is(codegen.OpAbsent, z), is(codegen.OpOr, x, z)), func(x, y, z kleene) kleene {
			if and(x, y) == true {
				return z == nil
			}
			return or(x, z)
		}},
		{is(codegen.OpEq, x, y), func(x, y, z kleene) kleene { return eq(x, y) }},
		{is(codegen.OpIn, x, y, z), func(x, y, z kleene) kleene { return or(eq(x, y), eq(x, z)) }},
		{is(codegen.OpNot, is(codegen.OpIn, x, truth(true), z)), func(x, y, z kleene) kleene { return not(or(eq(x, true), eq(x, z))) }},
		{is(codegen.OpAbsent, is(codegen.OpAnd, x, y)), func(x, y, z kleene) kleene { return and(x, y) == nil }},
		{is(codegen.OpAbsent, is(codegen.OpCond, x, y, z)), func(x, y, z kleene) kleene {
			if x == true {
				return y == nil
			}
			return z == nil
		}},
		{is(codegen.OpAbsent, is(codegen.OpCoalesce, x, is(codegen.OpIn, y, z))), func(x, y, z kleene) kleene { return coalesce(x, eq(y, z)) == nil }},
		{is(codegen.OpAnd, truth(false), x), func(x, y, z kleene) kleene { return false }},
		{is(codegen.OpOr, truth(true), x), func(x, y, z kleene) kleene { return true }},
		{is(codegen.OpAnd, is(codegen.OpAnd, x, truth(true)), truth(false)), func(x, y, z kleene) kleene { return false }},
		{is(codegen.OpIn, x, is(codegen.OpBetween, y, z)), func(x, y, z kleene) kleene {
			if x == nil || y == nil || z == nil {
				return nil
			}
			n := func(x any) int {
				if x == true {
					return 1
				}
				return 0
			}
			return n(x) >= n(y) && n(x) <= n(z)
		}},
	}
	var exprs []*expr
	for _, c := range cases {
		exprs = append(exprs, c.e)
	}
	var events [][]byte
	var operands [][3]kleene
	bools := []kleene{nil, false, true}
	for i := range 27 {
		o := [3]kleene{bools[i%3], bools[i/3%3], bools[i/9]}
		e := event(nil)
		for j, v := range o {
			if v != nil {
				e[24] |= []uint8{8, 16, 32}[j]
			}
			if v == true {
				e[23-j] = 1
			}
		}
		events, operands = append(events, e), append(operands, o)
	}
	for i, row := range values(t, exprs, events) {
		for j, got := range row {
			if want := cases[j].want(operands[i][0], operands[i][1], operands[i][2]); got != want {
				t.Errorf("case %d of %v = %v, want %v", j, operands[i], got, want)
			}
		}
	}
	// The same as predicates: an absent condition does not hold, and neither does its negation.
	var clauses []codegen.Part
	for _, e := range exprs {
		clauses = append(clauses, codegen.Part{Pred: e}, codegen.Part{Pred: is(codegen.OpNot, e)})
	}
	masks, _ := run(t, newRunner(t, codegen.Spec{Parts: clauses}), events...)
	for i, mask := range masks {
		for j, c := range cases {
			want := c.want(operands[i][0], operands[i][1], operands[i][2])
			if got := mask>>(2*j)&1 == 1; got != (want == true) {
				t.Errorf("predicate %d of %v: %v", j, operands[i], got)
			}
			if got := mask>>(2*j+1)&1 == 1; got != (want == false) {
				t.Errorf("predicate !%d of %v: %v", j, operands[i], got)
			}
		}
	}
}

func TestAbsentNumbers(t *testing.T) {
	skipUnlessPermitted(t)
	deep := oa
	for range 40 {
		deep = op(codegen.OpAdd, u64t, op(codegen.OpMul, u64t, deep, lit(1)), op(codegen.OpSub, u64t, b, b))
	}
	exprs := []*expr{
		op(codegen.OpAdd, u64t, oa, ob), op(codegen.OpCoalesce, u64t, oa, ob), op(codegen.OpCoalesce, u64t, op(codegen.OpDiv, u64t, oa, ob), lit(9)),
		op(codegen.OpCond, u64t, is(codegen.OpLt, oa, ob), oa, ob), deep, is(codegen.OpIn, a, oa, is(codegen.OpBetween, lit(100), ob)),
		op(codegen.OpCond, u64t, truth(true), lit(1), oa), op(codegen.OpCoalesce, u64t, lit(4), oa),
	}
	events := [][]byte{
		event(map[int]any{0: uint64(6), 8: uint64(8), 24: uint8(3)}),
		event(map[int]any{0: uint64(6), 8: uint64(8), 24: uint8(1)}),
		event(map[int]any{0: uint64(6), 8: uint64(8), 24: uint8(2)}),
		event(map[int]any{0: uint64(6), 8: uint64(8)}),
	}
	one, four := uint64(1), uint64(4)
	want := [][]any{
		{uint64(14), uint64(6), uint64(0), uint64(6), uint64(6), true, one, four},
		{nil, uint64(6), uint64(9), nil, uint64(6), true, one, four},
		{nil, uint64(8), uint64(9), uint64(8), nil, nil, one, four},
		{nil, nil, uint64(9), nil, nil, nil, one, four},
	}
	if got := values(t, exprs, events); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestStrings(t *testing.T) {
	skipUnlessPermitted(t)
	words := []string{"", "a", "ab", "abc", "abcd", "abcde", "abcdefg", "abcdefgh", "abcdefghi", "abcdefghijkl", "abcdefghijklm", "abcdefghijklmnop",
		"abcdefgx", "abcdefghX", "\xff", "b", "abcdefghijkm"}
	cut := func(x string, n int) string { return x[:min(n, len(x))] }
	var exprs []*expr
	var want []func(x, y string) any
	add := func(e *expr, f func(x, y string) any) { exprs, want = append(exprs, e), append(want, f) }
	holds := func(o codegen.Op, x, y string) any {
		return wrap(codegen.Bool, meaning(o, big.NewInt(int64(strings.Compare(x, y))), new(big.Int)))
	}
	for o := codegen.OpEq; o <= codegen.OpGe; o++ {
		add(is(o, s, t12), func(x, y string) any { return holds(o, x, cut(y, 12)) })
		add(is(o, t12, s), func(x, y string) any { return holds(o, cut(y, 12), x) })
		add(is(o, s, u6), func(x, y string) any { return holds(o, x, cut(y, 6)) })
		for _, w := range append(words, "abcdefghijklmnopq") {
			add(is(o, s, slit(w)), func(x, y string) any { return holds(o, x, w) })
			add(is(o, slit(w), t12), func(x, y string) any { return holds(o, w, cut(y, 12)) })
			add(is(o, u6, slit(w)), func(x, y string) any { return holds(o, cut(y, 6), w) })
		}
	}
	for _, w := range append(words, "abcdefghijklmnopq") {
		add(is(codegen.OpStartsWith, s, slit(w)), func(x, y string) any { return strings.HasPrefix(x, w) })
		add(is(codegen.OpStartsWith, u6, slit(w)), func(x, y string) any { return strings.HasPrefix(cut(y, 6), w) })
	}
	in := is(codegen.OpIn, s, slit("ab"), t12, is(codegen.OpBetween, slit("abcdefg"), slit("abcdefghZ")))
	add(in, func(x, y string) any { return x == "ab" || x == cut(y, 12) || x >= "abcdefg" && x <= "abcdefghZ" })
	cond := op(codegen.OpCond, text(16), is(codegen.OpEq, u6, slit("ab")), t12, op(codegen.OpCond, text(16), is(codegen.OpLt, s, slit("abcd")), slit("less"), s))
	f := func(x, y string) any {
		switch {
		case y == "ab":
			return cut(y, 12)
		case x < "abcd":
			return "less"
		}
		return x
	}
	add(cond, f)
	add(is(codegen.OpEq, cond, slit("less")), func(x, y string) any { return f(x, y) == "less" })
	add(s, func(x, y string) any { return x })
	add(u6, func(x, y string) any { return cut(y, 6) })
	var events [][]byte
	var operands [][2]string
	for _, x := range words {
		for _, y := range words {
			e := event(map[int]any{28: x, 44: cut(y, 12), 73: cut(y, 6)})
			events, operands = append(events, e), append(operands, [2]string{x, y})
		}
	}
	for i, row := range values(t, exprs, events) {
		for j, got := range row {
			if w := want[j](operands[i][0], operands[i][1]); got != w {
				t.Fatalf("%d (op %d) of %q = %v, want %v", j, exprs[j].Op, operands[i], got, w)
			}
		}
	}
}
