package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types the predicate and the statements of a clause, and the variables in them.

// clauseBody types the whole clause.
func (c *checker) clauseBody() {
	tree := c.clause.tree
	c.body.pred = c.predicate(tree.Pred)
	if decided(c.body.pred, true) {
		c.body.pred = nil
	}
	c.body.prints = tree.Body == nil
	if tree.Body != nil {
		c.body.stmts = c.block(tree.Body)
	}
}

// predicate types the condition of the clause, with that on the process before it.
func (c *checker) predicate(n ast.Node) *expr {
	var pred *expr
	if pid := c.field("pid"); pid != nil && c.options.PID != 0 {
		at := syntax.Span{From: c.clause.tree.Span.From, To: c.clause.tree.Span.From}
		field := &expr{op: opField, typ: pid.Type, field: pid, optional: pid.Optional, span: at}
		number := literal(uint64(c.options.PID))
		number.span = at
		pred = operation("==", boolean, field, number)
		pred.span = at
	}
	if n == nil {
		return pred
	}
	written := c.condition(n)
	if pred == nil || written == nil {
		return written
	}
	both := operation("&&", boolean, pred, written)
	both.span = written.span
	return simplify(both)
}

// block types statements in a scope of their own. What is wrong is left out.
func (c *checker) block(b *syntax.Block) []stmt {
	return c.scope(map[string]*varUses{}, b)
}

func (c *checker) scope(vars map[string]*varUses, b *syntax.Block) []stmt {
	c.scopes = append(c.scopes, vars)
	var out []stmt
	for _, s := range b.Stmts {
		typed := c.stmt(s)
		choice, isIf := typed.(*ifStmt)
		switch {
		case isIf && decided(choice.cond, true):
			out = append(out, choice.then...)
		case isIf && decided(choice.cond, false):
			out = append(out, choice.els...)
		case typed != nil:
			out = append(out, typed)
		}
	}
	c.scopes = c.scopes[:len(c.scopes)-1]
	for name := range vars {
		c.hidden[name] = true
	}
	return out
}

func (c *checker) stmt(s syntax.Stmt) stmt {
	switch s := s.(type) {
	case *syntax.Assign:
		if ref, ok := s.Target.(*syntax.MapRef); ok {
			return c.setMap(s, ref)
		}
		return c.setVar(s, s.Target.(*ast.IdentifierNode))
	case *syntax.If:
		out := &ifStmt{cond: c.condition(s.Cond), then: c.block(s.Then), span: s.Span}
		if s.Else != nil {
			out.els = c.block(s.Else)
		}
		return out
	case *syntax.For:
		return c.loop(s)
	case *syntax.Call:
		return c.callStmt(s)
	}
	return &returnStmt{s.Pos()}
}

// setMap types an assignment to a map.
func (c *checker) setMap(s *syntax.Assign, ref *syntax.MapRef) stmt {
	m := c.mapOf(ref.Name)
	key, ok := c.key(m, ref.Key, syntax.SpanOf(ref))
	if call, fn := aggregationCall(s.Value); fn != "" && s.Op == "=" {
		if update := c.aggregate(m, call, fn); ok && update != nil {
			update.key, update.span = key, s.Span
			return update
		}
		return nil
	}
	value := c.newValue(s, m, key)
	if value == nil || !ok || !c.kept(m, "a value", nil, s.Span) {
		return nil
	}
	values, isTuple, ok := c.elements(value)
	if !ok || !c.holds(&m.value, values, isTuple, m.info.name, s.Span) {
		return nil
	}
	out := &setStmt{m: m.info, key: key, op: "=", value: conform(&m.value, values), span: s.Span}
	if isDelta(s.Op) {
		out.op = "+"
	}
	return out
}

// isDelta tells whether the operator adds to the target or takes from it.
func isDelta(op string) bool { return op == "++" || op == "--" || op == "+=" || op == "-=" }

// newValue types what an assignment to a map sets, or for ++ -- += -= what it adds.
func (c *checker) newValue(s *syntax.Assign, m *mapUses, key []*expr) *expr {
	switch {
	case s.Op == "=":
		return c.expr(s.Value, m.value.single())
	case isDelta(s.Op):
		return c.delta(s)
	case !c.readable(m, s.Span):
		return nil
	}
	old := c.read(m, key)
	old.span = syntax.SpanOf(s.Target)
	return c.combined(s, old, strings.TrimSuffix(s.Op, "="), c.expr(s.Value, nil))
}

// delta types what ++ -- += -= add. What is taken away is a negative number, and makes the target signed: it may go below zero.
func (c *checker) delta(s *syntax.Assign) *expr {
	switch s.Op {
	case "++":
		return c.at(s, literal(uint64(1)))
	case "--":
		return c.at(s, literal(int64(-1)))
	}
	e := c.expr(s.Value, nil)
	switch {
	case e == nil:
		return nil
	case !event.IsNumber(e.typ) && e.typ.Kind != pending:
		return c.fail(e.span, fmt.Sprintf("%s wants a number, and this is %s", s.Op, describe(e)), "")
	case s.Op == "-=":
		if e = c.arithmetic(s.Value, opNegate, e); e != nil {
			return c.at(s, signed(e))
		}
	}
	return e
}

func (c *checker) at(s syntax.Stmt, e *expr) *expr {
	e.span = s.Pos()
	return e
}

// combined types `old op value`.
func (c *checker) combined(s *syntax.Assign, old *expr, op string, value *expr) *expr {
	if value == nil {
		return nil
	}
	e := c.arithmetic(s.Target, op, old, value)
	if e == nil {
		return nil
	}
	return c.at(s, e)
}

// kept notes how a map is written, and makes sure that it is so everywhere.
func (c *checker) kept(m *mapUses, how string, f agg.Func, at syntax.Span) bool {
	switch {
	case m.how == "":
		m.how, m.howAt, m.agg, c.changed = how, at, f, true
	case m.how != how:
		c.fail(at, fmt.Sprintf("%s holds %s here and %s %s", m.info.name, how, m.how, c.place(m.howAt)), "use two maps")
		return false
	case f != nil && !reflect.DeepEqual(f, m.agg):
		c.fail(at, fmt.Sprintf("%s of %s has other arguments %s", how, m.info.name, c.place(m.howAt)), "use two maps")
		return false
	}
	return true
}

// holds notes what a map or a variable holds, and makes sure that it is so everywhere.
func (c *checker) holds(s *shape, values []*expr, isTuple bool, name string, at syntax.Span) bool {
	if !isTuple && values[0].typ.Kind == pending {
		return true
	}
	found := c.note(s, values, isTuple, at)
	if found == nil {
		return true
	}
	if isTuple && found.index >= 0 {
		name = fmt.Sprintf("element %d of %s", found.index, name)
	}
	c.fail(at, fmt.Sprintf("%s is %s here and %s %s", name, found.here, found.there, c.earlier(found)), "use two names")
	return false
}

// setVar types an assignment to a variable. The first one in a block declares it, unless a block around has.
func (c *checker) setVar(s *syntax.Assign, target *ast.IdentifierNode) stmt {
	name, at := target.Value, syntax.SpanOf(target)
	if c.param(name) != nil {
		c.fail(at, name+" is a param", fmt.Sprintf("its value comes from the command line, --%s=…; take another name", name[1:]))
		return nil
	}
	v := c.visible(name)
	if v != nil && v.loop != nil {
		c.fail(at, fmt.Sprintf("%s is the entry that the loop is at", name), "take another name")
		return nil
	}
	value := c.newVarValue(s, target, v)
	if v == nil {
		if s.Op != "=" {
			return nil
		}
		v = c.variable(c.clause, s, name)
		c.scopes[len(c.scopes)-1][name] = v
	}
	if value == nil {
		return nil
	}
	values, isTuple, ok := c.elements(value)
	if !ok || !c.holds(&v.value, values, isTuple, name, s.Span) {
		return nil
	}
	return &letStmt{v: v.variable, value: c.asVariable(v, value, values), span: s.Span}
}

// newVarValue types what an assignment makes of the variable v, which is nil if there is none yet.
func (c *checker) newVarValue(s *syntax.Assign, target *ast.IdentifierNode, v *varUses) *expr {
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
		return c.combined(s, old, "+", c.delta(s))
	}
	return c.combined(s, old, strings.TrimSuffix(s.Op, "="), c.expr(s.Value, nil))
}

// asVariable makes the value what the variable is: signed where one of its values is.
func (c *checker) asVariable(v *varUses, value *expr, values []*expr) *expr {
	converted := conform(&v.value, values)
	switch {
	case slices.Equal(converted, values):
		return value
	case !v.value.tuple:
		return converted[0]
	}
	e := operation(opTuple, value.typ, converted...)
	e.elems, e.span = v.value.types(), value.span
	return e
}

// visible returns the variable that a name means here, or nil.
func (c *checker) visible(name string) *varUses {
	for _, scope := range slices.Backward(c.scopes) {
		if v := scope[name]; v != nil {
			return v
		}
	}
	return nil
}

// dollar types $name: a param or a variable.
func (c *checker) dollar(n *ast.IdentifierNode, want *event.Type) *expr {
	if p := c.param(n.Value); p != nil {
		return c.paramValue(p, syntax.SpanOf(n), want)
	}
	v := c.visible(n.Value)
	if v == nil {
		return c.unknownVariable(n)
	}
	e := &expr{op: opVar, variable: v.variable}
	e.typ, e.elems, e.optional = v.typeSoFar()
	return e
}

func (c *checker) dollarContext(name string) *event.Type {
	if v := c.visible(name); v != nil && v.loop == nil {
		return v.value.single()
	}
	return nil
}

func (c *checker) unknownVariable(n *ast.IdentifierNode) *expr {
	at, name := syntax.SpanOf(n), n.Value
	if c.hidden[name] {
		return c.fail(at, fmt.Sprintf("%s ends with the block that sets it", name), fmt.Sprintf("set it before that block: %s = …", name))
	}
	var names []string
	for _, scope := range c.scopes {
		names = slices.AppendSeq(names, maps.Keys(scope))
	}
	for _, p := range c.params {
		names = append(names, "$"+p.Name)
	}
	slices.Sort(names)
	help := didYouMean(name, names)
	if help == "" {
		help = fmt.Sprintf("set it first, %s = …, or declare a flag of that name: param %s = 10", name, name[1:])
	}
	return c.fail(at, fmt.Sprintf("%s is not set", name), help)
}

// loop types a for. Events do not wait for one: it runs where there is no event.
func (c *checker) loop(s *syntax.For) stmt {
	if c.probe != nil {
		c.fail(syntax.Span{From: s.Span.From, To: s.Span.From + len("for")}, "a loop stands only in begin, end and interval clauses",
			"the events of the kernel do not wait for it")
	}
	if c.param(s.Var) != nil {
		c.fail(s.Span, s.Var+" is a param", "take another name for the variable")
	}
	v := c.variable(c.clause, s, s.Var)
	out := &forStmt{v: v.variable, span: s.Span}
	if s.By != nil && !c.loopOrder(out, s) {
		return nil
	}
	switch in := s.In.(type) {
	case *syntax.MapRef:
		m := c.mapOf(in.Name)
		v.loop, v.entryOf, out.m = m, m.info, m.info
		if m.key.known && len(m.key.columns) == 0 {
			c.fail(syntax.SpanOf(in), in.Name+" has no keys to run over", fmt.Sprintf("its value is %s", in.Name))
			return nil
		}
	case *ast.BinaryNode:
		if bounds := c.between(in, nil); bounds != nil {
			ok := c.holds(&v.value, bounds.args[:1], false, s.Var, s.Span) && c.holds(&v.value, bounds.args[1:], false, s.Var, s.Span)
			if ok {
				out.lo, out.hi = conform(&v.value, bounds.args[:1])[0], conform(&v.value, bounds.args[1:])[0]
			}
		}
	}
	out.body = c.scope(map[string]*varUses{s.Var: v}, s.Body)
	return out
}

// loopOrder reads by = "value" of a loop.
func (c *checker) loopOrder(out *forStmt, s *syntax.For) bool {
	by, ok := c.order(s.By, "a loop")
	out.by = by
	if _, isMap := s.In.(*syntax.MapRef); ok && !isMap {
		c.fail(syntax.SpanOf(s.By), "a range is in the order of its numbers", "leave out by")
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
