package codegen

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// operand is a number that an instruction can use without a computation. Loading it changes only the register that it is loaded
// into.
type operand struct {
	where  where
	leaf   *Expr
	reg    asm.Register
	offset int
}

type where uint8

const (
	inLeaf     where = iota // a literal, a field or a variable
	inRegister              // reg
	onStack                 // at offset
)

// leaf returns e as an operand if it is one.
func (g *gen) leaf(e *Expr) (operand, bool) {
	for {
		if o, ok := g.held[e]; ok {
			return o, true
		}
		switch e.Op {
		case OpSigned:
			e = e.Args[0]
			continue
		case OpLit, OpVar:
			return operand{leaf: e}, true
		case OpField: // a bool must be made 0 or 1
			return operand{leaf: e}, e.Type.Kind != Bool
		}
		return operand{}, false
	}
}

func (o operand) constant() (int64, bool) {
	if o.where == inLeaf && o.leaf.Op == OpLit {
		return int64(o.leaf.Num), true
	}
	return 0, false
}

// use loads an operand into r.
func (g *gen) use(r asm.Register, o operand) {
	switch o.where {
	case inRegister:
		if r != o.reg {
			g.emit(asm.Mov.Reg(r, o.reg))
		}
	case onStack:
		g.load(r, memory{frame, o.offset}, 8)
	default:
		switch e := o.leaf; e.Op {
		case OpLit:
			g.set(r, int64(e.Num))
		case OpVar:
			g.load(r, g.vars[e.Var].memory, 8)
		default:
			g.loadField(r, e)
		}
	}
}

// register returns a register that holds the operand: the operand's own, or r.
func (g *gen) register(o operand, r asm.Register) asm.Register {
	if o.where == inRegister {
		return o.reg
	}
	g.use(r, o)
	return r
}

func (g *gen) loadField(r asm.Register, e *Expr) {
	f := e.Field
	if _, ok := widths[f.Size]; !ok || f.Offset%f.Size != 0 {
		g.fail("the kernel cannot load %s: %d bytes at offset %d", f.Name, f.Size, f.Offset)
		return
	}
	g.read(f.Offset, f.Size)
	g.load(r, memory{event, f.Offset}, f.Size)
	if shift := int32(64 - 8*f.Size); e.Type.Kind == Int && shift > 0 { // a load clears the upper bits
		g.emit(asm.LSh.Imm(r, shift), asm.ArSh.Imm(r, shift))
	}
}

// mayBeAbsent reports whether e can be absent.
func (g *gen) mayBeAbsent(e *Expr) bool {
	if _, ok := g.held[e]; ok {
		return false
	}
	if _, ok := g.heldText[e]; ok {
		return false
	}
	return g.optionalExpr(e)
}

// optionalExpr is mayBeAbsent without regard to held values.
func (g *gen) optionalExpr(e *Expr) bool {
	known, ok := g.optional[e]
	if ok {
		return known
	}
	switch e.Op {
	case OpLit, OpAbsent, OpHasKey, OpRand, OpNuma, OpJiffies, OpGroup, OpFrame, OpSent:
	case OpStack:
		known = true
	case OpField:
		known = e.Field.Optional
	case OpVar:
		known = g.spec.Vars[e.Var].Optional
	case OpLookup:
		known = e.Map.Agg == nil && e.Map.Value.Columns[e.Elem].Optional
	case OpCoalesce:
		known = g.optionalExpr(e.Args[0]) && g.optionalExpr(e.Args[1])
	case OpCond:
		known = g.optionalExpr(e.Args[1]) || g.optionalExpr(e.Args[2])
	default:
		known = slices.ContainsFunc(e.Args, g.optionalExpr)
	}
	g.optional[e] = known
	return known
}

// hold computes a number that is needed after other code has run. It returns an operand, which stands for e until forget.
func (g *gen) hold(e *Expr, absent label) operand {
	o, ok := g.leaf(e)
	if ok {
		g.present(o, absent)
	} else {
		g.eval(e, absent)
		o = g.temp()
		g.keep(o)
	}
	g.held[e] = o
	return o
}

func (g *gen) forget(exprs ...*Expr) {
	for _, e := range exprs {
		delete(g.held, e)
		delete(g.heldText, e)
	}
}

// keep stores R0 in a temp.
func (g *gen) keep(o operand) {
	if o.where == inRegister {
		g.emit(asm.Mov.Reg(o.reg, asm.R0))
	} else {
		g.store(memory{frame, o.offset}, asm.R0, 8)
	}
}

// eval computes a number or bool into R0, or jumps to absent.
func (g *gen) eval(e *Expr, absent label) {
	if g.err != nil {
		return
	}
	if o, ok := g.leaf(e); ok {
		g.present(o, absent)
		g.use(asm.R0, o)
		return
	}
	switch e.Op {
	case OpLookup:
		g.lookup(e, absent)
	case OpStack:
		g.stack(e, absent)
	case OpRand:
		g.emit(asm.FnGetPrandomU32.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case OpNuma:
		g.emit(asm.FnGetNumaNodeId.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case OpJiffies:
		g.emit(asm.FnJiffies64.Call())
	case OpGroup: // the upper half, bpf_get_current_uid_gid of kernel/bpf/helpers.c
		g.emit(asm.FnGetCurrentUidGid.Call(), asm.RSh.Imm(asm.R0, 32))
	case OpFrame:
		g.emit(asm.Mov.Reg(asm.R0, frame))
	case OpSent:
		g.load(asm.R0, memory{frame, g.sent}, 8)
	case OpSignal:
		g.signal(e, absent)
	case OpCond:
		then, other, end := g.label(), g.label(), g.label()
		g.cond(e.Args[0], then, other, other)
		g.place(then)
		g.eval(e.Args[1], absent)
		g.jump(end)
		g.place(other)
		g.eval(e.Args[2], absent)
		g.place(end)
	case OpCoalesce:
		other, end := g.label(), g.label()
		g.eval(e.Args[0], other)
		g.jump(end)
		g.place(other)
		g.eval(e.Args[1], absent)
		g.place(end)
	case OpSigned:
		g.eval(e.Args[0], absent)
	case OpCast:
		g.eval(e.Args[0], absent)
		g.cast(asm.R0, e)
	case OpByte:
		g.byteOf(e, absent)
	case OpSwap:
		g.eval(e.Args[0], absent)
		g.swap(e)
	case OpPiece:
		g.eval(e.Args[0], absent)
		g.pieces(e)
	case OpNeg:
		g.eval(e.Args[0], absent)
		g.emit(asm.Neg.Imm(asm.R0, 0))
	case OpCompl:
		g.eval(e.Args[0], absent)
		g.emit(asm.Xor.Imm(asm.R0, -1))
	default:
		if e.Type.Kind == Bool {
			g.truth(e, absent)
			return
		}
		g.arithmetic(e, absent)
	}
}

// noProcess is -ESRCH.
const noProcess = -3

// signal sends a signal, and puts what the helper returns into R0. The helper reaches only the process that runs. In an interrupt this
// may be any process: then the signal is not sent, and the result is -ESRCH.
func (g *gen) signal(e *Expr, absent label) {
	m := g.used
	number, process := g.hold(e.Args[0], absent), g.hold(e.Args[1], absent)
	send := asm.FnSendSignal
	if e.Num == 1 {
		send = asm.FnSendSignalThread
	}
	other, end := g.label(), g.label()
	g.emit(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
	g.branch(asm.JNE.Reg(asm.R0, g.register(process, asm.R1), ""), other)
	g.use(asm.R1, number)
	g.emit(send.Call())
	g.jump(end)
	g.place(other)
	g.set(asm.R0, noProcess)
	g.place(end)
	g.forget(e.Args...)
	g.release(m)
}

// pair computes two numbers: the first into the register that it returns, the second as an operand. Both are valid until other code
// is generated.
func (g *gen) pair(x, y *Expr, absent label) (asm.Register, operand) {
	left, leftLeaf := g.leaf(x)
	right, rightLeaf := g.leaf(y)
	if leftLeaf {
		g.present(left, absent)
	}
	if rightLeaf {
		g.present(right, absent)
	}
	switch {
	case leftLeaf && rightLeaf:
		return g.register(left, asm.R0), right
	case rightLeaf:
		g.eval(x, absent)
		return asm.R0, right
	case leftLeaf:
		g.eval(y, absent)
	default:
		m := g.used
		g.eval(x, absent)
		left = g.temp()
		g.keep(left)
		g.eval(y, absent)
		g.release(m)
	}
	g.emit(asm.Mov.Reg(asm.R1, asm.R0))
	return g.register(left, asm.R0), operand{where: inRegister, reg: asm.R1}
}

var arithmetic = map[Op]asm.ALUOp{
	OpAdd: asm.Add, OpSub: asm.Sub, OpMul: asm.Mul, OpBitAnd: asm.And, OpBitOr: asm.Or, OpBitXor: asm.Xor,
}

// arithmetic computes an operation on two numbers into R0.
func (g *gen) arithmetic(e *Expr, absent label) {
	r, y := g.pair(e.Args[0], e.Args[1], absent)
	if r != asm.R0 {
		g.emit(asm.Mov.Reg(asm.R0, r))
	}
	c, constant := y.constant()
	switch e.Op {
	case OpDiv, OpMod:
		g.divide(e, y)
	case OpShl, OpShr:
		op := asm.LSh
		if e.Op == OpShr {
			op = asm.RSh
			if e.Type.Kind == Int {
				op = asm.ArSh
			}
		}
		if constant { // a constant count of 64 or more does not load
			g.emit(op.Imm(asm.R0, int32(c&63)))
			return
		}
		g.use(asm.R1, y)
		g.emit(asm.And.Imm(asm.R1, 63), op.Reg(asm.R0, asm.R1))
	default:
		op, ok := arithmetic[e.Op]
		switch {
		case !ok:
			g.fail("the kernel cannot compute the operator")
		case constant && fits32(c):
			g.emit(op.Imm(asm.R0, int32(c)))
		default:
			g.emit(op.Reg(asm.R0, g.register(y, asm.R1)))
		}
	}
}

// divide divides R0 by y. The machine divides unsigned numbers, so signs are removed before and restored after. The quotient is
// negative if exactly one operand is; the remainder has the sign of the dividend. The smallest number keeps its bits when it is
// negated, and is 2^63 to the division. A register that is 0 divides as defined: x/0 is 0, x%0 is x.
func (g *gen) divide(e *Expr, y operand) {
	signed := e.Type.Kind == Int
	op := asm.Div
	if e.Op == OpMod {
		op = asm.Mod
	}
	if c, ok := y.constant(); ok {
		g.divideConst(op, c, signed)
		return
	}
	r := asm.R1
	g.use(r, y)
	if !signed {
		g.emit(op.Reg(asm.R0, r))
		return
	}
	dividend, divisor, sign, end := g.label(), g.label(), asm.R2, g.label()
	g.emit(asm.Mov.Reg(sign, asm.R0))
	if op == asm.Div {
		g.emit(asm.Xor.Reg(sign, r))
	}
	g.branch(asm.JSGE.Imm(asm.R0, 0, ""), dividend)
	g.emit(asm.Neg.Imm(asm.R0, 0))
	g.place(dividend)
	g.branch(asm.JSGE.Imm(r, 0, ""), divisor)
	g.emit(asm.Neg.Imm(r, 0))
	g.place(divisor)
	g.emit(op.Reg(asm.R0, r))
	g.branch(asm.JSGE.Imm(sign, 0, ""), end)
	g.emit(asm.Neg.Imm(asm.R0, 0))
	g.place(end)
}

func (g *gen) divideConst(op asm.ALUOp, c int64, signed bool) {
	if c == 0 {
		if op == asm.Div {
			g.set(asm.R0, 0)
		}
		return
	}
	if !signed {
		g.divideUnsigned(op, uint64(c))
		return
	}
	magnitude := uint64(c)
	if c < 0 {
		magnitude = -magnitude
	}
	positive, end := g.label(), g.label()
	g.branch(asm.JSGE.Imm(asm.R0, 0, ""), positive)
	g.emit(asm.Neg.Imm(asm.R0, 0))
	g.divideUnsigned(op, magnitude)
	if op == asm.Mod || c > 0 {
		g.emit(asm.Neg.Imm(asm.R0, 0))
	}
	g.jump(end)
	g.place(positive)
	g.divideUnsigned(op, magnitude)
	if op == asm.Div && c < 0 {
		g.emit(asm.Neg.Imm(asm.R0, 0))
	}
	g.place(end)
}

// divideUnsigned divides R0 by a constant. A division takes tens of cycles on many machines; powers of two need none.
func (g *gen) divideUnsigned(op asm.ALUOp, c uint64) {
	if c&(c-1) == 0 {
		if op == asm.Div {
			g.emit(asm.RSh.Imm(asm.R0, int32(bits.TrailingZeros64(c))))
			return
		}
		op, c = asm.And, c-1
	}
	if c <= math.MaxInt32 {
		g.emit(op.Imm(asm.R0, int32(c)))
		return
	}
	g.set(asm.R1, int64(c))
	g.emit(op.Reg(asm.R0, asm.R1))
}

// width returns how many of the low bits of a number may be set. Below 64 the number is not negative.
func (g *gen) width(e *Expr) int {
	switch e.Op {
	case OpLit:
		return bits.Len64(e.Num)
	case OpField:
		if e.Type.Kind == Uint {
			return 8 * e.Field.Size
		}
	case OpSigned:
		return g.width(e.Args[0])
	case OpSwap:
		return int(e.Num)
	case OpCast:
		if e.Type.Kind == Uint {
			return int(min(e.Num, 64))
		}
	case OpBitAnd:
		return min(g.width(e.Args[0]), g.width(e.Args[1]))
	case OpShr:
		if n := e.Args[1]; n.Op == OpLit && e.Type.Kind == Uint {
			return max(0, g.width(e.Args[0])-int(n.Num&63))
		}
	case OpCoalesce:
		return max(g.width(e.Args[0]), g.width(e.Args[1]))
	case OpCond:
		return max(g.width(e.Args[1]), g.width(e.Args[2]))
	}
	if e.Type.Kind == Bool {
		return 1
	}
	return 64
}

// lookup computes a number of the value of a scalar map into R0: 0 if there is no such key.
func (g *gen) lookup(e *Expr, absent label) {
	end := g.label()
	from := g.find(e, end, absent)
	g.load(asm.R0, from, 8)
	g.place(end)
}

// find looks up the element of an OpLookup and returns its place, addressed by R0 or R1. If it is missing it jumps to missing with
// 0 in R0.
func (g *gen) find(e *Expr, missing, absent label) memory {
	m := e.Map
	if m.Agg != nil {
		g.fail("the kernel cannot read @%s, which is an aggregation", m.Name)
		return memory{}
	}
	c := m.Value.Columns[e.Elem]
	value := memory{asm.R0, 0}
	if len(m.Key.Columns) == 0 {
		// The value of a map that was never set is 0, so only presence bytes must not be read before it is set.
		value = memory{asm.R1, setSize}
		g.direct(asm.R1, m.Name, 0)
		if c.Optional {
			g.load(asm.R0, memory{asm.R1, 0}, 8)
			g.branch(asm.JEq.Imm(asm.R0, 0, ""), missing)
		}
	} else {
		mark := g.used
		g.lookupKey(m, g.key(m, e.Args))
		g.release(mark)
		g.branch(asm.JEq.Imm(asm.R0, 0, ""), missing)
	}
	if c.Optional {
		g.load(asm.R2, value.plus(c.Presence), 1)
		g.branch(asm.JEq.Imm(asm.R2, 0, ""), absent)
	}
	return value.plus(c.Offset)
}
