package codegen

import (
	"strings"

	"github.com/cilium/ebpf/asm"
)

// cond evaluates a bool and jumps to yes, no or absent. It computes nothing that cannot change the result. If two of the labels are
// the same, their results are not told apart.
func (g *gen) cond(e *Expr, yes, no, absent label) {
	if g.err != nil {
		return
	}
	if o, ok := g.leaf(e); ok {
		g.present(o, absent)
		if c, ok := o.constant(); ok {
			g.decided(c != 0, yes, no)
			return
		}
		g.branch(asm.JNE.Imm(g.register(o, asm.R0), 0, ""), yes)
		g.jump(no)
		return
	}
	args := e.Args
	switch e.Op {
	case OpField:
		g.tested(e, absent)
		g.loadField(asm.R0, e)
		g.branch(asm.JNE.Imm(asm.R0, 0, ""), yes)
		g.jump(no)
	case OpLookup:
		g.lookup(e, absent)
		g.branch(asm.JNE.Imm(asm.R0, 0, ""), yes)
		g.jump(no)
	case OpTruth:
		zero := &Expr{Op: OpLit, Type: Type{Kind: Uint}}
		g.compare(OpNe, args[0], zero, yes, no, absent)
	case OpAbsent:
		g.absence(args[0], yes)
		g.jump(no)
	case OpHasKey:
		g.hasKey(e)
		g.branch(asm.JNE.Imm(asm.R0, 0, ""), yes)
		g.jump(no)
	case OpNot:
		g.cond(args[0], no, yes, absent)
	case OpAnd:
		args = chain(e)
		g.all(len(args), func(i int, yes, no, absent label) { g.cond(args[i], yes, no, absent) },
			func(i int) bool { return g.mayBeAbsent(args[i]) }, yes, no, absent)
	case OpOr: // it is false if none of them holds
		args = chain(e)
		g.all(len(args), func(i int, no, yes, absent label) { g.cond(args[i], yes, no, absent) },
			func(i int) bool { return g.mayBeAbsent(args[i]) }, no, yes, absent)
	case OpEq, OpNe, OpLt, OpLe, OpGt, OpGe:
		g.compare(e.Op, args[0], args[1], yes, no, absent)
	case OpIn:
		g.in(args[0], args[1:], yes, no, absent)
	case OpStartsWith:
		g.startsWith(args[0], args[1], yes, no, absent)
	case OpCoalesce:
		other := g.label()
		g.cond(args[0], yes, no, other)
		g.place(other)
		g.cond(args[1], yes, no, absent)
	case OpCond:
		then, other := g.label(), g.label()
		g.cond(args[0], then, other, other)
		g.place(then)
		g.cond(args[1], yes, no, absent)
		g.place(other)
		g.cond(args[2], yes, no, absent)
	default:
		g.fail("the kernel cannot compute the operator")
	}
}

func (g *gen) decided(holds bool, yes, no label) {
	if holds {
		g.jump(yes)
	} else {
		g.jump(no)
	}
}

// chain returns the operands of x && y && …, or of x || y || ….
func chain(e *Expr) []*Expr {
	var operands []*Expr
	for _, arg := range e.Args {
		if arg.Op == e.Op {
			operands = append(operands, chain(arg)...)
		} else {
			operands = append(operands, arg)
		}
	}
	return operands
}

// all is Kleene's && of n conditions: it jumps to no if one does not hold, otherwise to absent if one is absent, otherwise to yes.
// each evaluates one condition, and absentee reports whether it may be absent.
//
// If absence leads where yes or no leads, the conditions need only their jumps. Otherwise an absent condition is remembered,
// because a later one may still not hold: evaluating the later ones twice instead would double the code with each level.
func (g *gen) all(n int, each func(i int, yes, no, absent label), absentee func(i int) bool, yes, no, absent label) {
	last := n - 1
	optional := false
	for i := range last {
		optional = optional || absentee(i)
	}
	if !optional || absent == no || absent == yes {
		for i := range last {
			next := g.label()
			pass := next
			if absent == no {
				pass = no
			}
			each(i, next, no, pass)
			g.place(next)
		}
		each(last, yes, no, absent)
		return
	}
	m := g.used
	seen := g.temp()
	g.set(asm.R0, 0)
	g.keep(seen)
	for i := range last {
		next, remember := g.label(), g.label()
		each(i, next, no, remember)
		g.place(remember)
		g.set(asm.R0, 1)
		g.keep(seen)
		g.place(next)
	}
	rest := g.label()
	each(last, rest, no, absent)
	g.place(rest)
	g.branch(asm.JNE.Imm(g.register(seen, asm.R0), 0, ""), absent)
	g.jump(yes)
	g.release(m)
}

// absence jumps to absent if e is absent. It computes the value of e only where the answer depends on it.
func (g *gen) absence(e *Expr, absent label) {
	if g.err != nil || !g.mayBeAbsent(e) {
		return
	}
	switch e.Op {
	case OpField, OpVar:
		g.tested(e, absent)
	case OpStack:
		g.stack(e, absent)
	case OpAnd, OpOr, OpIn:
		there := g.label()
		g.cond(e, there, there, absent)
		g.place(there)
	case OpLookup:
		there := g.label()
		g.find(e, there, absent)
		g.place(there)
	case OpCond:
		then, other, there := g.label(), g.label(), g.label()
		g.cond(e.Args[0], then, other, other)
		g.place(then)
		g.absence(e.Args[1], absent)
		g.jump(there)
		g.place(other)
		g.absence(e.Args[2], absent)
		g.place(there)
	case OpCoalesce:
		other, there := g.label(), g.label()
		g.absence(e.Args[0], other)
		g.jump(there)
		g.place(other)
		g.absence(e.Args[1], absent)
		g.place(there)
	default:
		for _, arg := range e.Args {
			g.absence(arg, absent)
		}
	}
}

var jumps = map[Op]struct{ unsigned, signed asm.JumpOp }{
	OpEq: {asm.JEq, asm.JEq}, OpNe: {asm.JNE, asm.JNE},
	OpLt: {asm.JLT, asm.JSLT}, OpLe: {asm.JLE, asm.JSLE}, OpGt: {asm.JGT, asm.JSGT}, OpGe: {asm.JGE, asm.JSGE},
}

// mirrored maps comparisons to the ones with swapped operands.
var mirrored = map[Op]Op{OpEq: OpEq, OpNe: OpNe, OpLt: OpGt, OpLe: OpGe, OpGt: OpLt, OpGe: OpLe}

// compare compares two values of one sort.
func (g *gen) compare(op Op, x, y *Expr, yes, no, absent label) {
	if x.Type.isText() || y.Type.isText() {
		g.compareText(op, x, y, yes, no, absent)
		return
	}
	if x.Op == OpLit && y.Op != OpLit {
		op, x, y = mirrored[op], y, x
	}
	// Numbers of different signs compare as signed numbers if the unsigned one is small enough, and as unsigned ones if the signed
	// one is not negative. A negative number is below all unsigned ones.
	xSigned, ySigned := x.Type.Kind == Int, y.Type.Kind == Int
	signed := xSigned
	if xSigned != ySigned {
		u, s := x, y
		if xSigned {
			u, s = y, x
		}
		signed = g.width(u) < 64
		if !signed && g.width(s) == 64 {
			g.compareMixed(op, x, y, yes, no, absent)
			return
		}
	}
	r, o := g.pair(x, y, absent)
	g.test(op, signed, r, o, yes, no)
}

// compareMixed compares a signed with an unsigned number.
func (g *gen) compareMixed(op Op, x, y *Expr, yes, no, absent label) {
	below, above := no, no // where to jump if the signed number, x or y, is negative
	switch op {
	case OpNe:
		below, above = yes, yes
	case OpLt, OpLe:
		below = yes
	case OpGt, OpGe:
		above = yes
	}
	if y.Op == OpLit && y.Type.Kind == Int { // negative: other literals do not get here
		g.absence(x, absent)
		g.jump(above)
		return
	}
	r, o := g.pair(x, y, absent)
	if x.Type.Kind == Int {
		g.branch(asm.JSLT.Imm(r, 0, ""), below)
	} else {
		o = operand{where: inRegister, reg: g.register(o, asm.R1)}
		g.branch(asm.JSLT.Imm(o.reg, 0, ""), above)
	}
	g.test(op, false, r, o, yes, no)
}

// test compares a register with an operand.
func (g *gen) test(op Op, signed bool, r asm.Register, o operand, yes, no label) {
	jump := jumps[op].unsigned
	if signed {
		jump = jumps[op].signed
	}
	if c, ok := o.constant(); ok && fits32(c) {
		g.branch(jump.Imm(r, int32(c), ""), yes)
	} else {
		g.branch(jump.Reg(r, g.register(o, asm.R1), ""), yes)
	}
	g.jump(no)
}

// in searches for a value among others. It is an || of the comparisons, except that an absent bound makes a range absent even if
// the value is beyond the other bound.
func (g *gen) in(x *Expr, elements []*Expr, yes, no, absent label) {
	if len(elements) == 0 {
		g.absence(x, absent)
		g.jump(no)
		return
	}
	m := g.used
	if x.Type.isText() {
		g.holdText(x, absent)
	} else if o := g.hold(x, absent); o.where == inLeaf && len(elements) > 1 && g.used.registers < len(g.pool) {
		t := g.temp() // so it is loaded only once
		g.use(t.reg, o)
		g.held[x] = t
	}
	g.all(len(elements), func(i int, no, yes, absent label) {
		e := elements[i]
		if e.Op != OpBetween {
			g.compare(OpEq, x, e, yes, no, absent)
			return
		}
		m := g.used
		lo, hi := e.Args[0], e.Args[1]
		if x.Type.isText() {
			g.holdText(lo, absent)
			g.holdText(hi, absent)
		} else {
			g.hold(lo, absent)
			g.hold(hi, absent)
		}
		next := g.label()
		g.compare(OpGe, x, lo, next, no, absent)
		g.place(next)
		g.compare(OpLe, x, hi, yes, no, absent)
		g.forget(lo, hi)
		g.release(m)
	}, func(i int) bool { return g.mayBeAbsent(elements[i]) }, no, yes, absent)
	g.forget(x)
	g.release(m)
}

// startsWith compares the first bytes of a string with a literal.
func (g *gen) startsWith(x, prefix *Expr, yes, no, absent label) {
	m := g.used
	s := g.text(x, absent)
	switch {
	case prefix.Op != OpLit:
		g.fail("the kernel can only look for a constant prefix")
	case s.literal != nil:
		g.decided(strings.HasPrefix(*s.literal, prefix.Str), yes, no)
	case len(prefix.Str) > s.size || strings.ContainsRune(prefix.Str, 0):
		g.jump(no)
	default:
		lit := text{literal: &prefix.Str, size: len(prefix.Str)}
		for at := 0; at < len(prefix.Str); {
			n := step(len(prefix.Str)-at, s.offset+at)
			g.compareWords(s, lit, at, n, false, no)
			at += n
		}
		g.jump(yes)
	}
	g.release(m)
}

// within jumps to end, with 0 in R0, if the event is not in a set.
func (g *gen) within(w Within, end label) {
	field := &Expr{Op: OpField, Type: Type{Kind: Uint}, Field: w.Field}
	g.tested(field, end)
	g.loadField(asm.R1, field)
	if w.Size == 0 {
		m := g.used
		key := g.alloc(8)
		g.release(m)
		g.store(memory{frame, key}, asm.R1, 8)
		g.pointer(asm.R2, key)
		g.call(asm.FnMapLookupElem, w.Map)
		g.branch(asm.JEq.Imm(asm.R0, 0, ""), end)
		g.set(asm.R0, 0)
		return
	}
	g.branch(asm.JGE.Imm(asm.R1, int32(w.Size), ""), end) // bounds the index for the verifier
	g.direct(asm.R2, w.Map, 0)
	g.emit(asm.Add.Reg(asm.R2, asm.R1))
	g.load(asm.R1, memory{asm.R2, 0}, 1)
	g.branch(asm.JEq.Imm(asm.R1, 0, ""), end)
}

// loop is where the jumps of the innermost Repeat go.
type loop struct{ done, next label }

func (l loop) target(s *Jump) label {
	if s.Continue {
		return l.next
	}
	return l.done
}

// repeat generates the copies of a body. The number of a turn is known in each copy, so nothing is counted.
func (g *gen) repeat(s *Repeat, end label) {
	around, v := g.loop, g.vars[s.Var]
	g.loop.done = g.label()
	for i := range s.Times {
		g.loop.next = g.label()
		g.storeConst(v.memory, int64(s.From+uint64(i)), 8)
		if g.spec.Vars[s.Var].Optional { // the turn before may have made it absent
			g.zero(memory{frame, v.absent}, 8)
		}
		g.block(s.Body, end)
		g.place(g.loop.next)
	}
	g.place(g.loop.done)
	g.loop = around
}

// truth computes a bool into R0.
func (g *gen) truth(e *Expr, absent label) {
	yes, no, end := g.label(), g.label(), g.label()
	g.cond(e, yes, no, absent)
	g.place(yes)
	g.set(asm.R0, 1)
	g.jump(end)
	g.place(no)
	g.set(asm.R0, 0)
	g.place(end)
}

// present jumps to absent if a leaf is absent. It uses R1.
func (g *gen) present(o operand, absent label) {
	if o.where == inLeaf {
		g.tested(o.leaf, absent)
	}
}

// tested jumps to absent if a field or variable is absent. It uses R1.
func (g *gen) tested(e *Expr, absent label) {
	switch {
	case e.Op == OpField && e.Field.Optional:
		f := e.Field
		g.read(f.Offset, f.Size)
		g.load(asm.R1, memory{event, f.HasOffset}, 1)
		g.emit(asm.And.Imm(asm.R1, int32(f.HasMask)))
		g.branch(asm.JEq.Imm(asm.R1, 0, ""), absent)
	case e.Op == OpVar && g.spec.Vars[e.Var].Optional:
		g.load(asm.R1, memory{frame, g.vars[e.Var].absent}, 8)
		g.branch(asm.JNE.Imm(asm.R1, 0, ""), absent)
	}
}
