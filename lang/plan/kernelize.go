package plan

import (
	"fmt"
	"regexp"
	"slices"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/probes/event"
)

// kernelizer converts the typed tree of a site to the tree of the code generator, or returns why the kernel cannot run it.
type kernelizer struct {
	plan *Plan
	site *Site
	code *codegen.Spec
	vars int // index in code.Vars of the site's first variable
	// copies is how often the loops around a statement repeat it; 0 outside of loops.
	copies int
	// pieces reports that the site sends more than one record of an event.
	pieces bool
}

// kernelizer returns one for a site. Without code it only tries.
func (p *Plan) kernelizer(b *Site, code *codegen.Spec) *kernelizer {
	if code == nil {
		code = &codegen.Spec{}
	}
	k := &kernelizer{plan: p, site: b, code: code, vars: len(code.Vars)}
	for _, v := range b.Clause.Vars {
		code.Vars = append(code.Vars, codegen.Var{Name: v.Name, Type: kernelType(v.Type), Optional: v.Optional})
	}
	return k
}

// kernelOps maps operators to operators of the code generator, where the names differ.
var kernelOps = map[ir.Op]codegen.Op{
	ir.OpTruth: codegen.OpTruth, ir.OpAbsent: codegen.OpAbsent, ir.OpSigned: codegen.OpSigned, ir.OpNegate: codegen.OpNeg, ir.OpCompl: codegen.OpCompl,
	ir.OpNot: codegen.OpNot, ir.OpAnd: codegen.OpAnd, ir.OpOr: codegen.OpOr, ir.OpEq: codegen.OpEq, ir.OpNe: codegen.OpNe, ir.OpLt: codegen.OpLt,
	ir.OpLe: codegen.OpLe, ir.OpGt: codegen.OpGt, ir.OpGe: codegen.OpGe, ir.OpAdd: codegen.OpAdd, ir.OpSub: codegen.OpSub, ir.OpMul: codegen.OpMul,
	ir.OpDiv: codegen.OpDiv, ir.OpMod: codegen.OpMod, ir.OpBitAnd: codegen.OpBitAnd, ir.OpBitOr: codegen.OpBitOr, ir.OpBitXor: codegen.OpBitXor, ir.OpShl: codegen.OpShl,
	ir.OpShr: codegen.OpShr, ir.OpIn: codegen.OpIn, ir.OpBetween: codegen.OpBetween, ir.OpStartsWith: codegen.OpStartsWith,
	ir.OpCoalesce: codegen.OpCoalesce, ir.OpCond: codegen.OpCond,
}

// ofEvents are the words of OpSelf that events have, too.
var ofEvents = map[string]codegen.Op{"rand": codegen.OpRand, "numaid": codegen.OpNuma, "jiffies": codegen.OpJiffies, "gid": codegen.OpGroup}

// expr returns e for the kernel, or why it must stay in user space.
func (k *kernelizer) expr(e *ir.Expr) (*codegen.Expr, *Obstacle) {
	if cgroup := cgroupOf(e); cgroup != nil {
		return k.ask(e, cgroup)
	}
	out := &codegen.Expr{Type: kernelType(e.Type)}
	switch e.Op {
	case ir.OpLit:
		return k.literal(e, out)
	case ir.OpField:
		if e.Field.Of != nil {
			return nil, k.cannot(e, "the "+e.Field.Name+" of a cgroup")
		}
		out.Op, out.Field = codegen.OpField, kernelField(e.Field)
		return out, nil
	case ir.OpVar:
		if e.Variable.Elems != nil {
			return nil, k.cannot(e, tupleOfMap)
		}
		out.Op, out.Var = codegen.OpVar, k.vars+e.Variable.Index
		return out, nil
	case ir.OpStack:
		out.Op, out.Stack = codegen.OpStack, &codegen.Stack{User: e.Fn == "ustack", Frames: e.Frames}
		return out, nil
	case ir.OpElapsed:
		now := &ir.Expr{Op: ir.OpField, Field: e.Field, Type: e.Type}
		start := &ir.Expr{Op: ir.OpLit, Type: e.Type, Val: k.plan.Options.Started}
		return k.expr(&ir.Expr{Op: ir.OpSub, Args: []*ir.Expr{now, start}, Type: e.Type, Span: e.Span})
	case ir.OpCommand:
		return k.literal(&ir.Expr{Op: ir.OpLit, Type: e.Type, Val: uint64(k.plan.Options.Command)}, out)
	case ir.OpOwn:
		return k.literal(&ir.Expr{Op: ir.OpLit, Type: e.Type, Val: uint64(k.plan.Options.Own)}, out)
	case ir.OpSelf:
		out.Op = ofEvents[e.Fn]
		return out, nil
	case ir.OpSignal:
		out.Op = codegen.OpSignal
		if e.Fn == ir.ToThread {
			out.Num = 1
		}
	case ir.OpLookup, ir.OpHasKey:
		return k.lookup(e, out)
	case ir.OpMember:
		return k.member(e, out)
	case ir.OpCast:
		out.Op, out.Num = codegen.OpCast, uint64(e.Bits)
	case ir.OpByte:
		out.Op, out.Num = codegen.OpByte, uint64(e.Index)
	case ir.OpCall:
		if ir.TextUnits[e.Fn] == event.None {
			return nil, k.cannot(e, whatOf(e))
		}
		out.Op = codegen.OpPiece
		out.Num, out.Pieces = codeOf(ir.NamingOf(e.Type))
	case ir.OpSwap:
		out.Op, out.Num = codegen.OpSwap, uint64(e.Bits)
	case ir.OpStartsWith:
		if e.Args[1].Op != ir.OpLit {
			return nil, k.cannot(e, "startsWith with a string that is not a literal")
		}
		out.Op = codegen.OpStartsWith
	case ir.OpIn:
		if slices.ContainsFunc(e.Args, func(a *ir.Expr) bool { return a.Type.Kind == format.Tuple }) {
			return nil, k.cannot(e, "in of tuples")
		}
		out.Op = codegen.OpIn
	default:
		op, ok := kernelOps[e.Op]
		if !ok {
			return nil, k.cannot(e, whatOf(e))
		}
		out.Op = op
	}
	var why *Obstacle
	if out.Args, why = k.operands(e); why != nil {
		return nil, why
	}
	if out.Type.Kind == codegen.String {
		for _, a := range out.Args {
			out.Type.Size = max(out.Type.Size, a.Type.Size)
		}
	}
	return out, nil
}

// whatOf names an operator that only user space has.
func whatOf(e *ir.Expr) string {
	switch e.Op {
	case ir.OpCall:
		if ir.IsCgroup(e.Args[0]) {
			return "the path of a cgroup"
		}
		return e.Fn + "()"
	case ir.OpTuple:
		return "a tuple as a value of an expression"
	}
	return e.Op.String()
}

// tupleOfMap is what is left of tuples in variables after [ir.Clause.Split].
const tupleOfMap = "a variable that takes a whole tuple from a map"

func (k *kernelizer) cannot(e *ir.Expr, what string) *Obstacle {
	return &Obstacle{Reason: what + " is not supported in the kernel", span: e.Span}
}

func (k *kernelizer) exprs(in []*ir.Expr) ([]*codegen.Expr, *Obstacle) {
	out := make([]*codegen.Expr, len(in))
	for i, e := range in {
		var why *Obstacle
		if out[i], why = k.expr(e); why != nil {
			return nil, why
		}
	}
	return out, nil
}

func (k *kernelizer) literal(e *ir.Expr, out *codegen.Expr) (*codegen.Expr, *Obstacle) {
	out.Op = codegen.OpLit
	switch v := e.Val.(type) {
	case bool:
		if v {
			out.Num = 1
		}
	case string:
		out.Str = v
		if e.Type.Kind == event.String {
			out.Type.Size = max(len(v), 1)
		}
	case *regexp.Regexp:
		return nil, k.cannot(e, "matches")
	default:
		out.Num = event.To[uint64](v)
	}
	return out, nil
}

func kernelField(f *event.Field) *codegen.Field {
	out := &codegen.Field{Name: f.Name, Optional: f.Optional}
	out.Offset, out.Size = f.Offset, f.Type.Size
	if f.Optional {
		out.HasOffset, out.HasMask = f.Presence.Offset, f.Presence.Mask
	}
	return out
}

// lookup reads a map that is in the kernel.
func (k *kernelizer) lookup(e *ir.Expr, out *codegen.Expr) (*codegen.Expr, *Obstacle) {
	m, why := k.inKernel(e.Map, e)
	if why != nil {
		return nil, why
	}
	out.Op, out.Map = codegen.OpLookup, m
	if e.Op == ir.OpHasKey {
		out.Op = codegen.OpHasKey
	} else if e.Map.IsTuple {
		return nil, k.cannot(e, "a tuple as a value of an expression")
	}
	out.Args, why = k.columns(e.Map.Key, e.Args)
	return out, why
}

// columns returns the elements of a key or value with the types of the map's columns, which are signed if any use is.
func (k *kernelizer) columns(columns []ir.Column, in []*ir.Expr) ([]*codegen.Expr, *Obstacle) {
	out := make([]*codegen.Expr, len(in))
	for i, c := range columns {
		e := in[i]
		if c.Type.Kind == event.Int {
			e = ir.Signed(e)
		}
		var why *Obstacle
		if out[i], why = k.as(c.Type, e); why != nil {
			return nil, why
		}
	}
	return out, nil
}

func (k *kernelizer) inKernel(m *ir.Map, e *ir.Expr) (*codegen.Map, *Obstacle) {
	if placed := k.plan.Maps[m]; placed != nil {
		return placed.Code, nil
	}
	o := &Obstacle{Reason: fmt.Sprintf("%s is in user space: %s", m.Name, k.plan.userMaps[m])}
	if e != nil {
		o.span = e.Span
	}
	return nil, o
}

// member reads an element of a tuple that a map holds or that the program writes out.
func (k *kernelizer) member(e *ir.Expr, out *codegen.Expr) (*codegen.Expr, *Obstacle) {
	of := e.Args[0]
	switch of.Op {
	case ir.OpTuple:
		return k.expr(of.Args[e.Index])
	case ir.OpLookup:
		m, why := k.inKernel(of.Map, e)
		if why != nil {
			return nil, why
		}
		out.Op, out.Map, out.Elem = codegen.OpLookup, m, e.Index
		out.Args, why = k.columns(of.Map.Key, of.Args)
		return out, why
	}
	return nil, k.cannot(e, tupleOfMap)
}

// body returns the statements of the site for the kernel, which can run them.
func (k *kernelizer) body() []codegen.Stmt {
	before := len(k.plan.Parts)
	body, _ := k.stmts(k.site.Stmts)
	if most(body...) <= 1 {
		return body
	}
	k.plan.Parts, k.pieces = k.plan.Parts[:before], true
	body, _ = k.stmts(k.site.Stmts)
	body, _ = k.marker().mark(body, false, false)
	for _, s := range k.plan.Parts[before:] {
		s.layout.Partial = !s.Piece.Last
	}
	return body
}

func (k *kernelizer) marker() *marker {
	return &marker{
		pieceOf: func(s *codegen.Emit) *Piece { return k.plan.Parts[s.ID].Piece },
		end: func() *codegen.Emit {
			out := k.plan.emit(&Part{Site: k.site, Piece: &Piece{Last: true}}, nil, nil, k)
			out.Ends = true
			return out
		},
	}
}

// stmts returns statements for the kernel. Statements that only user space can run become records: one record for each run of
// adjacent statements.
func (k *kernelizer) stmts(in []ir.Stmt) ([]codegen.Stmt, *Obstacle) {
	var out []codegen.Stmt
	var rest []ir.Stmt
	stop := false
	flush := func() *Obstacle {
		if rest == nil {
			return nil
		}
		emit, why := k.send(rest)
		out, rest = append(out, emit), nil
		if stop {
			out = append(out, &codegen.Stop{})
		}
		return why
	}
	for _, s := range in {
		if call, ok := s.(*ir.CallStmt); ok && call.Fn != "delete" {
			rest = append(rest, s)
			if stop = call.Fn == "exit"; stop {
				break // what follows is unreachable
			}
			continue
		}
		if why := flush(); why != nil {
			return nil, why
		}
		one, why := k.stmt(s)
		if why != nil {
			return nil, why
		}
		out = append(out, one)
	}
	return out, flush()
}

func (k *kernelizer) stmt(s ir.Stmt) (codegen.Stmt, *Obstacle) {
	switch s := s.(type) {
	case *ir.SetStmt:
		return k.set(s)
	case *ir.UpdateStmt:
		return k.update(s)
	case *ir.LetStmt:
		if s.V.Elems != nil {
			return nil, k.cannot(s.Value, tupleOfMap)
		}
		value, why := k.columns([]ir.Column{{Type: s.V.Type}}, []*ir.Expr{s.Value})
		if why != nil {
			return nil, why
		}
		return &codegen.Let{Var: k.vars + s.V.Index, Value: value[0]}, nil
	case *ir.IfStmt:
		cond, why := k.expr(s.Cond)
		if why != nil {
			return nil, why
		}
		then, why := k.stmts(s.Then)
		if why != nil {
			return nil, why
		}
		els, why := k.stmts(s.Else)
		return &codegen.If{Cond: cond, Then: then, Else: els}, why
	case *ir.CallStmt: // delete
		m, why := k.inKernel(s.Map, nil)
		if why != nil {
			return nil, why
		}
		key, why := k.columns(s.Map.Key, s.Key)
		return &codegen.Delete{Map: m, Key: key}, why
	case *ir.ForStmt:
		return k.loop(s)
	case *ir.JumpStmt:
		return &codegen.Jump{Continue: s.Continue}, nil
	case *ir.ReturnStmt:
		return &codegen.Return{}, nil
	}
	return nil, &Obstacle{Reason: "while is not supported in the kernel", span: s.Pos()}
}

// maxCopies is how many statements a loop may become. A map takes up to a hundred instructions, and a jump reaches 32767.
const maxCopies = 128

// loop copies the body of a loop over a range for each turn. The kernel knows how often only of literals.
func (k *kernelizer) loop(s *ir.ForStmt) (codegen.Stmt, *Obstacle) {
	cannot := func(why string) *Obstacle { return &Obstacle{Reason: why, span: s.Span} }
	switch {
	case s.Map != nil:
		return nil, cannot("a loop over a map is not supported in the kernel")
	case s.Lo.Op != ir.OpLit || s.Hi.Op != ir.OpLit:
		return nil, cannot("a loop whose range is not of literals is not supported in the kernel")
	}
	turns, known := turnsOf(s)
	if !known || turns*max(k.copies, 1)*sizeOf(s.Body) > maxCopies {
		return nil, cannot("the loop is too long for the kernel")
	}
	around := k.copies
	k.copies = max(k.copies, 1) * max(turns, 1)
	body, why := k.stmts(s.Body)
	k.copies = around
	return &codegen.Repeat{Var: k.vars + s.V.Index, From: event.To[uint64](s.Lo.Val), Times: turns, Body: body}, why
}

// turnsOf returns how often a loop over literals runs, if that is not too often.
func turnsOf(s *ir.ForStmt) (n int, known bool) {
	if event.Compare(s.Lo.Val, s.Hi.Val) >= 0 {
		return 0, true
	}
	turns := event.To[uint64](s.Hi.Val) - event.To[uint64](s.Lo.Val)
	return int(min(turns, maxCopies+1)), turns <= maxCopies
}

// sizeOf counts statements.
func sizeOf(stmts []ir.Stmt) (n int) {
	ir.WalkStmts(stmts, func(ir.Stmt) { n++ })
	return n
}

func (k *kernelizer) set(s *ir.SetStmt) (codegen.Stmt, *Obstacle) {
	m, why := k.inKernel(s.Map, nil)
	if why != nil {
		return nil, why
	}
	key, why := k.key(s.Map, s.Key)
	if why != nil {
		return nil, why
	}
	value, why := k.columns(s.Map.Value, s.Value)
	if why != nil {
		return nil, why
	}
	if s.Adds {
		return &codegen.Add{Map: m, Key: key, Delta: value[0]}, nil
	}
	return &codegen.Set{Map: m, Key: key, Value: value}, nil
}

func (k *kernelizer) update(s *ir.UpdateStmt) (codegen.Stmt, *Obstacle) {
	m, why := k.inKernel(s.Map, nil)
	if why != nil {
		return nil, why
	}
	out := &codegen.Update{Map: m}
	if out.Key, why = k.key(s.Map, s.Key); why != nil || s.Arg == nil {
		return out, why
	}
	if s.Thread != nil {
		out.At, _ = k.expr(s.At)
		out.Thread, _ = k.expr(s.Thread)
	}
	arg := s.Arg
	if s.Map.Agg.Signed {
		arg = ir.Signed(arg)
	}
	out.Arg, why = k.expr(arg)
	return out, why
}

// send emits a record with what statements in user space need: fields, and what only the kernel has: variables, stacks and maps.
func (k *kernelizer) send(in []ir.Stmt) (codegen.Stmt, *Obstacle) {
	s := &Part{Site: k.site}
	if k.pieces {
		s.Piece = &Piece{}
	}
	var slots []*ir.Expr
	var obst *Obstacle
	replace := func(e *ir.Expr) *ir.Expr {
		if _, why := k.expr(e); why != nil {
			obst = why
			return e
		}
		slots = append(slots, e)
		return &ir.Expr{Op: ir.OpSlot, Index: len(slots) - 1, Type: e.Type, Optional: e.Optional, Span: e.Span}
	}
	for _, one := range in {
		s.Stmts = append(s.Stmts, k.withSlots(one.(*ir.CallStmt), replace))
	}
	if obst != nil {
		return nil, obst
	}
	reads := &Site{Site: &ir.Site{Probe: k.site.Probe, Stmts: s.Stmts}}
	if k.trial() {
		return nil, nil
	}
	return k.plan.emit(s, reads.Fields(k.plan.Options.Columns), slots, k), nil
}

// trial reports that the result is not used, only whether there is one.
func (k *kernelizer) trial() bool { return k.code.Ring == "" }

// withSlots replaces what only the kernel has in the arguments of a call.
func (k *kernelizer) withSlots(call *ir.CallStmt, replace func(*ir.Expr) *ir.Expr) *ir.CallStmt {
	out := *call
	out.Args = make([]*ir.Expr, len(call.Args))
	for i, a := range call.Args {
		out.Args[i] = rewrite(a, replace)
	}
	return &out
}

// rewrite replaces variables, stacks, what the CPU has, and reads of maps. It does not descend into what it replaces.
func rewrite(e *ir.Expr, replace func(*ir.Expr) *ir.Expr) *ir.Expr {
	switch {
	case e.Op == ir.OpVar, e.Op == ir.OpStack, e.Op == ir.OpSelf, e.Op == ir.OpLookup, e.Op == ir.OpHasKey, e.Op == ir.OpMember && e.Args[0].Op == ir.OpLookup:
		return replace(e)
	case len(e.Args) == 0:
		return e
	}
	out := *e
	out.Args = make([]*ir.Expr, len(e.Args))
	for i, a := range e.Args {
		out.Args[i] = rewrite(a, replace)
	}
	return &out
}
