package exec

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// This file makes random programs as trees of its own, so that the third opinion on them (diff_big_test.go) shares nothing with the
// checker, and their text.

// diffSort is a sort of values that can be compared. The generator does not know whether a number is signed.
type diffSort uint8

const (
	aNumber diffSort = iota
	aBool
	aText
	anAddress
	anError // the text of an error number
	aSignal // the text of a signal
	aTuple  // only of a variable
)

// diffNamed are the functions that make texts of numbers, and some of their texts.
var diffNamed = map[diffSort]struct {
	fn    string
	of    func(int64) string
	texts []string
}{
	anError: {"strerror", format.ErrorText, []string{"", "Success", "Unknown error", "No such file or directory", "Invalid argument", "File exists"}},
	aSignal: {"signal_name", format.SignalText, []string{"", "Killed", "Hangup", "N/A", "Unknown signal 0", "Unknown signal -1", "Unknown signal 33", "Real-time signal 30"}},
}

// diffNode is an expression. op is an operator as the language writes it, or one of the names below.
type diffNode struct {
	op   string
	args []*diffNode
	sort diffSort

	text   string   // of nLit, as it is written; of nField its name
	val    any      // of nLit: *big.Int, bool or string
	v      *diffVar // of nVar and nPart
	m      *diffMap // of nLookup, nMember and nHasKey; args are the key
	index  int      // of nMember and nPart
	macro  *diffMacro
	tuple  bool // two equalities with && between them are written as one of tuples
	bits   int  // of nCast and nSwap, with
	signed bool
}

const (
	nLit     = "literal"
	nField   = "field"
	nVar     = "variable"
	nLookup  = "lookup"
	nMember  = "member" // element index of the tuple that a map holds
	nHasKey  = "has_key"
	nCast    = "cast"
	nSwap    = "bswap"   // of an unsigned cast to bits
	nElement = "[]"      // element index of an array of casts to bits
	nNumber  = "whole"   // of an array that an unsigned cast to bits fills
	nByte    = "byte"    // index of a text
	nAsOne   = "bool ==" // a boolean beside an unsigned cast to bits
	nNeg     = "negation"
	nIsNil   = "== nil"
	nNotNil  = "!= nil"
	nBetween = ".."
	nCond    = "?:"
	nString  = "string" // string(args[0]), which is a field
	nTruth   = "(bool)" // of a number or a text
	nNamed   = "named"  // the text of a number, as the sort has it
	nPart    = "part"   // element index of the tuple in a variable
	nMacro   = "macro"  // a call; args[0] is what it stands for
)

// diffMacro is the macro of one call. arg is the node of what it stands for that is its argument.
type diffMacro struct {
	name string
	arg  *diffNode
}

// diffVar is a $variable of a clause.
type diffVar struct {
	name  string
	sort  diffSort
	tuple []diffSort // of a tuple
	form  diffForm
	// bits and signed are of a number with a declared type; bits is 0 otherwise.
	bits   int
	signed bool
}

// diffMap is a map of the program.
type diffMap struct {
	name      string
	keys      []diffSort
	agg       string // name of the aggregation; empty for a scalar
	params    string // that follow the argument
	low, step int64  // of lhist
	sort      diffSort
	tuple     []diffSort // of a scalar whose values are tuples; sort is unused then
	keyForm   diffForm
	form      diffForm // of a tuple
	own       bool     // every key begins with tid
	weighs    bool     // topk adds up numbers
	asked     bool     // has_key is called on it
	kind      string   // of a let: hash or lru
	maxKeys   int
}

// diffForm is how a tuple or a key is written.
type diffForm int

const (
	inRow  diffForm = iota // a, b, c
	nested                 // a, (b, c)
	record                 // a = a, b = b, c = c; as a key in brackets
	diffForms
)

// parts returns the parts of a tuple of these values.
func (f diffForm) parts(texts []string) []string {
	switch f {
	case nested:
		closing := ")"
		if len(texts) == 2 {
			closing = ",)"
		}
		return []string{texts[0], "(" + diffList(texts[1:]) + closing}
	case record:
		named := make([]string, len(texts))
		for i, text := range texts {
			named[i] = fmt.Sprintf("%c = %s", 'a'+i, text)
		}
		return named
	}
	return texts
}

// member returns how a value of the tuple is read.
func (f diffForm) member(i int) string {
	switch {
	case f == record:
		return fmt.Sprintf(".%c", 'a'+i)
	case f == nested && i > 0:
		return fmt.Sprintf(".1.%d", i-1)
	}
	return fmt.Sprintf(".%d", i)
}

// diffStmt is a statement. kind is one of: let step deleted found if for while break continue return set += -= ++ -- update delete printf exit; print clear zero len.
type diffStmt struct {
	kind  string
	v     *diffVar
	m     *diffMap
	key   []*diffNode
	value *diffNode // nil of count()
	// declares is of the let of a variable with a type.
	declares bool
	// chosen reports that args are choices with one condition, written as a choice of tuples.
	chosen bool
	// compound reports that value is an operation on the old value, written like *=.
	compound  bool
	args      []*diffNode // of printf, and the elements of a tuple
	format    string
	then, els []*diffStmt
	// low and turns are of a loop, whose variable is v. A step is v = from++, or another one of these.
	low, turns int
	from       *diffVar // of found: what is set to the value that is found
	post       bool
	op         string // ++ or --
}

type diffClause struct {
	where  string // probes as written
	probes []*event.Probe
	pred   *diffNode // nil: always
	block  bool      // without a body it prints the event
	stmts  []*diffStmt
}

type diffProgram struct {
	maps    []*diffMap
	macros  int
	begin   []*diffStmt
	clauses []*diffClause
	// interval prints maps, and clears or zeroes them.
	interval []diffTick
}

// diffTick is what an interval clause does with a map.
type diffTick struct {
	m     *diffMap
	print string // print and its arguments
	fn    string // clear, zero, or none
}

// diffGen makes programs.
type diffGen struct {
	*rand.Rand
	probes []*event.Probe // diff:event and diff:other
	inUser bool           // use what only user space supports
	// literals reports that there is no event.
	literals bool

	prog *diffProgram
	// Of the current clause.
	clause *diffClause
	vars   []*diffVar        // assigned ones
	names  int               // of variables
	loops  int               // around the statement
	reads  map[*diffMap]bool // maps that it may read; it may set others
	budget int               // of nodes, to keep the code within the kernel's limits
}

func (g *diffGen) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *diffGen, all []T) T { return all[g.IntN(len(all))] }

func (g *diffGen) program() *diffProgram {
	g.prog = &diffProgram{}
	for i := range g.IntN(5) {
		g.prog.maps = append(g.prog.maps, g.newMap(i))
	}
	for range 1 + min(g.IntN(5), g.IntN(5)) {
		g.prog.clauses = append(g.prog.clauses, g.newClause())
	}
	g.setAll()
	if g.one(4) {
		g.begin()
	}
	if g.one(3) {
		g.interval()
	}
	return g.prog
}

// setAll adds a clause for the maps that no other clause sets: reading a map that is never set is an error.
func (g *diffGen) setAll() {
	c := g.begins(20)
	c.block = true
	for _, m := range g.prog.maps {
		if !g.prog.updates(m) {
			g.reads = map[*diffMap]bool{}
			s := g.change(m)
			for s.kind == "delete" {
				s = g.change(m)
			}
			c.stmts = append(c.stmts, s)
		}
	}
	if c.stmts != nil {
		g.prog.clauses = append(g.prog.clauses, c)
	}
}

// begin changes maps before the first event. Only literals are available there. An address is not a literal, and a literal as the first
// text of a map may make the others plain texts, which only user space has.
func (g *diffGen) begin() {
	g.vars, g.literals = nil, true
	for _, m := range g.prog.maps {
		sorts := slices.Concat(m.keys, m.tuple, []diffSort{m.sort})
		if slices.ContainsFunc(sorts, func(s diffSort) bool { return s >= anAddress }) || !g.one(2) {
			continue
		}
		if m.agg != "" && !g.inUser {
			continue // a map is in user space unless only events aggregate in it
		}
		for range 1 + g.IntN(2) {
			g.budget, g.reads = 10, map[*diffMap]bool{}
			g.prog.begin = append(g.prog.begin, g.change(m))
		}
	}
	g.literals = false
}

// interval prints maps, and clears or zeroes some.
func (g *diffGen) interval() {
	for _, m := range g.prog.maps {
		if !g.one(2) {
			continue
		}
		t := diffTick{m: m, print: pick(g, m.prints())}
		switch {
		case m.agg == "rate": // print zeroes these
			t.print = ""
		case m.agg == "topk":
			t.fn = pick(g, []string{"clear", ""})
		case g.inUser || m.kind != "lru" && !g.prog.mixes(m):
			t.fn = pick(g, []string{"clear", "clear", "zero", ""})
		case m.agg == "" && t.print == "": // otherwise it is in user space, and also if it is set to zero
			t.fn = "clear"
		}
		g.prog.interval = append(g.prog.interval, t)
	}
}

// diffAggs are the aggregations, and their further arguments.
var diffAggs = []struct {
	name   string
	params []string
}{
	{"count", nil}, {"sum", nil}, {"avg", nil}, {"min", nil}, {"max", nil}, {"stats", nil},
	{"hist", []string{
		"", ", 1", ", 2", ", 3", ", min=10", ", min=-5, shift=2", ", 2, shift=10", ", min=8000000000, shift=33", ", 1, min=-3000000000",
	}},
	{"lhist", nil},
	{"quantile", []string{", 50", ", 50, 99, 99.9"}}, {"gauge", nil}, {"rate", nil},
	{"topk", []string{", 1", ", 3", ", 1000"}},
}

func (g *diffGen) newMap(i int) *diffMap {
	m := &diffMap{name: fmt.Sprintf("@m%d", i), sort: g.sort()}
	m.own = g.one(4)
	if m.own {
		m.keys = append(m.keys, aNumber)
	}
	for range g.IntN(4 - len(m.keys)) {
		m.keys = append(m.keys, g.sort())
	}
	if g.one(2) {
		a := pick(g, diffAggs)
		m.agg, m.sort = a.name, aNumber
		if a.params != nil {
			m.params = pick(g, a.params)
		}
		if m.agg == "lhist" {
			g.linear(m)
		}
		if m.agg == "topk" {
			m.weighs = g.one(2)
			if len(m.keys) == 0 {
				m.keys = append(m.keys, g.sort())
			}
			m.kind, m.maxKeys = "hash", 10*diffEvents // never full: then the engines have different bounds
			return m
		}
	} else if g.one(5) {
		m.tuple = append(m.tuple, g.sort(), g.sort())
		if g.one(3) {
			m.tuple = append(m.tuple, g.sort())
		}
		m.form = diffForm(g.IntN(int(diffForms)))
	}
	if len(m.keys) > 1 && g.one(3) {
		m.keyForm = diffForm(g.IntN(int(diffForms)))
	}
	if len(m.keys) > 0 && g.one(4) {
		m.kind, m.maxKeys = "hash", 1+g.IntN(20)
		if g.one(3) {
			m.kind, m.maxKeys = "lru", 1000 // never full: which key is dropped is unknown
		}
	}
	return m
}

// linear chooses the arguments of lhist: up to 200 steps from below or above 0.
func (g *diffGen) linear(m *diffMap) {
	step := 1 + int64(g.Uint64()>>(8+g.IntN(55))) // 200 of them fit in a number
	m.low = int64(g.Uint64()) >> (8 + g.IntN(55))
	if g.one(3) {
		m.low = 0
	}
	high := m.low + step*int64(1+g.IntN(200)) - g.Int64N(step)
	if high <= m.low {
		high = m.low + step
	}
	m.step = step
	m.params = fmt.Sprintf(", %d, %d, %d", m.low, high, step)
}

// sort of a value; most are numbers.
func (g *diffGen) sort() diffSort {
	switch g.IntN(10) {
	case 8:
		return anError
	case 9:
		return aSignal
	case 0:
		return aBool
	case 1:
		return aText
	case 2:
		return anAddress
	}
	return aNumber
}

// begins begins a clause of so many nodes.
func (g *diffGen) begins(budget int) *diffClause {
	g.vars, g.names, g.budget = nil, 0, budget
	switch g.IntN(6) {
	case 0:
		g.clause = &diffClause{where: pick(g, []string{"diff:*", "diff:event, diff:other"}), probes: g.probes}
	case 1:
		g.clause = &diffClause{where: "diff:other", probes: g.probes[1:]}
	default:
		g.clause = &diffClause{where: "diff:event", probes: g.probes[:1]}
	}
	return g.clause
}

// prints returns statements of an interval clause that print the map.
func (m *diffMap) prints() []string {
	all := []string{"print(%s)", "print(%s, 3)", "print(%s, 5, 2)", ""}
	if len(m.keys) > 0 {
		all = append(all, `printf("%%d\n", len(%s))`)
		if !slices.Contains([]string{"stats", "hist", "lhist", "quantile", "topk"}, m.agg) { // these are not numbers
			all = append(all, `for ($kv : %s) { printf("%%t %%t\n", $kv.0, $kv.1) }`)
		}
	}
	return all
}

func (g *diffGen) newClause() *diffClause {
	c := g.begins(60)
	g.reads = map[*diffMap]bool{}
	for _, m := range g.prog.maps {
		g.reads[m] = m.agg == "" && g.one(2)
	}
	if !g.one(4) {
		c.pred = g.condition(2 + g.IntN(3))
	}
	if c.block = !g.one(6); c.block {
		c.stmts = g.stmts(2, 1+g.IntN(4))
	}
	return c
}

func (g *diffGen) stmts(nesting, n int) []*diffStmt {
	var all []*diffStmt
	for range n {
		s := g.stmt(nesting)
		all = append(all, s)
		if slices.Contains([]string{"return", "exit", "break", "continue"}, s.kind) {
			break
		}
	}
	return all
}

func (g *diffGen) stmt(nesting int) *diffStmt {
	switch n := g.IntN(12); {
	case n < 2:
		return g.let()
	case n < 4 && nesting > 0:
		return g.ifStmt(nesting - 1)
	case n == 7 && g.one(2):
		return g.printf()
	case n == 4 && nesting > 0 && g.one(2):
		return g.loop(nesting - 1)
	case n == 5 && g.loops > 0:
		return &diffStmt{kind: pick(g, []string{"break", "continue"})}
	case n == 6 && g.one(2) && len(g.stepped()) > 0:
		return g.step()
	case n == 4 && g.one(8):
		return g.deleted()
	case n == 4 && g.one(4):
		return g.found()
	case n == 5 && nesting < 2 && g.one(3):
		return &diffStmt{kind: "return"}
	case n == 6 && nesting < 2 && g.one(20):
		return &diffStmt{kind: "exit"}
	case n < 9 || len(g.prog.maps) == 0:
		return g.check()
	}
	m := pick(g, g.prog.maps)
	if g.inUser && m.agg != "rate" && g.one(8) { // printing restarts rates
		kinds := []string{"print", "clear", "len", "zero"}
		if m.agg == "topk" { // nothing has a rank at 0
			kinds = kinds[:3]
		}
		return &diffStmt{kind: pick(g, kinds), m: m}
	}
	return g.change(m)
}

// check sets a map of its own to a value, with another key for each event.
func (g *diffGen) check() *diffStmt {
	m := &diffMap{name: fmt.Sprintf("@c%d", len(g.prog.maps)), keys: []diffSort{aNumber}, sort: g.sort()}
	g.prog.maps = append(g.prog.maps, m)
	key := g.fieldNode("nsecs", aNumber) // the test gives each event another one
	return &diffStmt{kind: "set", m: m, key: []*diffNode{key}, value: g.expr(m.sort, 3)}
}

func (g *diffGen) let() *diffStmt {
	if g.one(6) {
		return g.letTuple()
	}
	v := &diffVar{sort: g.sort()}
	if old := g.variables(v.sort); len(old) > 0 && g.one(2) {
		v = pick(g, old)
		if v.sort == aNumber && v.bits == 0 && g.one(3) {
			s := &diffStmt{kind: "let", v: v, value: g.compound(&diffNode{op: nVar, v: v}), compound: true}
			if s.value.op == "-" && !opposable(s.value.args[1]) {
				s.value.op = "+"
			}
			return s
		}
		return &diffStmt{kind: "let", v: v, value: g.valueOf(v)}
	}
	v.name = fmt.Sprintf("$v%d", g.names)
	g.names++
	if v.sort == aNumber && g.one(4) {
		v.bits, v.signed = 8<<g.IntN(4), g.one(2)
	}
	s := &diffStmt{kind: "let", v: v, value: g.valueOf(v), declares: v.bits > 0}
	g.vars = append(g.vars, v)
	return s
}

// letTuple sets a variable to a tuple.
func (g *diffGen) letTuple() *diffStmt {
	var v *diffVar
	if old := g.variables(aTuple); len(old) > 0 && g.one(2) {
		v = pick(g, old)
	} else {
		v = &diffVar{name: fmt.Sprintf("$v%d", g.names), sort: aTuple, form: diffForm(g.IntN(int(diffForms)))}
		g.names++
		for range 2 + g.IntN(2) {
			v.tuple = append(v.tuple, g.sort())
		}
		defer func() { g.vars = append(g.vars, v) }()
	}
	s := &diffStmt{kind: "let", v: v}
	s.args, s.chosen = g.elements(v.tuple)
	return s
}

// elements are the values of a tuple. chosen reports that all are choices with one condition.
func (g *diffGen) elements(sorts []diffSort) (elements []*diffNode, chosen bool) {
	cond := g.condition(1)
	chosen = g.one(4)
	for _, sort := range sorts {
		e := g.expr(sort, 2)
		if chosen {
			e = g.node(nCond, sort, cond, e, g.expr(sort, 1))
		}
		elements = append(elements, e)
	}
	return elements, chosen
}

// valueOf is a value for a variable. What a variable with a type is set to is cast to it.
func (g *diffGen) valueOf(v *diffVar) *diffNode {
	n := g.expr(v.sort, 3)
	if v.bits > 0 {
		n = &diffNode{op: nCast, sort: aNumber, args: []*diffNode{n}, bits: v.bits, signed: v.signed}
	}
	return n
}

// deleted deletes a key, and keeps whether there was one.
func (g *diffGen) deleted() *diffStmt {
	maps := slices.DeleteFunc(slices.Clone(g.prog.maps), func(m *diffMap) bool {
		return len(m.keys) == 0 || m.agg != "" || !m.own && !g.inUser
	})
	if len(maps) == 0 {
		return g.check()
	}
	s := &diffStmt{kind: "deleted", v: &diffVar{name: fmt.Sprintf("$v%d", g.names), sort: aBool}, m: pick(g, maps)}
	s.key, s.m.asked = g.key(s.m), true
	g.names++
	g.vars = append(g.vars, s.v)
	return s
}

// found keeps whether a scalar has a key, and sets a variable to its value if so.
func (g *diffGen) found() *diffStmt {
	maps := g.readable(func(m *diffMap) bool {
		return m.agg == "" && m.tuple == nil && len(m.keys) > 0 && slices.ContainsFunc(g.variables(m.sort), undeclared)
	})
	if len(maps) == 0 {
		return g.check()
	}
	m := pick(g, maps)
	m.asked = true
	s := &diffStmt{kind: "found", v: &diffVar{name: fmt.Sprintf("$v%d", g.names), sort: aBool}, m: m, key: g.key(m)}
	s.from = pick(g, slices.DeleteFunc(g.variables(m.sort), func(v *diffVar) bool { return !undeclared(v) }))
	g.names++
	g.vars = append(g.vars, s.v)
	return s
}

// undeclared reports whether a variable has no type of its own.
func undeclared(v *diffVar) bool { return v.bits == 0 }

// compound is an operation on a target.
func (g *diffGen) compound(target *diffNode) *diffNode {
	return g.node(pick(g, diffArithmetic), aNumber, target, g.number(2))
}

// opposable reports whether n may be subtracted with -=: the checker requires that the negation of a literal fits in 64 bits.
func opposable(n *diffNode) bool {
	return !n.constant() || new(big.Int).Neg(bigFold(n)).IsInt64()
}

func (g *diffGen) variables(s diffSort) []*diffVar {
	var found []*diffVar
	for _, v := range g.vars {
		if v.sort == s {
			found = append(found, v)
		}
	}
	return found
}

func (g *diffGen) ifStmt(nesting int) *diffStmt {
	s := &diffStmt{kind: "if", value: g.condition(2)}
	before := len(g.vars)
	s.then = g.stmts(nesting, 1+g.IntN(2))
	g.vars = g.vars[:before] // variables of a branch are not visible after it
	if g.one(2) {
		s.els = g.stmts(nesting, 1+g.IntN(2))
		g.vars = g.vars[:before]
	}
	return s
}

// loop runs a few times, so that the kernel can copy its body; a while only user space can run.
func (g *diffGen) loop(nesting int) *diffStmt {
	s := &diffStmt{kind: "for", v: &diffVar{name: fmt.Sprintf("$v%d", g.names), sort: aNumber}, low: g.IntN(3), turns: g.IntN(4)}
	g.names++
	before := len(g.vars)
	if s.kind = pick(g, []string{"for", "for", "unroll", "while"}); s.kind == "while" && !g.inUser {
		s.kind = "for"
	}
	switch s.kind {
	case "for":
		g.vars = append(g.vars, s.v)
	case "unroll":
		s.turns++
	}
	g.loops++
	s.then = g.stmts(nesting, 1+g.IntN(2))
	g.loops--
	g.vars = g.vars[:before]
	return s
}

// stepped returns the numbers without a type of their own.
func (g *diffGen) stepped() []*diffVar {
	return slices.DeleteFunc(g.variables(aNumber), func(v *diffVar) bool { return !undeclared(v) })
}

// step changes a variable by one, and sets another one to what it was or is.
func (g *diffGen) step() *diffStmt {
	s := &diffStmt{kind: "step", from: pick(g, g.stepped()), post: g.one(2), op: pick(g, []string{"++", "--"})}
	s.v = &diffVar{name: fmt.Sprintf("$v%d", g.names), sort: aNumber}
	g.names++
	g.vars = append(g.vars, s.v)
	return s
}

func (g *diffGen) printf() *diffStmt {
	s := &diffStmt{kind: "printf", format: "p"}
	for range g.IntN(4) {
		e := g.expr(g.sort(), 2)
		verb := "%s"
		if e.sort == aNumber {
			verb = pick(g, []string{"%d", "%u", "%x", "%d"})
		}
		s.format += " " + verb
		s.args = append(s.args, e)
	}
	return s
}

// change changes a map. A clause that reads it must not set it: that needs user space, unless the key has the thread id.
func (g *diffGen) change(m *diffMap) *diffStmt {
	s := &diffStmt{m: m, key: g.key(m)}
	switch {
	case m.agg != "":
		if s.kind = "update"; m.agg == "topk" {
			if m.weighs {
				s.value = &diffNode{op: nCast, sort: aNumber, args: []*diffNode{g.sample(m)}, bits: 64}
			}
			return s // its keys cannot be deleted
		}
		if m.agg != "count" && m.agg != "rate" {
			s.value = g.sample(m)
		}
	case m.tuple == nil && m.sort == aNumber && (g.one(2) || g.reads[m] && !m.own):
		s.kind = pick(g, []string{"+=", "-=", "++", "--"})
		if s.kind == "+=" || s.kind == "-=" {
			s.value = g.number(2)
		}
		if s.kind == "-=" && !opposable(s.value) {
			s.kind = "+="
		}
	case g.reads[m] && !m.own:
		return g.check()
	case m.tuple == nil && m.sort == aNumber && (m.own || g.inUser) && !g.literals && g.one(3):
		s.kind, s.compound = "set", true
		s.value = g.compound(&diffNode{op: nLookup, m: m, args: s.key})
		if op := s.value.op; op == "+" || op == "-" { // += and -= count as adding
			s.value.op = "*"
		}
	case m.tuple != nil:
		s.kind = "set"
		s.args, s.chosen = g.elements(m.tuple)
	default:
		s.kind, s.value = "set", g.expr(m.sort, 3)
	}
	// Deleting keys of min and max needs user space: the kernel would not know that they were missing meanwhile.
	if len(m.keys) > 0 && g.one(6) && (g.inUser || m.agg != "min" && m.agg != "max") {
		return &diffStmt{kind: "delete", m: m, key: s.key}
	}
	return s
}

// sample is an aggregated value. Random numbers are mostly outside the range of a lhist, so its samples are often next to the bound
// of a step.
func (g *diffGen) sample(m *diffMap) *diffNode {
	if m.agg != "lhist" || g.literals || g.one(3) {
		n := g.number(3)
		if m.agg != "min" && m.agg != "max" {
			n = g.unnamed(n)
		}
		return n
	}
	step := g.node("*", aNumber, g.node("%", aNumber, g.number(1), numberLiteral(202)), numberLiteral(m.step))
	beside := g.node("%", aNumber, g.number(1), numberLiteral(3))
	return g.node("+", aNumber, numberLiteral(m.low-1), g.node("+", aNumber, step, beside))
}

func (g *diffGen) key(m *diffMap) []*diffNode {
	var key []*diffNode
	for i, s := range m.keys {
		switch {
		case i == 0 && m.own && !g.literals:
			key = append(key, g.fieldNode("tid", aNumber))
		case g.one(2):
			key = append(key, g.leaf(s))
		default:
			key = append(key, g.expr(s, 2))
		}
	}
	return key
}

func (g *diffGen) condition(depth int) *diffNode {
	if g.one(8) {
		return g.number(depth)
	}
	return g.truth(depth)
}

func (g *diffGen) expr(s diffSort, depth int) *diffNode {
	var n *diffNode
	switch s {
	case aBool:
		n = g.truth(depth)
	case aNumber:
		n = g.number(depth)
	default:
		n = g.words(s, depth)
	}
	if g.literals || !g.one(10) {
		return n
	}
	return g.called(n)
}

// called makes a call of a macro that stands for n. What the macro does not have is in its argument: variables and maps.
func (g *diffGen) called(n *diffNode) *diffNode {
	var fit []*diffNode
	n.walk(func(arg *diffNode) {
		if arg != n && arg.op != nBetween && n.keeps() == arg.keeps() {
			fit = append(fit, arg)
		}
	})
	if len(fit) == 0 || n.constant() {
		return n
	}
	g.prog.macros++
	return &diffNode{op: nMacro, sort: n.sort, args: []*diffNode{n}, macro: &diffMacro{fmt.Sprintf("m%d", g.prog.macros), pick(g, fit)}}
}

// keeps returns how often the expression has what belongs to a clause: variables, maps, and calls.
func (n *diffNode) keeps() (count int) {
	n.walk(func(n *diffNode) {
		if n.v != nil || n.m != nil || n.macro != nil {
			count++
		}
	})
	return count
}

// node makes a node of an operator.
func (g *diffGen) node(op string, s diffSort, args ...*diffNode) *diffNode {
	return &diffNode{op: op, sort: s, args: args}
}

// small reports whether an expression has to end here.
func (g *diffGen) small(depth int) bool {
	g.budget--
	return depth <= 0 || g.budget <= 0 || g.literals
}

var diffArithmetic = []string{"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"}

func (g *diffGen) number(depth int) *diffNode {
	if g.small(depth) || g.one(6) {
		return g.leaf(aNumber)
	}
	switch g.IntN(18) {
	case 17: // every text of an event has room for so many bytes
		if text := g.leaf(aText); text.op == nField || text.op == nVar {
			return &diffNode{op: nByte, sort: aNumber, args: []*diffNode{text}, index: g.IntN(3)}
		}
	case 15: // an array has at most 64 bits
		n := &diffNode{op: nElement, sort: aNumber, args: []*diffNode{g.number(depth - 1)}, bits: 8 << g.IntN(3), signed: g.one(2)}
		n.index = g.IntN(64 / n.bits)
		return n
	case 16:
		return &diffNode{op: nNumber, sort: aNumber, args: []*diffNode{g.number(depth - 1)}, bits: 16 << g.IntN(3)}
	case 14:
		return &diffNode{op: nSwap, sort: aNumber, args: []*diffNode{g.number(depth - 1)}, bits: 8 << g.IntN(4)}
	case 0:
		return g.node("~", aNumber, g.number(depth-1))
	case 1:
		if n := g.number(depth - 1); !n.constant() {
			return g.node(nNeg, aNumber, n)
		}
		return g.leaf(aNumber)
	case 2, 3:
		n := g.number(depth - 1)
		return &diffNode{op: nCast, sort: aNumber, args: []*diffNode{n}, bits: 8 << g.IntN(4), signed: g.one(2)}
	case 4, 5:
		return g.choice(aNumber, depth)
	case 6:
		if g.inUser {
			return g.node("**", aNumber, g.number(depth-1), g.number(depth-1))
		}
	}
	return g.node(pick(g, diffArithmetic), aNumber, g.number(depth-1), g.number(depth-1))
}

// choice is an operation that yields one of its operands, of any sort.
func (g *diffGen) choice(s diffSort, depth int) *diffNode {
	if g.one(2) {
		return g.node("??", s, g.expr(s, depth-1), g.expr(s, depth-1))
	}
	return g.node(nCond, s, g.condition(depth-1), g.expr(s, depth-1), g.expr(s, depth-1))
}

func (g *diffGen) words(s diffSort, depth int) *diffNode {
	if s == aText && g.inUser && !g.literals && g.one(3) {
		return g.asText()
	}
	if g.small(depth) || !g.one(3) {
		return g.leaf(s)
	}
	return g.choice(s, depth)
}

func (g *diffGen) truth(depth int) *diffNode {
	if g.small(depth) || g.one(12) {
		return g.leaf(aBool)
	}
	switch g.IntN(16) {
	case 0:
		if g.one(2) {
			return g.tupleIn(depth)
		}
		both := g.node("&&", aBool, g.comparison(depth-1), g.comparison(depth-1))
		both.tuple = true
		return both
	case 1, 2:
		return g.node(pick(g, []string{"&&", "and"}), aBool, g.condition(depth-1), g.condition(depth-1))
	case 3, 4, 5:
		return g.node(pick(g, []string{"||", "or"}), aBool, g.condition(depth-1), g.condition(depth-1))
	case 6:
		return g.node(pick(g, []string{"!", "not"}), aBool, g.condition(depth-1))
	case 7:
		return g.node(pick(g, []string{nIsNil, nNotNil}), aBool, g.expr(g.sort(), depth-1))
	case 8, 9:
		return g.in(depth)
	case 10:
		return g.prefix(depth)
	case 11:
		return g.choice(aBool, depth)
	case 14:
		return g.node(nTruth, aBool, g.expr(pick(g, []diffSort{aNumber, aText}), depth-1))
	case 13:
		return &diffNode{op: nAsOne, sort: aBool, args: []*diffNode{g.truth(depth - 1), g.number(depth - 1)}, bits: 8 << g.IntN(4)}
	case 12:
		keyed := slices.DeleteFunc(slices.Clone(g.prog.maps), func(m *diffMap) bool {
			return len(m.keys) == 0 || m.agg == "topk" || m.agg == "" && !g.mayRead(m)
		})
		if len(keyed) > 0 {
			m := pick(g, keyed)
			m.asked = true
			return &diffNode{op: nHasKey, sort: aBool, m: m, args: g.key(m)}
		}
	}
	return g.comparison(depth)
}

// readable returns the maps that the clause may read.
func (g *diffGen) readable(fit func(*diffMap) bool) []*diffMap {
	return slices.DeleteFunc(slices.Clone(g.prog.maps), func(m *diffMap) bool {
		if m.agg != "" { // only user space can read it, and the third opinion knows only some
			return !g.inUser || !slices.Contains([]string{"count", "sum", "min", "max", "avg"}, m.agg) || !fit(m)
		}
		return !g.mayRead(m) || !fit(m)
	})
}

// mayRead reports whether the clause may read a scalar.
func (g *diffGen) mayRead(m *diffMap) bool { return g.reads[m] || m.own || g.inUser }

func (g *diffGen) comparison(depth int) *diffNode {
	ops := []string{"==", "!=", "<", "<=", ">", ">="}
	s := g.sort()
	if s != aNumber && s != aText {
		ops = ops[:2]
	}
	op := pick(g, ops)
	switch {
	case diffNamed[s].fn != "" && g.one(2):
		return g.node(op, aBool, g.expr(s, depth-1), textLiteral(pick(g, append(diffTexts, diffNamed[s].texts...))))
	case s == aNumber && g.one(5):
		return g.named(op)
	case s == anAddress && g.one(2):
		address := pick(g, diffAddresses)
		literal := &diffNode{op: nLit, sort: anAddress, text: strconv.Quote(address), val: diffAddress(address)}
		return g.node(op, aBool, g.field(anAddress), literal)
	}
	l, r := g.expr(s, depth-1), g.expr(s, depth-1)
	if op != "==" && op != "!=" {
		l, r = g.unnamed(l), g.unnamed(r)
	}
	return g.node(op, aBool, l, r)
}

// unnamed makes a number of a value that may be a name of an enum.
func (g *diffGen) unnamed(n *diffNode) *diffNode {
	if n.sort != aNumber || !slices.Contains([]string{nField, nVar, nPart, nMacro, nLookup, nMember, nCond, "??"}, n.op) {
		return n
	}
	return &diffNode{op: nCast, sort: aNumber, args: []*diffNode{n}, bits: 64, signed: g.one(2)}
}

// named compares a field with one of its names. In a clause for both probes each has other names.
func (g *diffGen) named(op string) *diffNode {
	if len(g.clause.probes) > 1 {
		n := g.node(op, aBool, g.field(aNumber), g.literal())
		if op != "==" && op != "!=" {
			n.args[0] = g.unnamed(n.args[0])
		}
		return n
	}
	f := pick(g, slices.DeleteFunc(slices.Clone(g.clause.probes[0].Fields), func(f *event.Field) bool {
		return f.Type.Enum == nil && f.Type.Unit != event.Errno
	}))
	left := g.fieldNode(f.Name, aNumber)
	if f.Type.Enum == nil {
		return g.node(op, aBool, left, &diffNode{op: nLit, text: "-EINVAL", val: big.NewInt(-22)})
	}
	if !f.Type.Enum.Flags { // names cannot be ordered
		op = pick(g, []string{"==", "!="})
	}
	i := g.IntN(len(f.Type.Enum.Names))
	name := &diffNode{op: nLit, text: f.Type.Enum.Names[i], val: big.NewInt(f.Type.Enum.Values[i])}
	if g.one(2) {
		name.text = f.Type.Enum.Name + "." + name.text
	}
	if g.one(2) {
		return g.node(op, aBool, name, left)
	}
	return g.node(op, aBool, left, name)
}

// tupleIn makes `(x, y) in [(a, b), (c, d)]`, whose meaning is an or of two tuples that are equal.
func (g *diffGen) tupleIn(depth int) *diffNode {
	x, y := pick(g, []diffSort{aNumber, aText}), pick(g, []diffSort{aNumber, aText})
	left, right := g.unnamed(g.field(x)), g.unnamed(g.field(y))
	pair := func() *diffNode {
		a, b := g.node("==", aBool, left, g.unnamed(g.expr(x, depth-1))), g.node("==", aBool, right, g.unnamed(g.expr(y, depth-1)))
		both := g.node("&&", aBool, a, b)
		both.tuple = true
		return both
	}
	one := g.node("||", aBool, pair(), pair())
	one.tuple = true
	return one
}

// sameTuple reports whether both sides of an or compare the same tuple.
func (n *diffNode) sameTuple() bool {
	isPair := func(n *diffNode) bool {
		return n.op == "&&" && n.tuple && n.args[0].op == "==" && n.args[1].op == "=="
	}
	a, b := n.args[0], n.args[1]
	return n.tuple && isPair(a) && isPair(b) && a.args[0].args[0] == b.args[0].args[0] && a.args[1].args[0] == b.args[1].args[0]
}

// in makes `x in [a, b..c]` or `x in a..b`.
func (g *diffGen) in(depth int) *diffNode {
	s := g.sort()
	n := g.node(pick(g, []string{"in", "in", "not in"}), aBool, g.expr(s, depth-1))
	for range 1 + g.IntN(3) {
		if s == aNumber && g.one(3) {
			n.args = append(n.args, g.between(depth-1))
		} else {
			n.args = append(n.args, g.expr(s, g.IntN(depth)))
		}
	}
	return n
}

// between avoids a range that is certainly empty, which is an error.
func (g *diffGen) between(depth int) *diffNode {
	lo, hi := g.number(g.IntN(depth+1)), g.number(g.IntN(depth+1))
	if lo.constant() && hi.constant() {
		lo, hi = g.literal(), g.literal()
		if lo.val.(*big.Int).Cmp(hi.val.(*big.Int)) > 0 {
			lo, hi = hi, lo
		}
	}
	return g.node(nBetween, aNumber, lo, hi)
}

func (g *diffGen) prefix(depth int) *diffNode {
	op := pick(g, []string{"startsWith", "not startsWith"})
	if g.inUser && g.one(2) {
		op = pick(g, []string{"contains", "endsWith", "not contains"})
	}
	return g.node(op, aBool, g.words(aText, depth-1), textLiteral(pick(g, diffTexts)))
}

// leaf is a field, a literal, a variable or, now and then, the value of a map.
func (g *diffGen) leaf(s diffSort) *diffNode {
	if tuples := g.variables(aTuple); len(tuples) > 0 && g.one(6) {
		if v := pick(g, tuples); slices.Contains(v.tuple, s) {
			return &diffNode{op: nPart, sort: s, v: v, index: slices.Index(v.tuple, s)}
		}
	}
	if vars := g.variables(s); len(vars) > 0 && g.one(3) {
		v := pick(g, vars)
		return &diffNode{op: nVar, sort: s, v: v}
	}
	if g.budget > 0 && !g.literals && g.one(12) {
		if n := g.read(s); n != nil {
			return n
		}
	}
	if s == aNumber && (g.literals || g.one(3)) {
		return g.literal()
	}
	if named := diffNamed[s]; named.fn != "" {
		return g.node(nNamed, s, g.littleNumber())
	}
	if g.literals || s != aNumber && g.one(4) {
		switch s {
		case aBool:
			v := g.one(2)
			return &diffNode{op: nLit, sort: s, text: strconv.FormatBool(v), val: v}
		case aText:
			return textLiteral(pick(g, diffTexts))
		}
	}
	return g.field(s)
}

// littleNumber is a number that often has a text of its own.
func (g *diffGen) littleNumber() *diffNode {
	n := g.number(1)
	if g.one(3) {
		return n
	}
	return g.node("-", aNumber, g.node("%", aNumber, n, numberLiteral(170)), numberLiteral(int64(g.IntN(100))))
}

// read is a value of a map, or an element of one; nil if there are none.
func (g *diffGen) read(s diffSort) *diffNode {
	maps := g.readable(func(m *diffMap) bool { return m.tuple == nil && m.sort == s || slices.Contains(m.tuple, s) })
	if len(maps) == 0 {
		return nil
	}
	g.budget -= 10
	m := pick(g, maps)
	n := &diffNode{op: nLookup, sort: s, m: m, args: g.key(m)}
	if m.tuple != nil {
		n.op, n.index = nMember, slices.Index(m.tuple, s)
	}
	return n
}

// field is a field that all probes of the clause have, of the same sort.
func (g *diffGen) field(s diffSort) *diffNode {
	var names []string
	for _, f := range g.clause.probes[0].Fields {
		ok := true
		for _, p := range g.clause.probes {
			ok = ok && p.Field(f.Name) != nil && sortOfKind(p.Field(f.Name).Type.Kind) == s
		}
		if ok {
			names = append(names, f.Name)
		}
	}
	return g.fieldNode(pick(g, names), s)
}

func sortOfKind(k event.Kind) diffSort {
	switch k {
	case event.Bool:
		return aBool
	case event.String:
		return aText
	case event.GID:
		return anAddress
	}
	return aNumber
}

func (g *diffGen) fieldNode(name string, s diffSort) *diffNode {
	return &diffNode{op: nField, text: name, sort: s}
}

func textLiteral(s string) *diffNode {
	return &diffNode{op: nLit, sort: aText, text: strconv.QuoteToASCII(s), val: s}
}

func numberLiteral(v int64) *diffNode {
	return &diffNode{op: nLit, text: fmt.Sprintf("(%d)", v), val: big.NewInt(v)}
}

// literal is a number in one of its spellings. The smallest is -2^63.
func (g *diffGen) literal() *diffNode {
	v := randomNumber(g.Rand)
	n := &diffNode{op: nLit, val: new(big.Int).SetUint64(v)}
	switch g.IntN(6) {
	case 0:
		n.text = fmt.Sprintf("0x%x", v)
	case 1:
		if int64(v) < 0 {
			n.text, n.val = fmt.Sprintf("(-%d)", -v), big.NewInt(int64(v))
			break
		}
		n.text = fmt.Sprint(v)
	case 2:
		k := uint64(g.IntN(2000))
		unit := pick(g, []struct {
			name  string
			scale uint64
		}{{"us", 1e3}, {"ms", 1e6}, {"KiB", 1 << 10}, {"MB", 1e6}})
		n.text, n.val = fmt.Sprintf("%d%s", k, unit.name), new(big.Int).SetUint64(k*unit.scale)
	default:
		n.text = fmt.Sprint(v)
	}
	return n
}

// constant reports whether the checker computes the node.
func (n *diffNode) constant() bool {
	switch n.op {
	case nLit:
		return n.sort == aNumber
	case nNeg, "~", "**", nMacro:
	default:
		if !slices.Contains(diffArithmetic, n.op) {
			return false
		}
	}
	return !slices.ContainsFunc(n.args, func(a *diffNode) bool { return !a.constant() })
}

// walk visits all statements.
func (p *diffProgram) walk(visit func(*diffStmt)) {
	walkDiff(p.begin, visit)
	for _, c := range p.clauses {
		walkDiff(c.stmts, visit)
	}
}

func walkDiff(all []*diffStmt, visit func(*diffStmt)) {
	for _, s := range all {
		visit(s)
		walkDiff(s.then, visit)
		walkDiff(s.els, visit)
	}
}

// walk visits all expressions of a statement, without the ones in its blocks.
func (s *diffStmt) walk(visit func(*diffNode)) {
	for _, n := range slices.Concat(s.key, s.args, []*diffNode{s.value}) {
		n.walk(visit)
	}
}

// mixes reports whether events do something to a map besides adding to it, or besides setting it.
func (p *diffProgram) mixes(m *diffMap) bool {
	adds, sets, more := false, false, m.asked
	visit := func(n *diffNode) { more = more || n.m == m }
	for _, c := range p.clauses {
		c.pred.walk(visit)
		walkDiff(c.stmts, func(s *diffStmt) {
			s.walk(visit)
			if s.m == m {
				adds = adds || slices.Contains([]string{"+=", "-=", "++", "--"}, s.kind)
				sets = sets || s.kind == "set"
				more = more || s.kind == "delete" || s.kind == "deleted"
			}
		})
	}
	return more || adds && sets
}

func (p *diffProgram) updates(m *diffMap) bool {
	found := false
	p.walk(func(s *diffStmt) {
		found = found || s.m == m && slices.Contains([]string{"set", "+=", "-=", "++", "--", "update"}, s.kind)
	})
	return found
}

// String writes the program.
func (p *diffProgram) String() string {
	var b strings.Builder
	for _, m := range p.maps {
		if m.kind != "" && p.updates(m) {
			fmt.Fprintf(&b, "let %s = %s(%d)\n", m.name, m.kind, m.maxKeys)
		}
	}
	declared := map[*diffMacro]bool{} // a choice of tuples has its condition many times
	p.expressions(func(n *diffNode) {
		if n.op == nMacro && !declared[n.macro] {
			declared[n.macro] = true
			fmt.Fprintf(&b, "macro %s(x) { %s }\n", n.macro.name, n.args[0].with(n.macro.arg))
		}
	})
	if p.begin != nil {
		b.WriteString("begin {\n" + diffBlock(p.begin, "\t") + "}\n")
	}
	for _, c := range p.clauses {
		b.WriteString(c.where)
		pred, stmts := c.parts()
		if len(pred) > 0 {
			fmt.Fprintf(&b, " / %s /", strings.Join(pred, " && "))
		}
		if c.block {
			b.WriteString(" {\n" + diffBlock(stmts, "\t") + "}")
		}
		b.WriteString("\n")
	}
	if p.interval != nil {
		b.WriteString("interval:1s {\n")
		for _, t := range p.interval {
			if t.print != "" {
				fmt.Fprintf(&b, "\t"+t.print+"\n", t.m.name)
			}
			if t.fn != "" {
				fmt.Fprintf(&b, "\t%s(%s)\n", t.fn, t.m.name)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// parts returns the conditions of the predicate and the statements of the body. A body that is one if may stand in the predicate, in a block: so it is
// written if it has no else.
func (c *diffClause) parts() (pred []string, stmts []*diffStmt) {
	if c.pred != nil {
		pred = append(pred, fmt.Sprintf("(%s)", c.pred))
	}
	if len(c.stmts) == 1 && c.stmts[0].kind == "if" && c.stmts[0].els == nil {
		return append(pred, fmt.Sprintf("{ %s }", c.stmts[0].value)), c.stmts[0].then
	}
	return pred, c.stmts
}

// expressions visits all expressions.
func (p *diffProgram) expressions(visit func(*diffNode)) {
	for _, c := range p.clauses {
		c.pred.walk(visit)
	}
	p.walk(func(s *diffStmt) { s.walk(visit) })
}

// with writes an expression with x for arg.
func (n *diffNode) with(arg *diffNode) string {
	was := *arg
	*arg = diffNode{op: nLit, text: "x"}
	defer func() { *arg = was }()
	return n.String()
}

func diffBlock(all []*diffStmt, indent string) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString(indent + s.text(indent) + "\n")
	}
	return b.String()
}

func (s *diffStmt) text(indent string) string {
	switch s.kind {
	case "let":
		switch target := s.v.name; {
		case s.v.tuple != nil:
			return target + s.assignsTuple(s.v.form)
		case s.v.bits == 0:
			return target + s.assigns()
		case s.declares:
			target = fmt.Sprintf("let %s: %s", target, intName(s.v.bits, s.v.signed))
			fallthrough
		default:
			value := s.value
			if value.op == nCast && !value.constant() && !value.args[0].constant() { // a literal has to fit
				value = value.args[0]
			}
			return fmt.Sprintf("%s = %s", target, value)
		}
	case "found":
		key := s.m.keyParts(s.key)
		if len(key) > 1 {
			key = []string{"(" + diffList(key) + ")"}
		}
		return fmt.Sprintf("%s = find(%s, %s, %s)", s.v.name, s.m.name, key[0], s.from.name)
	case "deleted":
		return fmt.Sprintf("%s = delete(%s)", s.v.name, s.m.call(s.key))
	case "if":
		text := fmt.Sprintf("if (%s) {\n%s%s}", s.value, diffBlock(s.then, indent+"\t"), indent)
		if s.els != nil {
			text += fmt.Sprintf(" else {\n%s%s}", diffBlock(s.els, indent+"\t"), indent)
		}
		return text
	case "for":
		return fmt.Sprintf("for (%s : %d..%d) {\n%s%s}", s.v.name, s.low, s.low+s.turns, diffBlock(s.then, indent+"\t"), indent)
	case "unroll":
		return fmt.Sprintf("unroll (%d) {\n%s%s}", s.turns, diffBlock(s.then, indent+"\t"), indent)
	case "while":
		return fmt.Sprintf("let %[1]s = 0\n%[2]swhile (%[1]s++ < %[3]d) {\n%[4]s%[2]s}", s.v.name, indent, s.turns, diffBlock(s.then, indent+"\t"))
	case "step":
		if s.post {
			return fmt.Sprintf("%s = %s%s", s.v.name, s.from.name, s.op)
		}
		return fmt.Sprintf("%s = { %s%s }", s.v.name, s.op, s.from.name)
	case "exit":
		return "exit()"
	case "printf":
		return fmt.Sprintf("printf(%s)", diffList(append([]string{strconv.Quote(s.format + "\n")}, diffTextsOf(s.args)...)))
	case "set":
		return s.m.ref(s.key) + s.assigns()
	case "+=", "-=":
		return fmt.Sprintf("%s %s %s", s.m.ref(s.key), s.kind, s.value)
	case "++", "--":
		return s.m.ref(s.key) + s.kind
	case "update":
		if s.m.agg == "topk" {
			last, weight := len(s.key)-1, ""
			if s.value != nil {
				weight = fmt.Sprintf(", %s", s.value)
			}
			return fmt.Sprintf("%s = topk(%s%s%s)", s.m.ref(s.key[:last]), s.key[last], s.m.params, weight)
		}
		if s.value == nil {
			return fmt.Sprintf("%s = %s()", s.m.ref(s.key), s.m.agg)
		}
		return fmt.Sprintf("%s = %s(%s%s)", s.m.ref(s.key), s.m.agg, s.value, s.m.params)
	case "delete":
		return fmt.Sprintf("delete(%s)", s.m.call(s.key))
	case "print", "clear", "zero":
		return fmt.Sprintf("%s(%s)", s.kind, s.m.name)
	case "len":
		return fmt.Sprintf(`printf("%%d\n", len(%s))`, s.m.name)
	}
	return s.kind // return
}

// assigns writes the operator and the value of an assignment.
func (s *diffStmt) assigns() string {
	switch {
	case s.compound:
		return fmt.Sprintf(" %s= %s", s.value.op, s.value.args[1])
	case s.args != nil:
		return s.assignsTuple(s.m.form)
	}
	return fmt.Sprintf(" = %s", s.value)
}

// assignsTuple writes it for a tuple.
func (s *diffStmt) assignsTuple(f diffForm) string {
	if !s.chosen || slices.ContainsFunc(s.args, func(n *diffNode) bool { return n.op != nCond || n.args[0] != s.args[0].args[0] }) {
		return fmt.Sprintf(" = (%s)", diffList(f.parts(diffTextsOf(s.args))))
	}
	var either [2][]*diffNode
	for _, n := range s.args {
		either[0], either[1] = append(either[0], n.args[1]), append(either[1], n.args[2])
	}
	return fmt.Sprintf(" = %s ? (%s) : (%s)", s.args[0].args[0], diffList(f.parts(diffTextsOf(either[0]))), diffList(f.parts(diffTextsOf(either[1]))))
}

func (m *diffMap) ref(key []*diffNode) string {
	if len(key) == 0 {
		return m.name
	}
	return m.name + "[" + diffList(m.keyParts(key)) + "]"
}

// call writes the arguments of has_key and delete.
func (m *diffMap) call(key []*diffNode) string {
	return diffList(append([]string{m.name}, m.keyParts(key)...))
}

// keyParts writes the elements of a key. A record is one.
func (m *diffMap) keyParts(key []*diffNode) []string {
	parts := m.keyForm.parts(diffTextsOf(key))
	if m.keyForm == record {
		return []string{"(" + diffList(parts) + ")"}
	}
	return parts
}

func diffTextsOf(all []*diffNode) []string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = n.String()
	}
	return texts
}

func diffList(texts []string) string { return strings.Join(texts, ", ") }

func intName(bits int, signed bool) string {
	if signed {
		return fmt.Sprintf("int%d", bits)
	}
	return fmt.Sprintf("uint%d", bits)
}

// String writes an expression with all brackets.
func (n *diffNode) String() string {
	switch n.op {
	case nLit, nField:
		return n.text
	case nVar:
		return n.v.name
	case nPart:
		return n.v.name + n.v.form.member(n.index)
	case nMacro:
		return fmt.Sprintf("%s(%s)", n.macro.name, n.macro.arg)
	case nLookup:
		return n.m.ref(n.args)
	case nMember:
		return n.m.ref(n.args) + n.m.form.member(n.index)
	case nHasKey:
		return fmt.Sprintf("has_key(%s)", n.m.call(n.args))
	case nTruth:
		return fmt.Sprintf("((bool)%s)", n.args[0])
	case nCast:
		return fmt.Sprintf("((%s)%s)", intName(n.bits, n.signed), n.args[0])
	case nElement:
		return fmt.Sprintf("((%s[%d])(int64)%s)[%d]", intName(n.bits, n.signed), 64/n.bits, n.args[0], n.index)
	case nByte:
		return fmt.Sprintf("%s[%d]", n.args[0], n.index)
	case nAsOne:
		return fmt.Sprintf("(%s == ((uint%d)%s))", n.args[0], n.bits, n.args[1])
	case nNumber:
		return fmt.Sprintf("((uint%d)(uint8[])(uint%[1]d)%s)", n.bits, n.args[0])
	case nSwap:
		return fmt.Sprintf("bswap((uint%d)%s)", n.bits, n.args[0])
	case nNeg:
		return fmt.Sprintf("(-%s)", n.args[0])
	case nString:
		return fmt.Sprintf("string(%s)", n.args[0])
	case nNamed:
		return fmt.Sprintf("%s(%s)", diffNamed[n.sort].fn, n.args[0])
	case "~", "!":
		return fmt.Sprintf("(%s%s)", n.op, n.args[0])
	case "not":
		return fmt.Sprintf("(not %s)", n.args[0])
	case nIsNil, nNotNil:
		return fmt.Sprintf("(%s %s)", n.args[0], n.op)
	case nBetween:
		return fmt.Sprintf("(%s)..(%s)", n.args[0], n.args[1])
	case nCond:
		return fmt.Sprintf("(%s ? %s : %s)", n.args[0], n.args[1], n.args[2])
	case "&&":
		if a, b := n.args[0], n.args[1]; n.tuple && a.op == "==" && b.op == "==" {
			return fmt.Sprintf("((%s, %s) == (%s, %s))", a.args[0], b.args[0], a.args[1], b.args[1])
		}
	case "||":
		if n.sameTuple() {
			x, y := n.args[0].args, n.args[1].args
			return fmt.Sprintf("((%s, %s) in [(%s, %s), (%s, %s)])", x[0].args[0], x[1].args[0], x[0].args[1], x[1].args[1], y[0].args[1], y[1].args[1])
		}
	case "in", "not in":
		if len(n.args) == 2 && n.args[1].op == nBetween {
			return fmt.Sprintf("(%s %s %s)", n.args[0], n.op, n.args[1])
		}
		return fmt.Sprintf("(%s %s [%s])", n.args[0], n.op, diffList(diffTextsOf(n.args[1:])))
	}
	return fmt.Sprintf("(%s %s %s)", n.args[0], n.op, n.args[1])
}
