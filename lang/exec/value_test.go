package exec

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/probes/event"
)

// conditions on one event of each probe; fields whose names begin with o are absent
var conditions = []struct {
	probe, src string
	want       bool
}{
	// names of values
	{"ib:modify_qp", "qp.state == RTR", true},
	{"ib:modify_qp", "RTR == qp.state", true},
	{"ib:modify_qp", "qp.state == rtr && ret == -einval && access & remote_read", true},
	{"ib:modify_qp", "qp.state == rts || ret == -eagain || access & remote_write", false},
	{"ib:modify_qp", "qp.state == 2", true},
	{"ib:modify_qp", "qp.state != RTR", false},
	{"ib:modify_qp", "qp.state in [INIT, RTR]", true},
	{"ib:modify_qp", "qp.state not in [INIT, RTS]", true},
	{"ib:modify_qp", "qp.state in INIT..RTS", true},
	{"ib:modify_qp", "RTR in [qp.state]", true},
	{"ib:modify_qp", "(qp.state ?? RESET) == RTR", true},
	{"ib:modify_qp", "(qp.old_state ?? RESET) == RESET", true},
	{"ib:modify_qp", "(qp.num > 5 ? qp.state : RESET) == RTR", true},
	{"ib:modify_qp", "qp_state.RTR == qp.state", true},
	{"ib:modify_qp", "qp_state.RTR == 2", true},
	{"ib:modify_qp", "event.ret < 0", true},
	{"ib:modify_qp", "access & REMOTE_READ", true},
	{"ib:modify_qp", "access & (REMOTE_READ | REMOTE_WRITE) == REMOTE_READ", true},
	{"ib:modify_qp", "access & ~REMOTE_READ", true},
	{"ib:modify_qp", "ret == -EINVAL", true},
	{"ib:modify_qp", "-EINVAL == ret", true},
	{"ib:modify_qp", "ret in [-EAGAIN, -EINVAL]", true},
	{"ib:modify_qp", "-ret == EINVAL", true},
	{"ib:modify_qp", "ret == -22", true},
	{"odd:words", "mode == odd_mode.size", true},
	{"odd:words", "mode != event.size", true},
	{"nvme:complete_rq", "opcode == nvme_opcode.write", true},

	// addresses
	{"ib:modify_qp", `sgid == "fe80::1"`, true},
	{"ib:modify_qp", `"fe80:0::1" == sgid`, true},
	{"ib:modify_qp", `sgid != "fe80::2"`, true},
	{"ib:modify_qp", `dgid == "10.9.0.1"`, true},
	{"ib:modify_qp", `dgid in ["10.9.0.2", "::ffff:10.9.0.1"]`, true},
	{"ib:modify_qp", `dgid == sgid`, false},
	{"ib:modify_qp", `(dgid ?? "::") == "::"`, false},

	// strings
	{"ib:modify_qp", `comm == "fio"`, true},
	{"ib:modify_qp", `comm < "fip" && comm >= "fio" && comm > "Z"`, true},
	{"ib:modify_qp", `comm contains "i" && comm startsWith "f" && comm endsWith "o"`, true},
	{"ib:modify_qp", `comm matches "^f.o$"`, true},
	{"ib:modify_qp", `comm not matches "x"`, true},
	{"ib:modify_qp", `comm in ["dd", "fio"]`, true},

	// numbers
	{"nvme:complete_rq", "latency > 1ms && latency <= 1500us", true},
	{"nvme:complete_rq", "size == 4KiB", true},
	{"nvme:complete_rq", "latency / 2 / 1000 == 750", true},
	{"nvme:complete_rq", "latency > 5 - 10", true},
	{"nvme:complete_rq", "latency", true},
	{"nvme:complete_rq", "!latency", false},
	{"nvme:complete_rq", "write == true && write != false && write", false},
	{"unit:numbers", "s64 < u64", true},
	{"unit:numbers", "-1 < u64", true},
	{"unit:numbers", "u64 == 0xffffffffffffffff", true},
	{"unit:numbers", "s64 == -9223372036854775808", true},
	{"unit:numbers", "s64 / -1 == s64", true},
	{"unit:numbers", "s64 % -1 == 0", true},
	{"unit:numbers", "s8 / 2 == -3 && s8 % 2 == -1", true},
	{"unit:numbers", "s8 / 0 == 0 && s8 % 0 == s8 && u64 / 0 == 0 && u64 % 0 == u64", true},
	{"unit:numbers", "s8 >> 1 == -4 && u64 >> 63 == 1 && u64 << 64 == u64", true},
	{"unit:numbers", "u64 + 1 == 0 && s8 + 0 == -7", true},
	{"unit:numbers", "u64 + s8 == -8", true},
	{"unit:numbers", "(b ? u64 : s8) == -1", true},
	{"unit:numbers", "5 - 10 == -5 && -3 + 5 == 2 && 1 << 63 == 0x8000000000000000", true},
	{"unit:numbers", "- -9223372036854775808 == 0x8000000000000000", true},
	{"unit:numbers", "2 ** 10 == 1024 && (-2) ** 3 == -8 && 2 ** -1 == 0 && (-1) ** -3 == -1", true},
	{"unit:numbers", "s8 in -10..0 && s8 in [1, -8..-6] && s8 not in [1..3]", true},
	{"unit:numbers", "s8 in []", false},
	{"unit:numbers", "u8 in [s8, u8]", true},

	// absent values
	{"unit:numbers", "ou64 > 1", false},
	{"unit:numbers", "!(ou64 > 1)", false},
	{"unit:numbers", "!ob", false},
	{"unit:numbers", "ou64 == nil && nil == os && u64 != nil && ou64 + 1 == nil", true},
	{"unit:numbers", "ou64 != nil", false},
	{"unit:numbers", "ob || true", true},
	{"unit:numbers", "true || ob", true},
	{"unit:numbers", "!(ob && false) && !(false && ob)", true},
	{"unit:numbers", "(ob && true) == nil && (true && ob) == nil && (ob || false) == nil && (ob || ob) == nil", true},
	{"unit:numbers", "ou64 ?? 7 == 7", true},
	{"unit:numbers", "ou64 ?? os64 ?? 7 == 7", true},
	{"unit:numbers", "os64 ?? u64 == -1", true},
	{"unit:numbers", "ob ?? true", true},
	{"unit:numbers", `os ?? "x" == "x"`, true},
	{"unit:numbers", "(ob ? 1 : 2) == 2", true},
	{"unit:numbers", "(b ? ou64 : 2) == nil", true},
	{"unit:numbers", "ou64 in [1, 2]", false},
	{"unit:numbers", "!(ou64 in [1, 2])", false},
	{"unit:numbers", "u8 in [ou64, 200]", true},
	{"unit:numbers", "!(u8 in [ou64, 1])", false},
	{"unit:numbers", "!(u8 in ou64..300)", false},
	{"unit:numbers", `!(os contains "x")`, false},
	{"unit:numbers", "-os64 == nil && ~ou64 == nil", true},
}

var events = map[string]langtest.Table{
	"ib:modify_qp": {"comm": "fio", "qp.num": uint64(17), "qp.state": int64(2), "ret": int64(-22), "access": uint64(5),
		"sgid": langtest.Addresses["fe80::1"], "dgid": langtest.Addresses["::ffff:10.9.0.1"]},
	"nvme:complete_rq": {"opcode": uint64(1), "size": uint64(4096), "latency": uint64(1.5e6), "write": false},
	"odd:words":        {"mode": uint64(1), "size": uint64(3)},
	"unit:numbers":     {"u8": uint64(200), "u64": uint64(math.MaxUint64), "s8": int64(-7), "s64": int64(math.MinInt64), "b": true},
}

func TestConditions(t *testing.T) {
	for _, test := range conditions {
		p, err := compile("program", test.probe+" / "+test.src+" /", langtest.Catalog, check.Options{})
		if err != nil {
			t.Errorf("%s:\n%v", test.src, err)
			continue
		}
		got, err := match(p.Clauses[0], langtest.Fixture(test.probe), events[test.probe])
		if err != nil || got != test.want {
			t.Errorf("%s: got %v, %v", test.src, got, err)
		}
	}
}

// An oracle is a random expression over unit:numbers, and its meaning in unbounded integers: value returns a *big.Int or a bool, or
// nil if it is absent.
type oracle struct {
	src    string
	signed bool
	value  func(e langtest.Table) any
}

type generator struct{ *rand.Rand }

func (g generator) number(depth int) oracle {
	if depth == 0 || g.IntN(6) == 0 {
		return g.field()
	}
	switch g.IntN(10) {
	case 0:
		return g.unary(depth)
	case 1:
		a, b := g.number(depth-1), g.numberOrLiteral(depth-1)
		signed := a.signed || b.signed
		return oracle{fmt.Sprintf("((%s) ?? (%s))", a.src, b.src), signed, func(e langtest.Table) any {
			v := a.value(e)
			if v == nil {
				v = b.value(e)
			}
			return wrap(v, signed)
		}}
	case 2:
		c, a, b := g.condition(depth-1), g.number(depth-1), g.numberOrLiteral(depth-1)
		signed := a.signed || b.signed
		return oracle{fmt.Sprintf("((%s) ? (%s) : (%s))", c.src, a.src, b.src), signed, func(e langtest.Table) any {
			if c.value(e) == true {
				return wrap(a.value(e), signed)
			}
			return wrap(b.value(e), signed)
		}}
	}
	op := []string{"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "**"}[g.IntN(11)]
	a, b := g.number(depth-1), g.numberOrLiteral(depth-1)
	if g.IntN(2) == 0 {
		a, b = b, a
	}
	signed := a.signed || b.signed || op == "-"
	return oracle{fmt.Sprintf("(%s %s %s)", a.src, op, b.src), signed, func(e langtest.Table) any {
		x, y := wrap(a.value(e), signed), wrap(b.value(e), signed)
		if x == nil || y == nil {
			return nil
		}
		return wrap(compute(op, x.(*big.Int), y.(*big.Int)), signed)
	}}
}

func (g generator) field() oracle {
	name := []string{"u8", "u64", "s8", "s64", "ou64", "os64"}[g.IntN(6)]
	return oracle{name, strings.Contains(name, "s"), func(e langtest.Table) any {
		switch v := e[name].(type) {
		case int64:
			return big.NewInt(v)
		case uint64:
			return new(big.Int).SetUint64(v)
		}
		return nil
	}}
}

func (g generator) numberOrLiteral(depth int) oracle {
	if g.IntN(2) == 0 {
		return g.number(depth)
	}
	if g.IntN(3) == 0 {
		v := big.NewInt(-1 - int64(g.boundary()>>1))
		return oracle{"(" + v.String() + ")", true, func(langtest.Table) any { return v }}
	}
	v := new(big.Int).SetUint64(g.boundary())
	return oracle{v.String(), false, func(langtest.Table) any { return v }}
}

func (g generator) unary(depth int) oracle {
	a := g.number(depth - 1)
	op := []string{"-", "~"}[g.IntN(2)]
	signed := a.signed || op == "-"
	return oracle{"(" + op + a.src + ")", signed, func(e langtest.Table) any {
		v := a.value(e)
		if v == nil {
			return nil
		}
		if op == "-" {
			return wrap(new(big.Int).Neg(v.(*big.Int)), signed)
		}
		return wrap(new(big.Int).Not(v.(*big.Int)), signed)
	}}
}

func (g generator) condition(depth int) oracle {
	if depth == 0 {
		name := []string{"b", "ob"}[g.IntN(2)]
		return oracle{src: name, value: func(e langtest.Table) any { return e[name] }}
	}
	switch g.IntN(7) {
	case 0:
		a := g.condition(depth - 1)
		return oracle{src: "!(" + a.src + ")", value: func(e langtest.Table) any {
			if v, ok := a.value(e).(bool); ok {
				return !v
			}
			return nil
		}}
	case 1, 2:
		a, b := g.condition(depth-1), g.condition(depth-1)
		op, decides := "&&", false
		if g.IntN(2) == 0 {
			op, decides = "||", true
		}
		return oracle{src: fmt.Sprintf("(%s %s %s)", a.src, op, b.src), value: func(e langtest.Table) any {
			x, y := a.value(e), b.value(e)
			switch {
			case x == decides || y == decides:
				return decides
			case x == nil || y == nil:
				return nil
			}
			return !decides
		}}
	case 3:
		a := g.number(depth - 1)
		return oracle{src: fmt.Sprintf("((%s) == nil)", a.src), value: func(e langtest.Table) any { return a.value(e) == nil }}
	case 4:
		a, b, lo, hi := g.number(depth-1), g.numberOrLiteral(depth-1), g.number(depth-1), g.number(depth-1)
		return oracle{src: fmt.Sprintf("((%s) in [%s, (%s)..(%s)])", a.src, b.src, lo.src, hi.src), value: func(e langtest.Table) any {
			x, y, l, h := a.value(e), b.value(e), lo.value(e), hi.value(e)
			switch {
			case x == nil:
				return nil
			case y != nil && x.(*big.Int).Cmp(y.(*big.Int)) == 0:
				return true
			case l != nil && h != nil && x.(*big.Int).Cmp(l.(*big.Int)) >= 0 && x.(*big.Int).Cmp(h.(*big.Int)) <= 0:
				return true
			case y == nil || l == nil || h == nil:
				return nil
			}
			return false
		}}
	}
	a, b := g.number(depth-1), g.numberOrLiteral(depth-1)
	if g.IntN(2) == 0 {
		a, b = b, a
	}
	op := []string{"==", "!=", "<", "<=", ">", ">="}[g.IntN(6)]
	return oracle{src: fmt.Sprintf("(%s %s %s)", a.src, op, b.src), value: func(e langtest.Table) any {
		x, y := a.value(e), b.value(e)
		if x == nil || y == nil {
			return nil
		}
		c := x.(*big.Int).Cmp(y.(*big.Int))
		return map[string]bool{"==": c == 0, "!=": c != 0, "<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[op]
	}}
}

// boundary returns a number that is likely to be near a boundary.
func (g generator) boundary() uint64 {
	edge := []uint64{0, 0, 7, 63, 64, 1 << 7, 1 << 31, 1 << 32, 1 << 62, 1 << 63, math.MaxUint64, g.Uint64()}[g.IntN(12)]
	return edge + g.Uint64N(3) - 1
}

func (g generator) event() langtest.Table {
	e := langtest.Table{"u8": g.boundary() & 0xff, "u64": g.boundary(), "s8": int64(int8(g.boundary())), "s64": int64(g.boundary()), "b": g.IntN(2) == 0}
	for name, v := range (langtest.Table{"ou64": g.boundary(), "os64": int64(g.boundary()), "ob": g.IntN(2) == 0}) {
		if g.IntN(2) == 0 {
			e[name] = v
		}
	}
	return e
}

var two64 = new(big.Int).Lsh(big.NewInt(1), 64)

// wrap reduces a number to 64 bits.
func wrap(v any, signed bool) any {
	if v == nil {
		return nil
	}
	n := new(big.Int).Mod(v.(*big.Int), two64)
	if signed && n.Bit(63) == 1 {
		n.Sub(n, two64)
	}
	return n
}

func compute(op string, a, b *big.Int) *big.Int {
	n := new(big.Int)
	count := uint(new(big.Int).And(b, big.NewInt(63)).Uint64())
	switch op {
	case "+":
		return n.Add(a, b)
	case "-":
		return n.Sub(a, b)
	case "*":
		return n.Mul(a, b)
	case "/":
		if b.Sign() == 0 {
			return n
		}
		return n.Quo(a, b)
	case "%":
		if b.Sign() == 0 {
			return a
		}
		return n.Rem(a, b)
	case "&":
		return n.And(a, b)
	case "|":
		return n.Or(a, b)
	case "^":
		return n.Xor(a, b)
	case "<<":
		return n.Lsh(a, count)
	case ">>":
		return n.Rsh(a, count)
	}
	if b.Sign() >= 0 {
		return n.Exp(a, b, two64)
	}
	positive := n.Exp(a, new(big.Int).Neg(b), two64)
	if a.CmpAbs(big.NewInt(1)) != 0 { // otherwise a**-b is 1 or -1, and so is 1 divided by it
		return new(big.Int)
	}
	return wrap(positive, true).(*big.Int)
}

// TestAgainstBig compares the engine with the oracle.
func TestAgainstBig(t *testing.T) {
	seed := uint64(1)
	g := generator{rand.New(rand.NewPCG(seed, seed))}
	expressions := 20000
	if testing.Short() {
		expressions = 1000
	}
	absent := 0
	for range expressions {
		o := g.number(1 + g.IntN(4))
		if g.IntN(2) == 0 {
			o = g.condition(1 + g.IntN(4))
		}
		v := evaluatorOf(t, o.src)
		for range 20 {
			e := g.event()
			want := o.value(e)
			got, err := v.eval(&scope{event: e})
			if err != nil {
				t.Fatalf("%s on %v: %v", o.src, e, err)
			}
			if want == nil {
				absent++
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s on %v: got %v, want %v", o.src, e, got, want)
			}
		}
	}
	if absent == 0 || absent > expressions*15 {
		t.Errorf("%d of %d values were absent: a poor test", absent, expressions*20)
	}
}

// evaluatorOf compiles any expression over unit:numbers.
func evaluatorOf(t testing.TB, src string) *evaluator {
	t.Helper()
	p, err := compile("program", "unit:numbers { print("+src+") }", langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := newEvaluator(p.Clauses[0].Sites[langtest.Fixture("unit:numbers")].Stmts[0].(*ir.CallStmt).Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLazy checks that unneeded operands are not computed.
func TestLazy(t *testing.T) {
	for src, reads := range map[string]int{
		"b && u8 > 1":  1,
		"!b || u8 > 1": 1,
		"b || u8 > 1":  2,
		"b ? u8 : s8":  2,
		"u8 ?? u64":    1,
	} {
		e := &counting{Table: langtest.Table{"b": false, "u8": uint64(1), "s8": int64(1)}}
		if _, err := evaluatorOf(t, src).eval(&scope{event: e}); err != nil || e.reads != reads {
			t.Errorf("%s reads %d fields, want %d; %v", src, e.reads, reads, err)
		}
	}
}

type counting struct {
	langtest.Table
	reads int
}

func (c *counting) Get(f *event.Field) (any, bool) {
	c.reads++
	return c.Table.Get(f)
}

// filters are conditions that hold for filtered. Differences are signed.
var (
	filters  = []string{"b", "u64 > 1ms", "u64 > 1ms && u8 == 200", "u64 > 1ms && (s8 in [1, 2, -7] || !b)", "u64 - 3 > 1ms"}
	filtered = event.Source(langtest.Table{"u8": uint64(200), "u64": uint64(math.MaxInt64), "s8": int64(-7), "b": true})
)

// What the benchmark measures holds.
func TestFilters(t *testing.T) {
	for _, src := range filters {
		if value, err := evaluatorOf(t, src).eval(&scope{event: filtered}); value != true || err != nil {
			t.Errorf("%s: %v, %v", src, value, err)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	for _, src := range filters {
		b.Run(src, func(b *testing.B) {
			v, sc := evaluatorOf(b, src), &scope{event: filtered}
			b.ReportAllocs()
			for b.Loop() {
				if value, err := v.eval(sc); value != true || err != nil {
					b.Fatal(value, err)
				}
			}
		})
	}
}
