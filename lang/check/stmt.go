package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types the predicate and the statements of a clause, and the variables in them.

// clauseBody types the whole clause.
func (c *checker) clauseBody() {
	tree := c.clause.Tree
	c.site.Pred = c.predicate(tree.Pred)
	if decided(c.site.Pred, true) {
		c.site.Pred = nil
	}
	c.site.Prints = tree.Body == nil
	if tree.Body != nil {
		c.site.Stmts = c.block(tree.Body)
	}
}

// predicate types the condition of the clause, after the filter's conditions.
func (c *checker) predicate(n ast.Node) *ir.Expr {
	pred := c.filter()
	if n == nil {
		return pred
	}
	written := c.condition(n)
	if pred == nil || written == nil {
		return written
	}
	both := ir.Operation(ir.OpAnd, ir.Boolean, pred, written)
	both.Span = written.Span
	return simplify(both)
}

// filter types the conditions of the filter that apply to the probe's events. It returns nil if there are none.
func (c *checker) filter() (all *ir.Expr) {
	if c.probe == nil {
		return nil
	}
	at := syntax.Span{From: c.clause.Tree.Span.From, To: c.clause.Tree.Span.From}
	join := func(e *ir.Expr, flag string) {
		ir.WalkExpr(e, func(e *ir.Expr) { e.Span = at })
		e.Flag = flag
		if all == nil {
			all = e
			return
		}
		all = ir.Operation(ir.OpAnd, ir.Boolean, all, e)
		all.Span = at
	}
	for _, one := range c.options.Filter.conditions() {
		if c.field(one.field) == nil {
			continue // Filter.lacks reports it
		}
		join(c.condition(one.holds), one.flag)
	}
	if c.probe.Echoes && c.options.WithoutSelf {
		join(c.notSelf(), "not of trace itself")
		if c.options.Command {
			join(c.notBefore(), "not before the execve of -c")
		}
	}
	return all
}

// block types statements in a scope of their own. Statements with mistakes are left out.
func (c *checker) block(b *syntax.Block) []ir.Stmt {
	return c.scope(map[string]*varUses{}, b)
}

func (c *checker) scope(vars map[string]*varUses, b *syntax.Block) []ir.Stmt {
	return c.scopeOf(vars, b, func() {})
}

// scopeOf types statements in a scope, and then what else is in it.
func (c *checker) scopeOf(vars map[string]*varUses, b *syntax.Block, then func()) []ir.Stmt {
	c.scopes = append(c.scopes, vars)
	var out []ir.Stmt
	for i, s := range b.Stmts {
		if i > 0 && c.final && leaves(b.Stmts[i-1]) {
			c.warn(s.Pos(), "Unreachable statement", "")
		}
		var typed ir.Stmt
		out = append(out, c.aside(func() { typed = c.stmt(s) })...)
		choice, isIf := typed.(*ir.IfStmt)
		switch {
		case isIf && decided(choice.Cond, true):
			out = append(out, choice.Then...)
		case isIf && decided(choice.Cond, false):
			out = append(out, choice.Else...)
		case typed != nil:
			out = append(out, typed)
		}
	}
	out = append(out, c.aside(then)...)
	c.scopes = c.scopes[:len(c.scopes)-1]
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		c.hidden[name] = true
		if v := vars[name]; v.unassigned && c.final {
			c.warn(v.span, fmt.Sprintf("Variable %s was never assigned to", v.Name), "")
		}
	}
	return out
}

// leaves reports whether nothing runs after a statement of its block.
func leaves(s syntax.Stmt) bool {
	switch s := s.(type) {
	case *syntax.Return, *syntax.Jump:
		return true
	case *syntax.Call:
		return callee(s.Call) == "exit"
	}
	return false
}

func (c *checker) stmt(s syntax.Stmt) ir.Stmt {
	switch s := s.(type) {
	case *syntax.Assign:
		if ref, ok := s.Target.(*syntax.MapRef); ok {
			return c.setMap(s, ref)
		}
		return c.setVar(s, s.Target.(*ast.IdentifierNode))
	case *syntax.If:
		out := &ir.IfStmt{Cond: c.condition(s.Cond), Span: s.Span}
		c.branch(out.Cond, true, func() { out.Then = c.block(s.Then) })
		if s.Else != nil {
			c.branch(out.Cond, false, func() { out.Else = c.block(s.Else) })
		}
		return out
	case *syntax.For:
		return c.loop(s)
	case *syntax.While:
		return c.while(s)
	case *syntax.Unroll:
		return c.unroll(s)
	case *syntax.Jump:
		return c.jump(s)
	case *syntax.Nested:
		return &ir.IfStmt{Cond: &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: true}, Then: c.block(s.Body), Span: s.Span}
	case *syntax.Declare:
		return c.declareVar(s)
	case *syntax.Discard:
		return c.unused(s.Value, s.Meant)
	case *syntax.Call:
		return c.callStmt(s)
	case *syntax.Return:
		return c.returned(s)
	}
	return &ir.ReturnStmt{Span: s.Pos()}
}

// returned types a return. Only tests and benchmarks have somebody who asks for the value.
func (c *checker) returned(s *syntax.Return) ir.Stmt {
	out := &ir.ReturnStmt{Span: s.Pos()}
	if s.Value == nil {
		return out
	}
	value := c.expr(s.Value, nil)
	switch {
	case value == nil || !c.clause.Kind.Tried():
	case !event.IsNumber(value.Type) && value.Type.Kind != ir.Pending:
		c.fail(syntax.SpanOf(s.Value), fmt.Sprintf("a %s returns a number, and this is %s", c.clause.Kind, describe(value)), "return 1 is a failure, return 0 none")
	default:
		out.Value = value
	}
	return out
}

// isDelta reports whether the operator adds to the target or subtracts from it.
func isDelta(op string) bool { return op == "++" || op == "--" || op == "+=" || op == "-=" }

// newValue types what an assignment to a map sets or, for ++ -- += -=, what it adds.
func (c *checker) newValue(s *syntax.Assign, m *mapUses, key []*ir.Expr) *ir.Expr {
	switch {
	case s.Op == "=":
		return c.expr(s.Value, m.value.single())
	case isDelta(s.Op):
		return c.delta(s)
	case !c.readable(m, s.Span):
		return nil
	}
	old := c.read(m, key)
	old.Span = syntax.SpanOf(s.Target)
	return c.combined(s, old, ir.Operator(strings.TrimSuffix(s.Op, "=")), c.expr(s.Value, nil))
}

// delta types what ++ -- += -= add. A subtraction adds a negative number. It makes the target signed, because it may fall below
// zero.
func (c *checker) delta(s *syntax.Assign) *ir.Expr {
	switch s.Op {
	case "++":
		return c.at(s, wide(literal(uint64(1))))
	case "--":
		return c.at(s, wide(literal(int64(-1))))
	}
	e := c.expr(s.Value, nil)
	switch {
	case e == nil:
		return nil
	case !event.IsNumber(e.Type) && e.Type.Kind != ir.Pending:
		return c.fail(e.Span, fmt.Sprintf("%s takes a number, not %s", s.Op, describe(e)), "")
	case s.Op == "-=":
		if e = c.arithmetic(s.Value, ir.OpNegate, e); e != nil {
			return c.at(s, ir.Signed(wide(e)))
		}
	}
	return wide(e)
}

// wide returns a number as a part of a sum, which has 64 bits.
func wide(e *ir.Expr) *ir.Expr {
	if e != nil && event.IsNumber(e.Type) {
		sum := *e
		sum.Type.Size = 8
		return &sum
	}
	return e
}

func (c *checker) at(s syntax.Stmt, e *ir.Expr) *ir.Expr {
	e.Span = s.Pos()
	return e
}

// combined types `old op value`.
func (c *checker) combined(s *syntax.Assign, old *ir.Expr, op ir.Op, value *ir.Expr) *ir.Expr {
	if value == nil {
		return nil
	}
	e := c.arithmetic(s.Target, op, old, value)
	if e == nil {
		return nil
	}
	return c.at(s, e)
}

// kept notes how a map is written, and checks that all uses agree.
func (c *checker) kept(m *mapUses, how string, f agg.Func, at syntax.Span) bool {
	switch {
	case m.how == "":
		m.how, m.howAt, m.agg, c.changed = how, at, f, true
	case m.how != how:
		c.fail(at, fmt.Sprintf("%s holds %s here and %s %s", m.info.Name, how, m.how, c.place(m.howAt)), "use two maps")
		return false
	case f != nil && !reflect.DeepEqual(f, m.agg):
		c.fail(at, fmt.Sprintf("%s of %s has different arguments %s", how, m.info.Name, c.place(m.howAt)), "use two maps")
		return false
	}
	return true
}

// holds notes what a map or a variable holds, and checks that all uses agree.
func (c *checker) holds(s *shape, r row, name string, at syntax.Span) bool {
	if !r.tuple && r.pending() {
		return true
	}
	found := c.note(s, r, at)
	if found == nil {
		return true
	}
	if r.tuple && found.index >= 0 {
		name = fmt.Sprintf("element %d of %s", found.index, name)
	}
	c.fail(at, fmt.Sprintf("%s is %s here and %s %s", name, found.here, found.there, c.earlier(found)), "use two names")
	return false
}

// setVar types an assignment to a variable. The first one in a block declares the variable, unless an enclosing block has.
func (c *checker) setVar(s *syntax.Assign, target *ast.IdentifierNode) ir.Stmt {
	name, at := target.Value, syntax.SpanOf(target)
	if c.param(name) != nil {
		c.fail(at, name+" is a param", "its value comes from the command line: use another name")
		return nil
	}
	v := c.visible(name)
	if v != nil && v.loop != nil {
		c.fail(at, fmt.Sprintf("%s is the entry that the loop is at", name), "use another name")
		return nil
	}
	value := c.newVarValue(s, target, v)
	if v != nil && v.declared != "" {
		value = c.declaredValue(v.declared, value)
	}
	if v == nil {
		if s.Op != "=" {
			return nil
		}
		v = c.variable(c.clause, s, name)
		c.scopes[len(c.scopes)-1][name] = v
	}
	v.unassigned = false
	return c.assigned(v, value, s.Span)
}

// assigned makes the assignment of a value to a variable.
func (c *checker) assigned(v *varUses, value *ir.Expr, at syntax.Span) ir.Stmt {
	if value == nil {
		return nil
	}
	given, ok := c.elements(value)
	row := v.value.inOrder(given)
	if !ok || !c.holds(&v.value, row, v.Name, at) {
		return nil
	}
	return &ir.LetStmt{V: v.Variable, Value: c.asVariable(v, value, given.values, row.values), Span: at}
}

// newVarValue types the value that an assignment gives the variable v, which is nil if it is not declared yet.
func (c *checker) newVarValue(s *syntax.Assign, target *ast.IdentifierNode, v *varUses) *ir.Expr {
	switch {
	case s.Op == "=" && v == nil:
		return c.expr(s.Value, nil)
	case s.Op == "=":
		return c.expr(s.Value, v.value.single())
	}
	old := c.expr(target, nil)
	if old == nil {
		return nil
	}
	if isDelta(s.Op) {
		return c.combined(s, old, ir.OpAdd, c.delta(s))
	}
	return c.combined(s, old, ir.Operator(strings.TrimSuffix(s.Op, "=")), c.expr(s.Value, nil))
}

// asVariable converts the value to the type of the variable, which is signed if one of its values is.
func (c *checker) asVariable(v *varUses, value *ir.Expr, given, values []*ir.Expr) *ir.Expr {
	converted := conform(&v.value, values)
	switch {
	case slices.Equal(converted, given):
		return value
	case !v.value.tuple:
		return converted[0]
	}
	return tupleOf(row{converted, true, v.value.form}, value.Span)
}

// declareVar types let $x: a new variable, whatever the blocks around have. All its values have the type, if there is one.
func (c *checker) declareVar(s *syntax.Declare) ir.Stmt {
	if c.param(s.Var) != nil {
		c.fail(s.Span, s.Var+" is a param", "use another name for the variable")
		return nil
	}
	if c.scopes[len(c.scopes)-1][s.Var] != nil {
		c.fail(s.Span, s.Var+" is declared twice in this block", fmt.Sprintf("write %s = …", s.Var))
		return nil
	}
	var value *ir.Expr
	if s.Value != nil {
		value = c.expr(s.Value, nil)
	}
	declared, ok := c.typeName(s.Type, s.Span)
	if !ok {
		return nil
	}
	v := c.variable(c.clause, s, s.Var)
	v.declared, v.unassigned = declared, s.Value == nil
	c.scopes[len(c.scopes)-1][s.Var] = v
	switch {
	case declared != "" && s.Value == nil:
		zero := literal(uint64(0))
		if declared == "string" {
			zero = c.str(s.Span, "", nil)
		}
		value = c.declaredValue(declared, zero)
	case declared != "":
		value = c.declaredValue(declared, value)
	case s.Value == nil:
		return nil
	}
	if value != nil {
		value.Span = s.Span
	}
	return c.assigned(v, value, s.Span)
}

// declaredValue converts a value to the declared type of a variable. A literal has to fit.
func (c *checker) declaredValue(declared string, value *ir.Expr) *ir.Expr {
	if value == nil {
		return nil
	}
	converted := c.castTo(declared, value, value.Span)
	if converted == nil || value.Op != ir.OpLit || !event.IsNumber(value.Type) || !event.IsNumber(converted.Type) {
		return converted
	}
	if event.Compare(ir.Function(converted)([]any{value.Val}), value.Val) != 0 {
		return c.fail(value.Span, fmt.Sprintf("%v does not fit in %s", value.Val, declared), fmt.Sprintf("write (%s)%[2]v for its low bits", declared, value.Val))
	}
	return converted
}

// loop types a for.
func (c *checker) loop(s *syntax.For) ir.Stmt {
	if c.param(s.Var) != nil {
		c.fail(s.Span, s.Var+" is a param", "use another name for the variable")
	}
	v := c.variable(c.clause, s, s.Var)
	out := &ir.ForStmt{V: v.Variable, Span: s.Span}
	if s.By != nil && !c.loopOrder(out, s) {
		return nil
	}
	switch in := s.In.(type) {
	case *syntax.MapRef:
		m := c.mapOf(in.Name)
		v.loop, v.LoopOver, out.Map = m, m.info, m.info
		if m.key.known && len(m.key.columns) == 0 {
			c.fail(syntax.SpanOf(in), in.Name+" has no keys to loop over", fmt.Sprintf("its value is %s", in.Name))
			return nil
		}
	case *ast.BinaryNode:
		if bounds := c.between(in, nil); bounds != nil {
			ok := c.holds(&v.value, row{values: bounds.Args[:1]}, s.Var, s.Span) && c.holds(&v.value, row{values: bounds.Args[1:]}, s.Var, s.Span)
			if ok {
				out.Lo, out.Hi = conform(&v.value, bounds.Args[:1])[0], conform(&v.value, bounds.Args[1:])[0]
			}
		}
	}
	out.Body = c.turns(map[string]*varUses{s.Var: v}, s.Body)
	return out
}

// turns types the body of a loop.
func (c *checker) turns(vars map[string]*varUses, body *syntax.Block) []ir.Stmt {
	c.loops++
	defer func() { c.loops-- }()
	return c.scope(vars, body)
}

// while types a while, whose condition may do something in each turn.
func (c *checker) while(s *syntax.While) ir.Stmt {
	if c.final {
		c.warn(s.Span, "While loops are deprecated and may be removed in the future.", "for ($i : 0..10) { … } runs over a range")
	}
	out := &ir.WhileStmt{Span: s.Span}
	out.Before = c.aside(func() { out.Cond = c.condition(s.Cond) })
	out.Body = c.turns(map[string]*varUses{}, s.Body)
	return out
}

// maxUnrolled is the most turns of an unroll.
const maxUnrolled = 4096

// unroll types an unroll: a loop over a range.
func (c *checker) unroll(s *syntax.Unroll) ir.Stmt {
	n, ok := c.constant(s.Times, "the number of turns of unroll", 1, maxUnrolled)
	if !ok {
		return nil
	}
	v := c.variable(c.clause, s, "$unroll")
	lo, hi := literal(uint64(0)), literal(uint64(n))
	c.holds(&v.value, row{values: []*ir.Expr{hi}}, v.Name, s.Span)
	return &ir.ForStmt{V: v.Variable, Lo: lo, Hi: hi, Body: c.turns(map[string]*varUses{}, s.Body), Span: s.Span}
}

// jump types break and continue.
func (c *checker) jump(s *syntax.Jump) ir.Stmt {
	if c.loops == 0 {
		c.fail(s.Span, s.Word+" is not in a loop", "return ends the whole clause")
		return nil
	}
	return &ir.JumpStmt{Continue: s.Word == "continue", Span: s.Span}
}

// loopOrder reads by = "value" of a loop.
func (c *checker) loopOrder(out *ir.ForStmt, s *syntax.For) bool {
	by, ok := c.order(s.By, "a loop")
	out.By = by
	if _, isMap := s.In.(*syntax.MapRef); ok && !isMap {
		c.fail(syntax.SpanOf(s.By), "a range has the order of its numbers", "leave out by")
		ok = false
	}
	return ok
}

// order reads the value of by = "key" or by = "value".
func (c *checker) order(n ast.Node, what string) (by string, ok bool) {
	by, ok = c.stringLiteral(n)
	if !ok || by != "key" && by != "value" {
		c.fail(syntax.SpanOf(n), what+" sorts by key or by value", `write by = "key" or by = "value"`)
		return "", false
	}
	return by, true
}
