package check

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types comparisons: of order, with lists and ranges, and of text.

func (c *checker) comparison(n *ast.BinaryNode) *ir.Expr {
	for _, side := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		if _, isNil := side[1].(*ast.NilNode); isNil && (n.Operator == "==" || n.Operator == "!=") {
			e := c.expr(side[0], nil)
			if e == nil {
				return nil
			}
			e = ir.Operation(ir.OpAbsent, ir.Boolean, e)
			if n.Operator == "!=" {
				e = ir.Operation(ir.OpNot, ir.Boolean, e)
			}
			return e
		}
	}
	c.pair(n.Left, n.Right)
	wantLeft, wantRight := c.context(n.Right), c.context(n.Left)
	ordered := n.Operator != "==" && n.Operator != "!="
	if ordered && (c.isPath(wantLeft, n.Left) || c.isPath(wantRight, n.Right)) {
		return c.fail(syntax.SpanOf(n), "paths of cgroups cannot be ordered", "compare with ==, != or startsWith")
	}
	byPath := c.unseenPath(wantLeft, n.Left) || c.unseenPath(wantRight, n.Right)
	if byPath {
		wantLeft, wantRight = &ir.Text, &ir.Text
	}
	l, r := c.expr(n.Left, wantLeft), c.expr(n.Right, wantRight)
	if byPath {
		l, r = pathOf(l), pathOf(r)
	}
	if l == nil || r == nil || !c.comparable(n, l, r) {
		return nil
	}
	if ordered && (l.Type.Kind == event.Bool || l.Type.Kind == event.GID || l.Type.Kind == format.Tuple || l.Type.Kind == format.Stack) {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s cannot be ordered", describe(l)), "compare with == or !=")
	}
	if name := nameOf(l, r); ordered && name != nil {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("names of %s cannot be ordered", name.Type.Enum.Name),
			fmt.Sprintf("compare with ==, != or in, or compare the number: %s", asNumber(name)))
	}
	return ir.Operation(ir.Operator(n.Operator), ir.Boolean, l, r)
}

// nameOf returns the operand whose values are names, or nil. A literal may be a name because of the other operand.
func nameOf(l, r *ir.Expr) *ir.Expr {
	for _, e := range []*ir.Expr{l, r} {
		if isName(e.Type) && e.Op != ir.OpLit {
			return e
		}
	}
	return nil
}

// comparable reports whether a and b are of the same sort. It notes an error if not.
func (c *checker) comparable(n ast.Node, a, b *ir.Expr) bool {
	switch {
	case a.Type.Kind == ir.Pending || b.Type.Kind == ir.Pending:
		return true
	case a.Type.Kind == format.Array || isLoopVar(a) || isLoopVar(b):
		c.fail(syntax.SpanOf(n), fmt.Sprintf("%s cannot be compared", describe(a)), "compare its elements")
		return false
	case a.Type.Kind == format.Tuple && b.Type.Kind == format.Tuple:
		return c.comparableTuples(n, a, b)
	case describe(a) == describe(b):
		return true
	}
	help := ""
	for _, pair := range [][2]*ir.Expr{{a, b}, {b, a}} {
		word, quoted := pair[0].Val.(string)
		switch enum := event.EnumOf(&pair[1].Type); {
		case quoted && enum != nil:
			if name := syntax.Nearest(word, enum.Names); name != "" {
				help = "write the name without quotes: " + name
			}
		case quoted && event.IsNumber(pair[1].Type):
			help = besideNumber(word, pair[1])
		case pair[0].Type.Kind != event.Bool:
		case pair[0].Op == ir.OpNot:
			help = "! binds tighter than a comparison: write !(…)"
		case pair[0].Op == ir.OpField:
			help = fmt.Sprintf("a boolean is a condition: write %s or !%[1]s", pair[0].Field.Name)
		default:
			help = "a comparison results in a boolean: join comparisons with &&"
		}
	}
	c.fail(syntax.SpanOf(n), fmt.Sprintf("%s and %s cannot be compared", describe(a), describe(b)), help)
	return false
}

// in types `x in [a, b..c]` and `x in a..b`, which mean x == a || x >= b && x <= c.
func (c *checker) in(n *ast.BinaryNode) *ir.Expr {
	elements := []ast.Node{n.Right}
	if array, ok := n.Right.(*ast.ArrayNode); ok {
		elements = array.Nodes
	} else if !isRange(n.Right) {
		help := "write x in [a, b] or x in a..b"
		if s, ok := n.Right.(*ast.StringNode); ok && isNetwork(s.Value) {
			help = networkHelp
		}
		return c.fail(syntax.SpanOf(n.Right), "in needs a list or a range", help)
	}
	for _, element := range elements {
		c.pair(n.Left, element)
	}
	x := c.expr(n.Left, c.context(n.Right))
	want := c.context(n.Left)
	if c.unseenPath(want, elements...) {
		x, want = pathOf(x), &ir.Text
	}
	args := []*ir.Expr{x}
	ok := x != nil
	for _, element := range elements {
		var arg *ir.Expr
		if isRange(element) {
			arg = c.between(element.(*ast.BinaryNode), want)
		} else {
			arg = c.expr(element, want)
		}
		args = append(args, arg)
		ok = ok && arg != nil && c.comparable(element, x, arg)
	}
	if !ok {
		return nil
	}
	return ir.Operation(ir.OpIn, ir.Boolean, args...)
}

// pair gives each element of two tuples the meaning that the other one has: (opcode, size) == (write, 4KiB).
func (c *checker) pair(a, b ast.Node) {
	x, isTuple := a.(*syntax.Tuple)
	y, isToo := b.(*syntax.Tuple)
	if !isTuple || !isToo || len(x.Elems) != len(y.Elems) {
		return
	}
	for i := range x.Elems {
		for _, side := range [][2]ast.Node{{x.Elems[i], y.Elems[i]}, {y.Elems[i], x.Elems[i]}} {
			if want := c.context(side[1]); want != nil {
				c.paired[side[0]] = want
			}
		}
	}
}

func isRange(n ast.Node) bool {
	b, ok := n.(*ast.BinaryNode)
	return ok && b.Operator == ".."
}

func (c *checker) between(n *ast.BinaryNode, want *event.Type) *ir.Expr {
	lo, hi := c.expr(n.Left, want), c.expr(n.Right, want)
	if lo == nil || hi == nil {
		return nil
	}
	for _, bound := range []*ir.Expr{lo, hi} {
		if !event.IsNumber(bound.Type) && bound.Type.Kind != ir.Pending {
			return c.fail(bound.Span, fmt.Sprintf("the bounds of a range must be numbers, not %s", describe(bound)), "")
		}
	}
	if lo.Op == ir.OpLit && hi.Op == ir.OpLit && event.Compare(lo.Val, hi.Val) > 0 {
		return c.fail(syntax.SpanOf(n), "the range is empty", "write the lower bound first")
	}
	e := ir.Operation(ir.OpBetween, event.Type{Kind: event.Uint}, lo, hi)
	e.Span = syntax.SpanOf(n)
	return e
}

// stringOperator types an operator on strings whose right operand is r.
func (c *checker) stringOperator(n *ast.BinaryNode, r *ir.Expr) *ir.Expr {
	l := pathOf(c.expr(n.Left, &ir.Text))
	if l == nil || r == nil {
		return nil
	}
	for _, side := range []*ir.Expr{l, r} {
		if side.Type.Kind != event.String && side.Type.Kind != ir.Pending {
			return c.fail(side.Span, fmt.Sprintf("%s takes strings, not %s", n.Operator, named(side)), asText(side))
		}
	}
	return ir.Operation(ir.Operator(n.Operator), ir.Boolean, l, r)
}

// pattern types the right operand of matches. It must be a literal, so that a mistake in it is found now.
func (c *checker) pattern(n ast.Node) *ir.Expr {
	s, ok := c.stringLiteral(n)
	if !ok {
		return c.fail(syntax.SpanOf(n), "the pattern of matches must be a literal string", `write x matches "…"`)
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return c.fail(syntax.SpanOf(n), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "patterns use the syntax of Go's package regexp")
	}
	return &ir.Expr{Op: ir.OpLit, Type: ir.Text, Val: re, Span: syntax.SpanOf(n)}
}
