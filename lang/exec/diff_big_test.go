package exec

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"trace/probes/event"
)

// This file is the third opinion of the differential test: an evaluator of generated programs, in math/big, written from doc.go. It
// shares nothing with the checker and the engines, which could be wrong together.

// opinion is one run of a program. Values are *big.Int, bool, string or, if absent, nil.
type opinion struct {
	prog    *diffProgram
	maxKeys int // the size of a map with a key whose let does not set one

	// What is signed: a variable, and a column of a map, if one of the values given to it is.
	vars   map[*diffVar]bool
	keys   map[*diffMap][]bool
	values map[*diffMap]bool
	tuples map[*diffMap][]bool
	parts  map[*diffVar][]bool

	// jumped is break or continue, until the loop goes on.
	jumped string

	begin   diffRun
	clauses []map[*event.Probe]diffRun
	// probe is the probe for whose events an expression is evaluated: fields of the same name have other types in another probe.
	probe   *event.Probe
	maps    map[*diffMap]*opinionMap
	event   rawEvent
	locals  map[*diffVar]any
	stopped bool
	printed int // events printed by clauses without a body
}

// diffEval computes an expression for the current event. diffRun runs a statement and returns true to end the clause.
type (
	diffEval func() any
	diffRun  func() bool
)

// opinionMap is the contents of a map, by the result of diffKeyText.
type opinionMap struct {
	rows         map[string]*opinionRow
	limit        int
	full, absent uint64
}

// opinionRow is the value of a scalar, []any if it is a tuple, or the state of an aggregation without buckets.
type opinionRow struct {
	value any
	state []*big.Int
}

func newOpinion(p *diffProgram, maxKeys int) *opinion {
	o := &opinion{
		prog: p, maxKeys: maxKeys, maps: map[*diffMap]*opinionMap{},
		vars: map[*diffVar]bool{}, keys: map[*diffMap][]bool{}, values: map[*diffMap]bool{}, tuples: map[*diffMap][]bool{}, parts: map[*diffVar][]bool{},
	}
	for _, m := range p.maps {
		o.keys[m], o.tuples[m] = make([]bool, len(m.keys)), make([]bool, len(m.tuple))
		o.maps[m] = &opinionMap{rows: map[string]*opinionRow{}, limit: o.limit(m)}
	}
	p.walk(func(s *diffStmt) {
		if s.v != nil {
			o.parts[s.v] = make([]bool, len(s.v.tuple))
		}
	})
	for o.findSigns() {
	}
	o.begin = o.stmts(p.begin)
	for _, c := range p.clauses {
		runs := map[*event.Probe]diffRun{}
		for _, o.probe = range c.probes {
			runs[o.probe] = o.clause(c)
		}
		o.clauses = append(o.clauses, runs)
	}
	return o
}

func (o *opinion) limit(m *diffMap) int {
	switch {
	case len(m.keys) == 0:
		return 1
	case m.maxKeys != 0:
		return m.maxKeys
	}
	return o.maxKeys
}

// findSigns looks at all values given to variables and maps. It returns true if that changed what is signed.
func (o *opinion) findSigns() bool {
	changed := false
	note := func(is, found bool) bool {
		changed = changed || found && !is
		return is || found
	}
	columns := func(signs []bool, values []*diffNode) {
		for i, n := range values {
			signs[i] = note(signs[i], o.signed(n))
		}
	}
	expr := func(n *diffNode) {
		if n.m != nil {
			columns(o.keys[n.m], n.args)
		}
	}
	statement := func(s *diffStmt) {
		s.walk(expr)
		switch s.kind {
		case "let":
			if s.v.tuple != nil {
				columns(o.parts[s.v], s.args)
				break
			}
			o.vars[s.v] = note(o.vars[s.v], s.takes() || o.signed(s.value))
		case "found":
			o.vars[s.from] = note(o.vars[s.from], o.values[s.m])
		case "step":
			o.vars[s.from] = note(o.vars[s.from], s.op == "--")
			o.vars[s.v] = note(o.vars[s.v], o.vars[s.from])
		case "set", "+=", "update": // all except tuples
			o.values[s.m] = note(o.values[s.m], s.value != nil && o.signed(s.value))
		case "--", "-=": // a subtraction may make it negative
			o.values[s.m] = note(o.values[s.m], true)
		}
		if s.m != nil {
			columns(o.keys[s.m], s.key)
			columns(o.tuples[s.m], s.args)
		}
	}
	walkDiff(o.prog.begin, statement)
	for _, c := range o.prog.clauses {
		for _, o.probe = range c.probes {
			c.pred.walk(expr)
			walkDiff(c.stmts, statement)
		}
	}
	return changed
}

func (n *diffNode) walk(visit func(*diffNode)) {
	if n == nil {
		return
	}
	visit(n)
	for _, a := range n.args {
		a.walk(visit)
	}
}

// signed reports whether a number is signed: a difference, a negation, and an operation on signed and unsigned numbers are.
func (o *opinion) signed(n *diffNode) bool {
	if n.sort != aNumber {
		return false
	}
	if n.constant() {
		return bigFold(n).Sign() < 0
	}
	switch n.op {
	case nField:
		return o.probe.Field(n.text).Type.Kind == event.Int
	case nVar:
		return o.vars[n.v]
	case nLookup:
		return n.m.agg != "count" && o.values[n.m]
	case nMember:
		return o.tuples[n.m][n.index]
	case nPart:
		return o.parts[n.v][n.index]
	case nCast, nElement:
		return n.signed
	case nSwap, nNumber:
		return false
	case nByte, nNeg, "-":
		return true
	case nCond:
		return o.signed(n.args[1]) || o.signed(n.args[2])
	}
	return slices.ContainsFunc(n.args, o.signed)
}

// bigFold computes an operation on literals. Its result is a literal: signed if it is negative. A negation is exact, and so is the
// sign of a difference.
func bigFold(n *diffNode) *big.Int {
	if n.op == nLit {
		return n.val.(*big.Int)
	}
	a := bigFold(n.args[0])
	if n.op == nMacro {
		return a
	}
	if n.op == nNeg {
		return new(big.Int).Neg(a)
	}
	if n.op == "~" {
		return bigWrap(new(big.Int).Not(a), a.Sign() < 0)
	}
	b := bigFold(n.args[1])
	signed := a.Sign() < 0 || b.Sign() < 0 || n.op == "-" && a.Cmp(b) < 0
	return bigCompute(n.op, bigWrap(a, signed), bigWrap(b, signed), signed)
}

var (
	bigTwo64  = new(big.Int).Lsh(big.NewInt(1), 64)
	bigMask64 = new(big.Int).Sub(bigTwo64, big.NewInt(1))
	bigZero   = new(big.Int)
)

// bigWrap returns the number in the low 64 bits.
func bigWrap(x *big.Int, signed bool) *big.Int {
	if signed && x.IsInt64() || !signed && x.IsUint64() {
		return x
	}
	x = new(big.Int).And(x, bigMask64)
	if signed && x.Bit(63) == 1 {
		x.Sub(x, bigTwo64)
	}
	return x
}

// bigCompute is arithmetic on numbers of the same sign.
func bigCompute(op string, a, b *big.Int, signed bool) *big.Int {
	x := new(big.Int)
	switch op {
	case "+":
		x.Add(a, b)
	case "-":
		x.Sub(a, b)
	case "*":
		x.Mul(a, b)
	case "/":
		if b.Sign() != 0 {
			x.Quo(a, b) // it truncates
		}
	case "%":
		if b.Sign() == 0 {
			return a
		}
		x.Rem(a, b)
	case "&":
		x.And(a, b)
	case "|":
		x.Or(a, b)
	case "^":
		x.Xor(a, b)
	case "<<":
		x.Lsh(a, bigShift(b))
	case ">>":
		x.Rsh(a, bigShift(b))
	case "**":
		return bigPower(a, b, signed)
	default:
		panic("no operator " + op)
	}
	return bigWrap(x, signed)
}

func bigShift(n *big.Int) uint { return uint(new(big.Int).And(n, big.NewInt(63)).Uint64()) }

// bigPower is modular; 1/a**n, truncated, for a negative n.
func bigPower(a, n *big.Int, signed bool) *big.Int {
	if n.Sign() >= 0 {
		return bigWrap(new(big.Int).Exp(new(big.Int).And(a, bigMask64), n, bigTwo64), signed)
	}
	switch {
	case a.Cmp(big.NewInt(1)) == 0, a.Cmp(big.NewInt(-1)) == 0 && n.Bit(0) == 0:
		return big.NewInt(1)
	case a.Cmp(big.NewInt(-1)) == 0:
		return a
	}
	return bigZero
}

func (o *opinion) clause(c *diffClause) diffRun {
	pred := func() any { return true }
	if c.pred != nil {
		pred = o.condition(c.pred)
	}
	run := o.stmts(c.stmts)
	return func() bool {
		if o.stopped || pred() != true {
			return false
		}
		o.locals = map[*diffVar]any{}
		if !c.block {
			o.printed++
		}
		return run()
	}
}

// run runs the program on an event.
func (o *opinion) run(e rawEvent) {
	o.event = e
	for _, runs := range o.clauses {
		if run := runs[e.probe]; run != nil {
			run()
		}
	}
}

// tick runs the interval clause.
func (o *opinion) tick() {
	if o.stopped {
		return
	}
	for _, t := range o.prog.interval {
		o.empty(t.m, t.fn)
	}
}

// crowded reports whether a map whose keys stay when it is emptied had more keys than room. Which keys stay is then unknown.
func (o *opinion) crowded() bool {
	for _, m := range o.prog.maps {
		cleared := slices.ContainsFunc(o.prog.interval, func(t diffTick) bool { return t.m == m && t.fn == "clear" })
		zeroed := slices.ContainsFunc(o.prog.interval, func(t diffTick) bool { return t.m == m && t.fn == "zero" })
		if (zeroed || m.agg == "rate" && !cleared) && o.maps[m].full > 0 {
			return true
		}
	}
	return false
}

// empty clears or zeroes a map.
func (o *opinion) empty(m *diffMap, fn string) {
	switch fn {
	case "clear":
		clear(o.maps[m].rows)
	case "zero":
		for _, row := range o.maps[m].rows {
			row.zero(m)
		}
	}
}

func (o *opinion) stmts(all []*diffStmt) diffRun {
	runs := make([]diffRun, len(all))
	for i, s := range all {
		runs[i] = o.stmt(s)
	}
	return func() bool {
		for _, run := range runs {
			if run() {
				return true
			}
		}
		return false
	}
}

func (o *opinion) stmt(s *diffStmt) diffRun {
	switch s.kind {
	case "let":
		if s.v.tuple != nil {
			values := o.list(s.args, o.parts[s.v])
			return func() bool { o.locals[s.v] = values(); return false }
		}
		value := o.as(s.value, o.vars[s.v])
		if s.takes() {
			value = diffBoth(o.eval(s.value.args[0]), o.eval(s.value.args[1]), func(a, b any) any {
				return bigCompute("-", a.(*big.Int), b.(*big.Int), true)
			})
		}
		return func() bool { o.locals[s.v] = value(); return false }
	case "if":
		cond, then, els := o.condition(s.value), o.stmts(s.then), o.stmts(s.els)
		return func() bool {
			if cond() == true {
				return then()
			}
			return els()
		}
	case "for", "unroll", "while":
		return o.loop(s)
	case "step":
		return o.step(s)
	case "found":
		return o.found(s)
	case "deleted":
		m, key := o.maps[s.m], o.key(s.m, s.key)
		return func() bool {
			k := key()
			o.locals[s.v] = m.rows[k] != nil
			delete(m.rows, k)
			return false
		}
	case "break", "continue":
		return func() bool { o.jumped = s.kind; return true }
	case "return":
		return func() bool { return true }
	case "exit":
		return func() bool { o.stopped = true; return true }
	case "clear", "zero":
		return func() bool { o.empty(s.m, s.kind); return false }
	case "printf", "print", "len":
		return func() bool { return false }
	}
	return o.change(s)
}

func (o *opinion) loop(s *diffStmt) diffRun {
	body := o.stmts(s.then)
	return func() bool {
		for i := range s.turns {
			o.locals[s.v] = big.NewInt(int64(s.low + i))
			if !body() {
				continue
			}
			jumped := o.jumped
			switch o.jumped = ""; jumped {
			case "":
				return true
			case "break":
				return false
			}
		}
		return false
	}
}

func (o *opinion) found(s *diffStmt) diffRun {
	m, key := o.maps[s.m], o.key(s.m, s.key)
	return func() bool {
		row := m.rows[key()]
		o.locals[s.v] = row != nil
		if row == nil {
			return false
		}
		o.locals[s.from] = row.value
		if x, ok := row.value.(*big.Int); ok {
			o.locals[s.from] = bigWrap(x, o.vars[s.from])
		}
		return false
	}
}

func (o *opinion) step(s *diffStmt) diffRun {
	by := int64(1)
	if s.op == "--" {
		by = -1
	}
	return func() bool {
		was := o.locals[s.from]
		if was == nil {
			o.locals[s.v] = nil
			return false
		}
		is := bigWrap(new(big.Int).Add(was.(*big.Int), big.NewInt(by)), o.vars[s.from])
		o.locals[s.from], o.locals[s.v] = is, is
		if s.post {
			o.locals[s.v] = was
		}
		return false
	}
}

// delta returns what a statement adds to a map or sets it to.
func (o *opinion) delta(s *diffStmt) diffEval {
	switch {
	case s.kind == "--":
		return func() any { return big.NewInt(-1) }
	case s.args != nil:
		return o.list(s.args, o.tuples[s.m])
	case s.value == nil: // ++, count() and rate()
		return func() any { return big.NewInt(1) }
	case s.kind == "-=":
		x := o.eval(s.value)
		return func() any {
			v := x()
			if v == nil {
				return nil
			}
			return new(big.Int).Neg(v.(*big.Int))
		}
	}
	return o.as(s.value, o.values[s.m])
}

// list computes values that are numbers of these signs.
func (o *opinion) list(nodes []*diffNode, signs []bool) diffEval {
	evals := make([]diffEval, len(nodes))
	for i, n := range nodes {
		evals[i] = o.as(n, signs[i])
	}
	return func() any {
		values := make([]any, len(evals))
		for i, eval := range evals {
			values[i] = eval()
		}
		return values
	}
}

// takes reports whether the statement is $v -= e, which makes $v signed.
func (s *diffStmt) takes() bool { return s.compound && s.value.op == "-" }

func (o *opinion) change(s *diffStmt) diffRun {
	m, key := o.maps[s.m], o.key(s.m, s.key)
	if s.kind == "delete" {
		return func() bool { delete(m.rows, key()); return false }
	}
	value := o.delta(s)
	return func() bool {
		k, v := key(), value()
		if v == nil {
			m.absent++
			return false
		}
		row := m.rows[k]
		if row == nil {
			if len(m.rows) >= m.limit {
				m.full++
				return false
			}
			row = &opinionRow{}
			m.rows[k] = row
		}
		switch {
		case s.m.agg != "":
			row.add(s.m.agg, v.(*big.Int))
		case s.kind == "set" || row.value == nil:
			row.value = o.asValue(s.m, v)
		default:
			row.value = o.asValue(s.m, new(big.Int).Add(row.value.(*big.Int), v.(*big.Int)))
		}
		return false
	}
}

func (o *opinion) asValue(m *diffMap, v any) any {
	if x, ok := v.(*big.Int); ok {
		return bigWrap(x, o.values[m])
	}
	return v
}

// add adds x to the state of an aggregation without buckets.
func (r *opinionRow) add(agg string, x *big.Int) {
	sum := func(i int, x *big.Int) { r.state[i] = bigWrap(new(big.Int).Add(r.state[i], x), false) }
	if r.state == nil {
		r.state = []*big.Int{bigZero, bigZero}
	}
	first := r.state[0].Sign() == 0
	switch agg {
	case "topk":
		sum(0, x)
	case "count", "rate":
		r.state = r.state[:1]
		sum(0, big.NewInt(1))
	case "sum", "gauge":
		r.state = r.state[:1]
		sum(0, x)
	case "avg", "stats":
		sum(0, big.NewInt(1))
		sum(1, x)
	case "min", "max":
		if better := x.Cmp(r.state[1]) < 0 == (agg == "min"); first || better && x.Cmp(r.state[1]) != 0 {
			r.state = []*big.Int{big.NewInt(1), x}
		}
	default: // buckets: the opinion only knows that they are not empty
		r.state[0] = big.NewInt(1)
	}
}

// zero makes the value of a scalar zero, and drops what an aggregation was given.
func (r *opinionRow) zero(m *diffMap) {
	for i := range r.state {
		r.state[i] = bigZero
	}
	if m.tuple == nil {
		r.value = diffZero(m.sort)
		return
	}
	values := make([]any, len(m.tuple))
	for i, s := range m.tuple {
		values[i] = diffZero(s)
	}
	r.value = values
}

func diffZero(s diffSort) any {
	return map[diffSort]any{aNumber: bigZero, aBool: false, aText: "", anError: "", aSignal: "", anAddress: strings.Repeat("\x00", 16)}[s]
}

// key returns the result of diffKeyText for a key of m.
func (o *opinion) key(m *diffMap, key []*diffNode) func() string {
	values := o.list(key, o.keys[m])
	return func() string { return diffKeyText(values().([]any)) }
}

// diffKeyText writes the values of a key, also for an engine.
func diffKeyText(key []any) string {
	var b strings.Builder
	for _, v := range key {
		fmt.Fprintf(&b, "%s ", diffValueText(v))
	}
	return b.String()
}

func diffValueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case *big.Int:
		return v.String()
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}

// as converts a number to a sign. It returns other values unchanged.
func (o *opinion) as(n *diffNode, signed bool) diffEval {
	eval := o.eval(n)
	if n.sort != aNumber || o.signed(n) == signed {
		return eval
	}
	return func() any {
		v := eval()
		if v == nil {
			return nil
		}
		return bigWrap(v.(*big.Int), signed)
	}
}

// condition computes a bool. A number holds if it is not 0.
func (o *opinion) condition(n *diffNode) diffEval {
	eval := o.eval(n)
	if n.sort != aNumber {
		return eval
	}
	return func() any {
		v := eval()
		if v == nil {
			return nil
		}
		return v.(*big.Int).Sign() != 0
	}
}

func (o *opinion) eval(n *diffNode) diffEval {
	if n.constant() {
		v := bigFold(n)
		return func() any { return v }
	}
	signed := o.signed(n)
	switch n.op {
	case nLit:
		return func() any { return n.val }
	case nField:
		f := o.probe.Field(n.text)
		return func() any { return o.fieldValue(f) }
	case nVar:
		return func() any { return o.locals[n.v] }
	case nPart:
		return func() any { return o.locals[n.v].([]any)[n.index] }
	case nMacro:
		return o.eval(n.args[0])
	case nLookup, nMember:
		return o.lookup(n)
	case nHasKey:
		m, key := o.maps[n.m], o.key(n.m, n.args)
		return func() any { return m.rows[key()] != nil }
	case nIsNil, nNotNil:
		x := o.eval(n.args[0])
		return func() any { return (x() == nil) == (n.op == nIsNil) }
	case "!", "not":
		x := o.condition(n.args[0])
		return func() any { return diffNot(x()) }
	case "&&", "and":
		return diffKleene(false, o.condition(n.args[0]), o.condition(n.args[1]))
	case "||", "or":
		return diffKleene(true, o.condition(n.args[0]), o.condition(n.args[1]))
	case nCond:
		cond, yes, no := o.condition(n.args[0]), o.as(n.args[1], signed), o.as(n.args[2], signed)
		return func() any {
			if cond() == true {
				return yes()
			}
			return no()
		}
	case "??":
		x, y := o.as(n.args[0], signed), o.as(n.args[1], signed)
		return func() any {
			if v := x(); v != nil {
				return v
			}
			return y()
		}
	case "in":
		return o.in(n)
	case "not in":
		in := o.in(n)
		return func() any { return diffNot(in()) }
	case nCast, nNumber:
		return o.cast(n)
	case nElement:
		return o.element(n)
	case nSwap:
		return o.swap(n)
	case nByte:
		return o.byteOf(n)
	case nAsOne:
		return o.asOne(n)
	case nTruth:
		x := o.eval(n.args[0])
		return func() any {
			switch v := x().(type) {
			case *big.Int:
				return v.Sign() != 0
			case string:
				return v != ""
			}
			return nil
		}
	case nNamed:
		return o.named(n)
	case nString:
		field := o.probe.Field(n.args[0].text)
		x := o.eval(n.args[0])
		return func() any {
			if v := x(); v != nil {
				return diffText(field.Type, v)
			}
			return nil
		}
	case nNeg, "~":
		return o.unary(n, signed)
	}
	if _, arithmetic := slices.BinarySearch(diffSortedArithmetic, n.op); arithmetic {
		return diffBoth(o.as(n.args[0], signed), o.as(n.args[1], signed), func(a, b any) any {
			return bigCompute(n.op, a.(*big.Int), b.(*big.Int), signed)
		})
	}
	return diffBoth(o.eval(n.args[0]), o.eval(n.args[1]), func(a, b any) any { return diffRelation(n.op, a, b) })
}

var diffSortedArithmetic = slices.Sorted(slices.Values(append(slices.Clone(diffArithmetic), "**")))

func (o *opinion) fieldValue(f *event.Field) any {
	switch v := o.event.get(f).(type) {
	case int64:
		return big.NewInt(v)
	case uint64:
		return new(big.Int).SetUint64(v)
	default:
		return v
	}
}

// lookup reads a scalar or an element of a tuple, 0 or "" if there is no such key, or the number of an aggregation.
func (o *opinion) lookup(n *diffNode) diffEval {
	m, key, zero := o.maps[n.m], o.key(n.m, n.args), diffZero(n.sort)
	return func() any {
		row := m.rows[key()]
		switch {
		case row == nil:
			return zero
		case n.op == nMember:
			return row.value.([]any)[n.index]
		case n.m.agg == "":
			return row.value
		}
		return row.number(n.m.agg, o.values[n.m])
	}
}

// number is how an expression reads an aggregation.
func (r *opinionRow) number(agg string, signed bool) *big.Int {
	switch agg {
	case "avg":
		return bigCompute("/", bigWrap(r.state[1], signed), r.state[0], signed)
	case "min", "max":
		return r.state[1]
	case "sum":
		return bigWrap(r.state[0], signed)
	}
	return r.state[0]
}

// diffBoth computes an operation that is absent if one of its operands is.
func diffBoth(x, y diffEval, f func(a, b any) any) diffEval {
	return func() any {
		a, b := x(), y()
		if a == nil || b == nil {
			return nil
		}
		return f(a, b)
	}
}

// diffKleene is && (false decides) or || (true does).
func diffKleene(decides bool, x, y diffEval) diffEval {
	return func() any {
		a, b := x(), y()
		switch {
		case a == decides || b == decides:
			return decides
		case a == nil || b == nil:
			return nil
		}
		return !decides
	}
}

func diffNot(v any) any {
	if v == nil {
		return nil
	}
	return !v.(bool)
}

func (o *opinion) unary(n *diffNode, signed bool) diffEval {
	x := o.eval(n.args[0])
	return func() any {
		v := x()
		if v == nil {
			return nil
		}
		if n.op == nNeg {
			return bigWrap(new(big.Int).Neg(v.(*big.Int)), signed)
		}
		return bigWrap(new(big.Int).Not(v.(*big.Int)), signed)
	}
}

// cast keeps the low bits.
func (o *opinion) cast(n *diffNode) diffEval {
	x := o.eval(n.args[0])
	return func() any {
		v := x()
		if v == nil {
			return nil
		}
		return lowBits(v.(*big.Int), n.bits, n.signed)
	}
}

// element keeps bits from the middle.
func (o *opinion) element(n *diffNode) diffEval {
	x := o.eval(n.args[0])
	return func() any {
		v := x()
		if v == nil {
			return nil
		}
		moved := new(big.Int).Rsh(v.(*big.Int), uint(n.index*n.bits))
		return lowBits(moved, n.bits, n.signed)
	}
}

// lowBits returns the low bits of a number in two's complement.
func lowBits(x *big.Int, bits int, signed bool) *big.Int {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	low := new(big.Int).And(x, new(big.Int).Sub(modulus, big.NewInt(1)))
	if signed && low.Bit(bits-1) == 1 {
		low.Sub(low, modulus)
	}
	return low
}

// swap reverses the bytes of what a cast keeps.
func (o *opinion) swap(n *diffNode) diffEval {
	x := o.cast(n)
	return func() any {
		v := x()
		if v == nil {
			return nil
		}
		b := v.(*big.Int).FillBytes(make([]byte, n.bits/8))
		slices.Reverse(b)
		return new(big.Int).SetBytes(b)
	}
}

// byteOf returns a byte of a text, with a sign; 0 beyond its end.
func (o *opinion) byteOf(n *diffNode) diffEval {
	x := o.eval(n.args[0])
	return func() any {
		text, present := x().(string)
		switch {
		case !present:
			return nil
		case n.index >= len(text):
			return new(big.Int)
		}
		return lowBits(big.NewInt(int64(text[n.index])), 8, true)
	}
}

// named returns the text of a number.
func (o *opinion) named(n *diffNode) diffEval {
	x := o.eval(n.args[0])
	return func() any {
		if v := x(); v != nil {
			return diffNamed[n.sort].of(lowBits(v.(*big.Int), 64, true).Int64())
		}
		return nil
	}
}

// asOne compares a number with a boolean, which is 1 or 0.
func (o *opinion) asOne(n *diffNode) diffEval {
	number := o.cast(&diffNode{op: nCast, sort: aNumber, args: n.args[1:], bits: n.bits})
	return diffBoth(o.eval(n.args[0]), number, func(b, x any) any {
		one := int64(0)
		if b == true {
			one = 1
		}
		return x.(*big.Int).Cmp(big.NewInt(one)) == 0
	})
}

// in is an || of == and of ranges. A range with an absent bound is absent.
func (o *opinion) in(n *diffNode) diffEval {
	x := o.eval(n.args[0])
	var tests []func(x any) any
	for _, element := range n.args[1:] {
		if element.op == nBetween {
			lo, hi := o.eval(element.args[0]), o.eval(element.args[1])
			tests = append(tests, func(x any) any {
				return diffBoth(lo, hi, func(lo, hi any) any {
					return diffRelation(">=", x, lo).(bool) && diffRelation("<=", x, hi).(bool)
				})()
			})
			continue
		}
		y := o.eval(element)
		tests = append(tests, func(x any) any {
			return diffBoth(func() any { return x }, y, func(a, b any) any { return diffRelation("==", a, b) })()
		})
	}
	return func() any {
		v := x()
		if v == nil {
			return nil
		}
		var result any = false
		for _, test := range tests {
			switch test(v) {
			case true:
				return true
			case nil:
				result = nil
			}
		}
		return result
	}
}

// diffRelation compares numbers mathematically, and strings byte by byte.
func diffRelation(op string, a, b any) any {
	if s, ok := a.(string); ok {
		switch t := b.(string); op {
		case "startsWith":
			return strings.HasPrefix(s, t)
		case "not startsWith":
			return !strings.HasPrefix(s, t)
		case "contains":
			return strings.Contains(s, t)
		case "not contains":
			return !strings.Contains(s, t)
		case "endsWith":
			return strings.HasSuffix(s, t)
		}
	}
	var order int
	switch a := a.(type) {
	case *big.Int:
		order = a.Cmp(b.(*big.Int))
	case string:
		order = strings.Compare(a, b.(string))
	case bool:
		if a != b.(bool) {
			order = 1
		}
	}
	switch op {
	case "==":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	panic("no operator " + op)
}
