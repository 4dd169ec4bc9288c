package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types variables and params, and expressions that do something: $x++ and blocks that are values. What they do becomes
// statements before the statement that the expression belongs to, in the order of the text. The typed tree of expressions does
// nothing.

// aside returns the statements that typing an expression puts before its statement.
func (c *checker) aside(typed func()) []ir.Stmt {
	around := c.before
	c.before = nil
	typed()
	mine := c.before
	c.before = around
	return mine
}

// branch types a part that runs if the condition holds, or if it does not: holds is which.
func (c *checker) branch(cond *ir.Expr, holds bool, typed func()) {
	if cond != nil && cond.Op == ir.OpLit && cond.Val == !holds {
		c.dead++
		defer func() { c.dead-- }()
	}
	typed()
}

// step types x++ and ++x as values.
func (c *checker) step(n *syntax.Step) *ir.Expr {
	if !c.inBody() {
		return c.predicateActs(n)
	}
	assign := c.assignment(n, func() *syntax.Assign {
		return &syntax.Assign{Target: n.Target, Op: n.Op, Span: syntax.SpanOf(n)}
	})
	if n.Before {
		c.do(c.stmt(assign))
		return c.keep(n, n.Target)
	}
	old := c.keep(n, n.Target)
	c.do(c.stmt(assign))
	return old
}

// do puts a statement before the one at hand.
func (c *checker) do(s ir.Stmt) {
	if s != nil {
		c.before = append(c.before, s)
	}
}

// keep stores the value of n in a variable of its own, and returns the variable's value.
func (c *checker) keep(at any, n ast.Node) *ir.Expr { return c.keepValue(at, c.expr(n, nil)) }

func (c *checker) keepValue(at any, value *ir.Expr) *ir.Expr {
	if value == nil {
		return nil
	}
	v := c.variableAt(declaration{c.clause, at}, "$value", value.Span)
	v.Hidden = true
	given, ok := c.elements(value)
	row := v.value.inOrder(given)
	if !ok || !c.holds(&v.value, row, v.Name, value.Span) {
		return nil
	}
	c.do(&ir.LetStmt{V: v.Variable, Value: c.asVariable(v, value, given.values, row.values), Span: value.Span})
	return as(value.Type, variableValue(v, value.Span))
}

// as gives a number that was kept its own type again. Its variable may have a signed one or no unit, if the value has for another probe of the
// clause: nobody wrote that variable.
func as(own event.Type, kept *ir.Expr) *ir.Expr {
	if t := kept.Type; !event.IsNumber(own) || !event.IsNumber(t) || t.Kind == own.Kind && t.Unit == own.Unit && t.Enum == own.Enum {
		return kept
	}
	e := ir.Operation(ir.OpCast, own, kept)
	e.Bits, e.Span = own.Size*8, kept.Span
	return e
}

// variableValue makes the node that reads a variable.
func variableValue(v *varUses, at syntax.Span) *ir.Expr {
	e := &ir.Expr{Op: ir.OpVar, Variable: v.Variable, Form: v.form(), Span: at}
	e.Type, e.Elems, e.Optional = v.typeSoFar()
	return e
}

// blockValue types a block that is a value.
func (c *checker) blockValue(n *syntax.BlockExpr, want *event.Type) (e *ir.Expr) {
	if !c.inBody() {
		return c.predicateActs(n)
	}
	around := c.before
	c.before = nil
	mine := c.scopeOf(map[string]*varUses{}, n.Body, func() { e = c.expr(n.Value, want) })
	c.before = append(around, mine...)
	return e
}

// inBody reports whether there is a statement that others can precede.
func (c *checker) inBody() bool { return len(c.scopes) > 0 }

// acts reports whether an expression does something.
func acts(n ast.Node) (found bool) {
	syntax.Walk(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *syntax.Step, *syntax.BlockExpr:
			found = true
		case *ast.CallNode:
			found = found || slices.Contains(acting, callee(n))
		}
		return !found
	})
	return found
}

// acting are the functions with a value that do something.
var acting = []string{"delete", "find"}

// inOrder returns operands that are typed one after the other: an earlier one has read what a later one changes.
func (c *checker) inOrder(nodes []ast.Node) []ast.Node {
	last := -1
	for i, n := range nodes {
		if acts(n) {
			last = i
		}
	}
	if last < 1 || !c.inBody() {
		return nodes
	}
	out := append([]ast.Node(nil), nodes...)
	for i := range last {
		if e := c.readEarly(nodes[i]); e != nil {
			out[i] = &typedNode{Node: nodes[i], e: e}
		}
	}
	return out
}

// readEarly keeps the value of an operand, unless it has none of its own.
func (c *checker) readEarly(n ast.Node) *ir.Expr {
	switch n := n.(type) {
	case *ast.ConstantNode, *ast.StringNode, *ast.BoolNode, *ast.ArrayNode, *syntax.NamedArg:
		return nil
	case *syntax.MapRef:
		if n.Key == nil {
			return nil
		}
	}
	return c.keep(early{n}, n)
}

// early is the value of an operand before a later one is evaluated.
type early struct{ ast.Node }

// typedNode is an operand that is typed already.
type typedNode struct {
	ast.Node
	e *ir.Expr
}

// typed returns an operand with its type. Literals stay what they are, for those who look for them.
func typed(n ast.Node, e *ir.Expr) ast.Node {
	switch n.(type) {
	case *ast.ConstantNode, *ast.StringNode:
		return n
	}
	return &typedNode{n, e}
}

// decides types the right operand of an operator that evaluates it only if the left one does not decide. What the right one does
// is done only then.
func (c *checker) decides(left *ir.Expr, at any, right func() *ir.Expr, runs func(left *ir.Expr) (cond *ir.Expr, holds bool)) (l, r *ir.Expr) {
	effects := c.aside(func() { r = right() })
	if len(effects) == 0 || left == nil || r == nil {
		return left, r
	}
	kept := c.keepValue(at, left)
	if kept == nil {
		return nil, nil
	}
	cond, holds := runs(kept)
	choice := &ir.IfStmt{Cond: cond, Then: effects, Span: left.Span}
	if !holds {
		choice.Then, choice.Else = nil, effects
	}
	c.do(choice)
	return kept, r
}

// unused types an expression whose value is not used.
func (c *checker) unused(n ast.Node, meant bool) ir.Stmt {
	switch n := n.(type) {
	case *ast.ConditionalNode:
		out := &ir.IfStmt{Cond: c.condition(n.Cond), Span: syntax.SpanOf(n)}
		c.branch(out.Cond, true, func() { out.Then = c.alone(n.Exp1, meant) })
		c.branch(out.Cond, false, func() { out.Else = c.alone(n.Exp2, meant) })
		return out
	case *syntax.BlockExpr:
		out := &ir.IfStmt{Cond: &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: true}, Span: syntax.SpanOf(n)}
		out.Then = c.scopeOf(map[string]*varUses{}, n.Body, func() { c.do(c.unused(n.Value, meant)) })
		return out
	case *ast.CallNode:
		if meant && c.hasValue(callee(n)) {
			break
		}
		return c.callStmt(&syntax.Call{Call: n, Span: syntax.SpanOf(n)})
	}
	c.expr(n, nil)
	if !meant {
		c.discarded(syntax.SpanOf(n))
	}
	return nil
}

// alone types an operand of ?: as statements.
func (c *checker) alone(n ast.Node, meant bool) (stmts []ir.Stmt) {
	var s ir.Stmt
	stmts = c.aside(func() { s = c.unused(n, meant) })
	if s != nil {
		stmts = append(stmts, s)
	}
	return stmts
}

func (c *checker) discarded(at syntax.Span) {
	if c.final {
		c.warn(at, "Return value discarded", fmt.Sprintf("write _ = %s to show that this is meant", c.text.Content[at.From:at.To]))
	}
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
func (c *checker) dollar(n *ast.IdentifierNode, want *event.Type) *ir.Expr {
	if p := c.param(n.Value); p != nil {
		if p.Value == nil && c.final && c.dead == 0 {
			c.warn(syntax.SpanOf(n), fmt.Sprintf("Positional parameter %s is empty or not provided", n.Value), "")
		}
		return c.paramValue(p, syntax.SpanOf(n), want)
	}
	v := c.visible(n.Value)
	if v == nil {
		return c.unknownVariable(n)
	} else if v.unassigned && c.final {
		c.warn(syntax.SpanOf(n), "Variable used before it was assigned: "+v.Name, "")
	}
	return variableValue(v, syntax.SpanOf(n))
}

func (c *checker) dollarContext(name string) *event.Type {
	if v := c.visible(name); v != nil && v.loop == nil {
		return v.value.single()
	}
	return nil
}

func (c *checker) unknownVariable(n *ast.IdentifierNode) *ir.Expr {
	at := syntax.SpanOf(n)
	name, _, _ := strings.Cut(n.Value, " ") // a macro's variable has its call behind the name
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
	help := syntax.DidYouMean(name, names)
	if help == "" {
		help = fmt.Sprintf("set it first, %s = …, or declare a flag of that name: param %s = 10", name, name[1:])
	}
	return c.fail(at, fmt.Sprintf("%s is not set", name), help)
}

// paramValue makes the literal that a param stands for.
func (c *checker) paramValue(p *ir.Param, at syntax.Span, want *event.Type) *ir.Expr {
	switch v := p.Value.(type) {
	case nil: // an argument that is missing
		if want != nil && want.Kind == event.String {
			return c.str(at, "", want)
		}
		return literal(uint64(0))
	case string:
		if enum := event.EnumOf(want); enum != nil && want.Unit != event.Errno {
			return c.nameInParam(p, at, enum)
		}
		return c.str(at, v, want)
	case bool:
		return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: v}
	default:
		e := literal(v)
		e.Type.Unit = p.Type.Unit
		return e
	}
}

// noName is a value that no enum has: enums have at most 32 bits.
const noName = uint64(1) << 63

// nameInParam types a param that holds a string and is compared with an enum: the string must be a name of the enum. An empty
// string equals no name.
func (c *checker) nameInParam(p *ir.Param, at syntax.Span, enum *event.Enum) *ir.Expr {
	name := p.Value.(string)
	value, known := enum.Value(name)
	e := literal(value)
	switch {
	case name == "":
		e = literal(noName)
	case !known:
		return c.fail(at, fmt.Sprintf("$%s is %q, which is not a name of %s", p.Name, name, enum.Name),
			cmp.Or(syntax.DidYouMean(name, enum.Names), "its names are "+syntax.Enumerate(enum.Names)))
	}
	e.Type.Enum = enum
	return e
}

// argumentText types str($1), and str($1 + 2), which leaves out two bytes. is reports whether n is one of these.
func (c *checker) argumentText(n ast.Node) (e *ir.Expr, is bool) {
	left := 0
	if sum, ok := n.(*ast.BinaryNode); ok && sum.Operator == "+" {
		if v, _, ok := literalValue(sum.Right); ok && event.Compare(v, uint64(0)) >= 0 {
			left, n = int(min(event.To[uint64](v), 1<<30)), sum.Left
		}
	}
	word, ok := n.(*ast.IdentifierNode)
	if !ok || !syntax.IsArgument(word.Value) || word.Value == syntax.ArgumentCount {
		return nil, false
	}
	text := c.numbered(word.Value).Text
	return c.str(syntax.SpanOf(n), text[min(left, len(text)):], nil), true
}

// textFor returns the type of strings for an argument that is missing beside a literal string: "" is in its place.
func (c *checker) textFor(n, beside ast.Node) *event.Type {
	word, ok := n.(*ast.IdentifierNode)
	if _, isText := beside.(*ast.StringNode); !ok || !isText || !syntax.IsArgument(word.Value) || c.numbered(word.Value).Value != nil {
		return nil
	}
	return &ir.Text
}

// getopt types getopt("name", …).
func (c *checker) getopt(n *ast.CallNode) *ir.Expr {
	if len(n.Arguments) > 0 {
		if name, ok := n.Arguments[0].(*ast.StringNode); ok {
			if p := c.option(name.Value); p != nil {
				return c.paramValue(p, syntax.SpanOf(n), nil)
			}
		}
	}
	return nil // its declaration is wrong
}
