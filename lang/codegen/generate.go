package codegen

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Generate generates the filter and the action for a probe. Its error is a *LimitError, or of StackLeft.
//
// The first instruction of both functions is a plain move. The caller gives it the function's name and type. The labels begin with
// Spec.Prefix.
func Generate(p Spec) (*Code, error) {
	if len(p.Parts) > MaxParts {
		return nil, &LimitError{MaxParts, fmt.Sprintf("a probe can have %d clauses in the kernel", MaxParts)}
	}
	filter, action := generateFilter(&p), generateAction(&p)
	for _, g := range []*gen{filter, action} {
		if g.err != nil {
			return nil, g.err
		}
	}
	code := &Code{Filter: filter.finish(), Action: action.finish()}
	code.Before = spans(filter.reads, nil)
	code.After = spans(action.reads, filter.reads)
	maps.Copy(action.maps, filter.maps)
	code.Maps = slices.Sorted(maps.Keys(action.maps))
	return code, nil
}

// String prints the instructions. The text of a clause precedes its instructions.
func (c *Code) String() string {
	return fmt.Sprintf("filter:\n%v\naction:\n%v", c.Filter, c.Action)
}

// spans joins the bytes in reads that are not in others.
func spans(reads, others []Span) []Span {
	end := 0
	for _, s := range reads {
		end = max(end, s.Offset+s.Size)
	}
	wanted := make([]bool, end)
	mark := func(spans []Span, as bool) {
		for _, s := range spans {
			for i := s.Offset; i < min(s.Offset+s.Size, end); i++ {
				wanted[i] = as
			}
		}
	}
	mark(reads, true)
	mark(others, false)
	var joined []Span
	for i, want := range wanted {
		switch {
		case !want:
		case i > 0 && wanted[i-1]:
			joined[len(joined)-1].Size++
		default:
			joined = append(joined, Span{i, 1})
		}
	}
	return joined
}

// filtered reports whether the filter evaluates the predicate.
func (c *Part) filtered() bool { return c.Pred != nil && !c.Late }

// begin begins the code of a part.
func (g *gen) begin(i int) mark {
	g.part, g.deepest = i, 0
	g.comment = g.spec.Parts[i].Comment
	return g.used
}

// end checks how much stack the part needs.
func (g *gen) end(m mark, what string) {
	if g.deepest > g.spec.Stack && g.spec.StackLeft != nil {
		left, err := g.spec.StackLeft()
		if err != nil && g.err == nil {
			g.err = err
		}
		g.spec.Stack, g.spec.StackLeft = left, nil
	}
	if g.deepest > g.spec.Stack {
		g.fail("%s need %d bytes of stack, but only %d are left", what, g.deepest, g.spec.Stack)
	}
	g.release(m)
	g.comment = ""
}

// maxKnown is how many bits of the filter's result the verifier may know. It follows the caller once for each combination of the
// bits that matter there, 2^n times. A 0 of unknown value, read from a map, hides the bits.
const maxKnown = 4

func generateFilter(p *Spec) *gen {
	g := newGen(p, 'f', asm.R7, asm.R8, asm.R9)
	end := g.label()
	g.set(asm.R0, 0)
	g.keepContext(true)
	if p.Stops {
		g.direct(asm.R1, StoppedName, 0)
		g.load(asm.R1, memory{asm.R1, 0}, 8)
		g.branch(asm.JNE.Imm(asm.R1, 0, ""), end)
	}
	if len(p.Within) > 0 || slices.ContainsFunc(p.Parts, func(c Part) bool { return c.filtered() }) {
		g.emit(asm.Mov.Reg(event, asm.R2))
	}
	for _, w := range p.Within {
		g.within(w, end)
	}
	var always uint64
	filtered := 0
	for i := range p.Parts {
		if p.Parts[i].filtered() {
			filtered++
		} else {
			always |= 1 << i
		}
	}
	if filtered == 0 {
		g.set(asm.R0, int64(always))
		g.place(end)
		g.emit(asm.Return())
		return g
	}
	if len(p.Parts) == 1 {
		m := g.begin(0)
		g.predicate(&p.Parts[0], func() { g.set(asm.R0, 1) }, func() { g.set(asm.R0, 0) })
		g.end(m, "its predicate's values")
		g.place(end)
		g.emit(asm.Return())
		return g
	}
	const passed = asm.R9
	g.pool = g.pool[:2]
	g.set(passed, int64(always))
	for i := range p.Parts {
		c := &p.Parts[i]
		if !c.filtered() {
			continue
		}
		m := g.begin(i)
		g.predicate(c, func() {
			if bit := int64(1) << i; fits32(bit) {
				g.emit(asm.Or.Imm(passed, int32(bit)))
			} else {
				g.set(asm.R1, bit)
				g.emit(asm.Or.Reg(passed, asm.R1))
			}
		}, func() {})
		g.end(m, "its predicate's values")
	}
	g.emit(asm.Mov.Reg(asm.R0, passed))
	if filtered > maxKnown {
		g.direct(asm.R1, ZerosName, 0)
		g.load(asm.R1, memory{asm.R1, 0}, 8)
		g.emit(asm.Xor.Reg(asm.R0, asm.R1))
	}
	g.place(end)
	g.emit(asm.Return())
	return g
}

// predicate generates the code for a predicate that holds and for one that does not.
func (g *gen) predicate(c *Part, holds, fails func()) {
	g.variables(&Part{Pred: c.Pred})
	yes, no, end := g.label(), g.label(), g.label()
	g.cond(c.Pred, yes, no, no)
	g.place(yes)
	holds()
	g.jump(end)
	g.place(no)
	fails()
	g.place(end)
}

func generateAction(p *Spec) *gen {
	g := newGen(p, 'a', asm.R7, asm.R8, asm.R9)
	const passed = asm.R9
	g.emit(asm.Mov.Reg(event, asm.R2))
	g.keepContext(false)
	// The action of a single part is called only if its event passed.
	several := len(p.Parts) > 1 && slices.ContainsFunc(p.Parts, func(c Part) bool { return c.filtered() })
	if several {
		g.pool = g.pool[:2]
		g.emit(asm.Mov.Reg(passed, asm.R3))
	}
	g.keepTurn()
	g.over = g.label()
	for i := range p.Parts {
		c := &p.Parts[i]
		m := g.begin(i)
		end := g.label()
		if several && c.filtered() {
			g.emit(asm.Mov.Reg(asm.R0, passed))
			if bit := int64(1) << i; fits32(bit) {
				g.emit(asm.And.Imm(asm.R0, int32(bit)))
			} else {
				g.emit(asm.RSh.Imm(asm.R0, int32(i)), asm.And.Imm(asm.R0, 1))
			}
			g.branch(asm.JEq.Imm(asm.R0, 0, ""), end)
		}
		g.variables(c)
		if c.Late && c.Pred != nil {
			body := g.label()
			g.cond(c.Pred, body, end, end)
			g.place(body)
		}
		g.block(c.Body, end)
		g.place(end)
		g.end(m, "its keys, variables and values")
	}
	g.place(g.over)
	g.set(asm.R0, 0)
	g.emit(asm.Return())
	return g
}

// variable is where a $variable is: its value, and a word that is 1 if it is absent.
type variable struct {
	memory
	absent int
}

// variables makes room for the variables that a part uses, and clears them.
func (g *gen) variables(c *Part) {
	g.vars = make(map[int]variable)
	use := func(i int) {
		if _, ok := g.vars[i]; ok {
			return
		}
		v := g.spec.Vars[i]
		size := v.Type.width()
		place := variable{memory: memory{frame, g.alloc(size)}}
		g.zero(place.memory, size)
		if v.Optional {
			place.absent = g.alloc(8)
			g.zero(memory{frame, place.absent}, 8)
		}
		g.vars[i] = place
	}
	exprs(c.Pred, use)
	statements(c.Body, use)
	if sendsPieces(c.Body) {
		g.sent = g.alloc(8)
		g.clearSent()
	}
}

// statements calls use for the variables of statements.
func statements(body []Stmt, use func(int)) {
	eachExpr(body, func(e *Expr) { exprs(e, use) }, use)
}

// eachExpr calls visit for the expressions of statements, and let for the variables that they set.
func eachExpr(body []Stmt, visit func(*Expr), let func(int)) {
	all := func(list []*Expr) {
		for _, e := range list {
			visit(e)
		}
	}
	for _, s := range body {
		switch s := s.(type) {
		case *Set:
			all(s.Key)
			all(s.Value)
		case *Add:
			all(s.Key)
			visit(s.Delta)
		case *Update:
			all(s.Key)
			visit(s.Arg)
		case *Delete:
			all(s.Key)
		case *Let:
			let(s.Var)
			visit(s.Value)
		case *If:
			visit(s.Cond)
			eachExpr(s.Then, visit, let)
			eachExpr(s.Else, visit, let)
		case *Repeat:
			let(s.Var)
			eachExpr(s.Body, visit, let)
		case *Emit:
			for _, slot := range s.Values {
				visit(slot.Value)
			}
		}
	}
}

func exprs(e *Expr, use func(int)) {
	if e == nil {
		return
	}
	if e.Op == OpVar {
		use(e.Var)
	}
	for _, a := range e.Args {
		exprs(a, use)
	}
}

// block generates statements. A Return jumps to end.
func (g *gen) block(body []Stmt, end label) {
	for _, s := range body {
		m := g.used
		switch s := s.(type) {
		case *Set:
			g.assign(s)
		case *Add:
			g.add(s)
		case *Update:
			g.update(s)
		case *Delete:
			g.remove(s)
		case *Let:
			g.let(s)
		case *If:
			then, other, done := g.label(), g.label(), g.label()
			g.cond(s.Cond, then, other, other)
			g.place(then)
			g.block(s.Then, end)
			g.jump(done)
			g.place(other)
			g.block(s.Else, end)
			g.place(done)
		case *Repeat:
			g.repeat(s, end)
		case *Jump:
			g.jump(g.loop.target(s))
		case *Emit:
			g.send(s)
		case *Stop:
			g.direct(asm.R2, StoppedName, 0)
			g.storeConst(memory{asm.R2, 0}, 1, 8)
			g.jump(g.over)
		case *Return:
			g.jump(end)
		}
		g.release(m)
	}
}

func (g *gen) let(s *Let) {
	v, declared := g.vars[s.Var], g.spec.Vars[s.Var]
	if !declared.Optional {
		if g.mayBeAbsent(s.Value) {
			g.fail("$%s cannot be absent, but the value assigned to it can", declared.Name)
		}
		g.column(s.Value, declared.Type, v.memory, declared.Type.width(), noPresence)
		return
	}
	absent, end := g.label(), g.label()
	g.value(s.Value, v.memory, declared.Type.width(), absent)
	g.zero(memory{frame, v.absent}, 8)
	g.jump(end)
	g.place(absent)
	g.storeConst(memory{frame, v.absent}, 1, 8)
	g.place(end)
}

// value stores the value of e in size bytes. If e is absent, it stores nothing and jumps to absent.
func (g *gen) value(e *Expr, to memory, size int, absent label) {
	if e.Type.isText() {
		m := g.used
		g.textTo(to, e, size, absent)
		g.release(m)
		return
	}
	g.eval(e, absent)
	g.store(to, asm.R0, 8)
}

const noPresence = -1

// column stores the value of e in size bytes, or zeros if e is absent, and a byte that reports whether it is present. to is not
// based on R0 or R1.
func (g *gen) column(e *Expr, t Type, to memory, size int, presence int) {
	if e.Type.isText() != t.isText() {
		g.fail("the kernel cannot store text as a number")
		return
	}
	at := memory{to.base, presence}
	absent, end := nowhere, g.label()
	if g.mayBeAbsent(e) {
		absent = g.label()
	}
	g.value(e, to, size, absent)
	if presence != noPresence {
		g.storeConst(at, 1, 1)
	}
	if absent != nowhere {
		g.jump(end)
		g.place(absent)
		g.zero(to, size)
		if presence != noPresence {
			g.storeConst(at, 0, 1)
		}
		g.place(end)
	}
}

// row builds a key or value on the stack. It writes every byte.
func (g *gen) row(r Row, values []*Expr) int {
	row := g.alloc(r.Size)
	columns := 0
	for _, c := range r.Columns {
		columns += c.Type.width()
	}
	g.zero(memory{frame, row + columns}, r.Size-columns)
	for i, c := range r.Columns {
		presence := noPresence
		if c.Optional {
			presence = row + c.Presence
		}
		g.column(values[i], c.Type, memory{frame, row + c.Offset}, c.Type.width(), presence)
	}
	return row
}

func (s *Slot) size() int {
	if s.Value.Type.isText() {
		return s.Value.Type.Size
	}
	return 8
}

// gaps clears the bytes of a record that nothing else writes: the memory of the ring buffer holds old records.
func (g *gen) gaps(record memory, s *Emit) {
	covered := make([]bool, s.Size)
	cover := func(at, size int) {
		if at+size > s.Size {
			g.fail("a record of %d bytes has no room for byte %d", s.Size, at+size-1)
			return
		}
		for i := range size {
			covered[at+i] = true
		}
	}
	cover(0, 8)
	for _, c := range s.Copies {
		cover(c.To, c.Size)
	}
	for _, v := range s.Values {
		cover(v.To, v.size())
		if v.Presence != 0 {
			cover(v.Presence, 1)
		}
	}
	for at := 0; at < s.Size; {
		n := 0
		for at+n < s.Size && !covered[at+n] {
			n++
		}
		g.zero(record.plus(at), n)
		at += max(n, 1)
	}
}

// count adds 1 to a counter in an element of a per-CPU array. The addition is atomic because an interrupt may run a BPF program in
// between.
func (g *gen) count(mapName string, index, offset int) {
	end := g.label()
	g.lookupIndex(mapName, index)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), end)
	g.set(asm.R1, 1)
	g.emit(atomic(asm.AddAtomic, memory{asm.R0, offset}, asm.R1))
	g.place(end)
}
