package lang

import (
	"fmt"
	"regexp"
	"slices"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/output"
	"trace/probes/event"
)

// kernelizer turns the typed tree of a body into that of the code generator, or says what of it the kernel cannot do.
type kernelizer struct {
	plan *Plan
	part *part
	code *codegen.Program
	vars int // index in code.Vars of the body's first variable
}

// kernelizer for a body; without code it is a trial.
func (p *Plan) kernelizer(b *part, code *codegen.Program) *kernelizer {
	if code == nil {
		code = &codegen.Program{}
	}
	k := &kernelizer{plan: p, part: b, code: code, vars: len(code.Vars)}
	for _, v := range b.clause.vars {
		code.Vars = append(code.Vars, codegen.Var{Name: v.name, Type: kernelType(v.typ), Optional: v.optional})
	}
	return k
}

// operators of the language and of the typed tree that generated code has under another name.
var kernelOps = map[string]codegen.Op{
	opTruth: codegen.OpTruth, opAbsent: codegen.OpAbsent, opSigned: codegen.OpSigned, opNegate: codegen.OpNeg, "~": codegen.OpCompl,
	"!": codegen.OpNot, "&&": codegen.OpAnd, "||": codegen.OpOr, "==": codegen.OpEq, "!=": codegen.OpNe, "<": codegen.OpLt,
	"<=": codegen.OpLe, ">": codegen.OpGt, ">=": codegen.OpGe, "+": codegen.OpAdd, "-": codegen.OpSub, "*": codegen.OpMul,
	"/": codegen.OpDiv, "%": codegen.OpMod, "&": codegen.OpBitAnd, "|": codegen.OpBitOr, "^": codegen.OpBitXor, "<<": codegen.OpShl,
	">>": codegen.OpShr, "in": codegen.OpIn, opBetween: codegen.OpBetween, "startsWith": codegen.OpStartsWith,
	"??": codegen.OpCoalesce, opCond: codegen.OpCond,
}

// expr returns e for the kernel, or why it has to stay in user space.
func (k *kernelizer) expr(e *expr) (*codegen.Expr, *obstacle) {
	out := &codegen.Expr{Type: kernelType(e.typ)}
	switch e.op {
	case opLit:
		return k.literal(e, out)
	case opField:
		out.Op, out.Field = codegen.OpField, kernelField(e.field)
		return out, nil
	case opVar:
		if e.variable.elems != nil {
			return nil, k.cannot(e, "a variable that holds a tuple")
		}
		out.Op, out.Var = codegen.OpVar, k.vars+e.variable.index
		return out, nil
	case opStack:
		out.Op, out.Stack = codegen.OpStack, &codegen.Stack{User: e.fn == "ustack", Frames: e.index}
		return out, nil
	case opElapsed:
		now := &expr{op: opField, field: e.field, typ: e.typ}
		start := &expr{op: opLit, typ: e.typ, val: k.plan.options.Started}
		return k.expr(&expr{op: "-", args: []*expr{now, start}, typ: e.typ, span: e.span})
	case opCommand:
		return k.literal(&expr{op: opLit, typ: e.typ, val: uint64(k.plan.options.Command)}, out)
	case opLookup, opHasKey:
		return k.lookup(e, out)
	case opMember:
		return k.member(e, out)
	case opCast:
		out.Op, out.Num = codegen.OpCast, uint64(e.index)
	case "startsWith":
		if e.args[1].op != opLit {
			return nil, k.cannot(e, "startsWith of a string that is no literal")
		}
		out.Op = codegen.OpStartsWith
	case "in":
		if slices.ContainsFunc(e.args, func(a *expr) bool { return a.typ.Kind == format.Tuple }) {
			return nil, k.cannot(e, "in of tuples")
		}
		out.Op = codegen.OpIn
	default:
		op, ok := kernelOps[e.op]
		if !ok {
			return nil, k.cannot(e, e.what())
		}
		out.Op = op
	}
	var why *obstacle
	if out.Args, why = k.exprs(e.args); why != nil {
		return nil, why
	}
	if out.Type.Kind == codegen.String {
		for _, a := range out.Args {
			out.Type.Size = max(out.Type.Size, a.Type.Size)
		}
	}
	return out, nil
}

// what names an operator that only user space has.
func (e *expr) what() string {
	switch e.op {
	case opCall:
		if isCgroup(e.args[0]) {
			return "the path of a cgroup"
		}
		return e.fn + "()"
	case opTuple:
		return "a tuple as a value of an expression"
	}
	return e.op
}

func (k *kernelizer) cannot(e *expr, what string) *obstacle {
	return &obstacle{reason: what + " is not done in the kernel", span: e.span}
}

func (k *kernelizer) exprs(in []*expr) ([]*codegen.Expr, *obstacle) {
	out := make([]*codegen.Expr, len(in))
	for i, e := range in {
		var why *obstacle
		if out[i], why = k.expr(e); why != nil {
			return nil, why
		}
	}
	return out, nil
}

func (k *kernelizer) literal(e *expr, out *codegen.Expr) (*codegen.Expr, *obstacle) {
	out.Op = codegen.OpLit
	switch v := e.val.(type) {
	case bool:
		if v {
			out.Num = 1
		}
	case string:
		out.Str = v
		if e.typ.Kind == event.String {
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
func (k *kernelizer) lookup(e *expr, out *codegen.Expr) (*codegen.Expr, *obstacle) {
	m, why := k.inKernel(e.m, e)
	if why != nil {
		return nil, why
	}
	out.Op, out.Map = codegen.OpLookup, m
	if e.op == opHasKey {
		out.Op = codegen.OpHasKey
	} else if e.m.isTuple {
		return nil, k.cannot(e, "a tuple as a value of an expression")
	}
	out.Args, why = k.exprs(k.typedKey(e.m, e.args))
	return out, why
}

// typedKey makes the elements of a key what the map's columns are: signed if any use is.
func (k *kernelizer) typedKey(m *mapInfo, key []*expr) []*expr {
	return convert(m.key, key)
}

func convert(columns []column, in []*expr) []*expr {
	out := slices.Clone(in)
	for i, c := range columns {
		if c.typ.Kind == event.Int {
			out[i] = signed(in[i])
		}
	}
	return out
}

func (k *kernelizer) inKernel(m *mapInfo, e *expr) (*codegen.Map, *obstacle) {
	if placed := k.plan.maps[m]; placed != nil {
		return placed.code, nil
	}
	o := &obstacle{reason: fmt.Sprintf("%s is in user space: %s", m.name, k.plan.userMaps[m])}
	if e != nil {
		o.span = e.span
	}
	return nil, o
}

// member is an element of a tuple that a map holds, or of a tuple as it is written.
func (k *kernelizer) member(e *expr, out *codegen.Expr) (*codegen.Expr, *obstacle) {
	of := e.args[0]
	switch of.op {
	case opTuple:
		return k.expr(of.args[e.index])
	case opLookup:
		m, why := k.inKernel(of.m, e)
		if why != nil {
			return nil, why
		}
		out.Op, out.Map, out.Elem = codegen.OpLookup, m, e.index
		out.Args, why = k.exprs(k.typedKey(of.m, of.args))
		return out, why
	}
	return nil, k.cannot(e, "a tuple in a variable")
}

// stmts returns statements for the kernel. Those that only user space can do become records: one for all that stand together.
func (k *kernelizer) stmts(in []stmt) ([]codegen.Stmt, *obstacle) {
	var out []codegen.Stmt
	var rest []stmt
	stop := false
	flush := func() *obstacle {
		if rest == nil {
			return nil
		}
		emit, why := k.record(rest)
		out, rest = append(out, emit), nil
		if stop {
			out = append(out, &codegen.Stop{})
		}
		return why
	}
	for _, s := range in {
		if call, ok := s.(*callStmt); ok && call.fn != "delete" {
			rest = append(rest, s)
			if stop = call.fn == "exit"; stop {
				break // what follows is never reached
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

func (k *kernelizer) stmt(s stmt) (codegen.Stmt, *obstacle) {
	switch s := s.(type) {
	case *setStmt:
		return k.set(s)
	case *updateStmt:
		return k.update(s)
	case *letStmt:
		if s.v.elems != nil {
			return nil, &obstacle{reason: "a tuple in a variable is not done in the kernel", span: s.span}
		}
		value, why := k.expr(convert([]column{{typ: s.v.typ}}, []*expr{s.value})[0])
		return &codegen.Let{Var: k.vars + s.v.index, Value: value}, why
	case *ifStmt:
		cond, why := k.expr(s.cond)
		if why != nil {
			return nil, why
		}
		then, why := k.stmts(s.then)
		if why != nil {
			return nil, why
		}
		els, why := k.stmts(s.els)
		return &codegen.If{Cond: cond, Then: then, Else: els}, why
	case *callStmt: // delete
		m, why := k.inKernel(s.m, nil)
		if why != nil {
			return nil, why
		}
		key, why := k.exprs(k.typedKey(s.m, s.key))
		return &codegen.Delete{Map: m, Key: key}, why
	case *returnStmt:
		return &codegen.Return{}, nil
	}
	return nil, &obstacle{reason: "a loop is not done in the kernel", span: s.pos()}
}

func (k *kernelizer) set(s *setStmt) (codegen.Stmt, *obstacle) {
	m, why := k.inKernel(s.m, nil)
	if why != nil {
		return nil, why
	}
	key, why := k.exprs(k.typedKey(s.m, s.key))
	if why != nil {
		return nil, why
	}
	value, why := k.exprs(convert(s.m.value, s.value))
	if why != nil {
		return nil, why
	}
	if s.op == "+" {
		return &codegen.Add{Map: m, Key: key, Delta: value[0]}, nil
	}
	return &codegen.Set{Map: m, Key: key, Value: value}, nil
}

func (k *kernelizer) update(s *updateStmt) (codegen.Stmt, *obstacle) {
	m, why := k.inKernel(s.m, nil)
	if why != nil {
		return nil, why
	}
	out := &codegen.Update{Map: m}
	if out.Key, why = k.exprs(k.typedKey(s.m, s.key)); why != nil || s.arg == nil {
		return out, why
	}
	arg := s.arg
	if s.m.agg.Signed {
		arg = signed(arg)
	}
	out.Arg, why = k.expr(arg)
	return out, why
}

// record sends what statements in user space need: fields, and what only the kernel knows, variables, stacks and maps.
func (k *kernelizer) record(in []stmt) (codegen.Stmt, *obstacle) {
	s := &site{part: k.part}
	var slots []*expr
	var obst *obstacle
	replace := func(e *expr) *expr {
		if _, why := k.expr(e); why != nil {
			obst = why
			return e
		}
		slots = append(slots, e)
		return &expr{op: opSlot, index: len(slots) - 1, typ: e.typ, optional: e.optional, span: e.span}
	}
	for _, one := range in {
		s.stmts = append(s.stmts, k.withSlots(one.(*callStmt), replace))
	}
	if obst != nil {
		return nil, obst
	}
	reads := &part{body: &body{probe: k.part.probe, stmts: s.stmts}}
	if k.trial() {
		return nil, nil
	}
	return k.plan.emit(s, reads.fields(output.Columns{}), slots, k), nil
}

// trial says that only the possibility is of interest.
func (k *kernelizer) trial() bool { return k.code.Ring == "" }

// withSlots replaces what the kernel knows in the arguments of a call.
func (k *kernelizer) withSlots(call *callStmt, replace func(*expr) *expr) *callStmt {
	out := *call
	out.args = make([]*expr, len(call.args))
	for i, a := range call.args {
		out.args[i] = rewrite(a, replace)
	}
	return &out
}

// rewrite replaces variables, stacks and reads of maps, the outermost ones.
func rewrite(e *expr, replace func(*expr) *expr) *expr {
	switch {
	case e.op == opVar, e.op == opStack, e.op == opLookup, e.op == opHasKey, e.op == opMember && e.args[0].op == opLookup:
		return replace(e)
	case len(e.args) == 0:
		return e
	}
	out := *e
	out.args = make([]*expr, len(e.args))
	for i, a := range e.args {
		out.args[i] = rewrite(a, replace)
	}
	return &out
}
