package lang

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types operators that compare: by order, with lists and ranges, and as text.

func (c *checker) comparison(n *ast.BinaryNode) *expr {
	for _, side := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		if _, isNil := side[1].(*ast.NilNode); isNil && (n.Operator == "==" || n.Operator == "!=") {
			e := c.expr(side[0], nil)
			if e == nil {
				return nil
			}
			e = operation(opAbsent, boolean, e)
			if n.Operator == "!=" {
				e = operation("!", boolean, e)
			}
			return e
		}
	}
	wantLeft, wantRight := c.context(n.Right), c.context(n.Left)
	ordered := n.Operator != "==" && n.Operator != "!="
	if ordered && (c.isPath(wantLeft, n.Left) || c.isPath(wantRight, n.Right)) {
		return c.fail(syntax.SpanOf(n), "paths of cgroups have no order", "only == and != compare them, and startsWith")
	}
	byPath := c.unseenPath(wantLeft, n.Left) || c.unseenPath(wantRight, n.Right)
	if byPath {
		wantLeft, wantRight = &text, &text
	}
	l, r := c.expr(n.Left, wantLeft), c.expr(n.Right, wantRight)
	if byPath {
		l, r = pathOf(l), pathOf(r)
	}
	if l == nil || r == nil || !c.comparable(n, l, r) {
		return nil
	}
	if ordered && (l.typ.Kind == event.Bool || l.typ.Kind == event.GID || l.typ.Kind == format.Tuple || l.typ.Kind == format.Stack) {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s has no order", describe(l)), "only == and != compare it")
	}
	if name := nameOf(l, r); ordered && name != nil {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("names of %s have no order", name.typ.Enum.Name),
			fmt.Sprintf("compare by ==, != and in, or the number: %s", name.asNumber()))
	}
	return operation(n.Operator, boolean, l, r)
}

// nameOf returns the operand whose values are names, or nil. A literal may be a name because the other one is.
func nameOf(l, r *expr) *expr {
	for _, e := range []*expr{l, r} {
		if isName(e.typ) && e.op != opLit {
			return e
		}
	}
	return nil
}

// comparable tells whether a and b are of one sort.
func (c *checker) comparable(n ast.Node, a, b *expr) bool {
	switch {
	case a.typ.Kind == pending || b.typ.Kind == pending:
		return true
	case a.typ.Kind == format.Array || isEntry(a) || isEntry(b):
		c.fail(syntax.SpanOf(n), fmt.Sprintf("%s does not compare", describe(a)), "compare its elements")
		return false
	case a.typ.Kind == format.Tuple && b.typ.Kind == format.Tuple:
		return c.comparableTuples(n, a, b)
	case describe(a) == describe(b):
		return true
	}
	help := ""
	for _, pair := range [][2]*expr{{a, b}, {b, a}} {
		word, quoted := pair[0].val.(string)
		switch enum := enumOf(&pair[1].typ); {
		case quoted && enum != nil:
			if name := Nearest(word, enum.Names); name != "" {
				help = "write the name without quotes: " + name
			}
		case quoted && event.IsNumber(pair[1].typ):
			help = besideNumber(word, pair[1])
		case pair[0].typ.Kind != event.Bool:
		case pair[0].op == "!":
			help = "! binds tighter than a comparison: write !(…)"
		case pair[0].op == opField:
			help = fmt.Sprintf("a boolean is a condition: write %s or !%[1]s", pair[0].field.Name)
		default:
			help = "the result of a comparison is a boolean: join comparisons with &&"
		}
	}
	c.fail(syntax.SpanOf(n), fmt.Sprintf("%s and %s do not compare", describe(a), describe(b)), help)
	return false
}

// in types `x in [a, b..c]` and `x in a..b`: it means x == a || x >= b && x <= c.
func (c *checker) in(n *ast.BinaryNode) *expr {
	elements := []ast.Node{n.Right}
	if array, ok := n.Right.(*ast.ArrayNode); ok {
		elements = array.Nodes
	} else if !isRange(n.Right) {
		help := "write x in [a, b] or x in a..b"
		if s, ok := n.Right.(*ast.StringNode); ok && isNetwork(s.Value) {
			help = networkHelp
		}
		return c.fail(syntax.SpanOf(n.Right), "in wants a list or a range", help)
	}
	x := c.expr(n.Left, c.context(n.Right))
	want := c.context(n.Left)
	if c.unseenPath(want, elements...) {
		x, want = pathOf(x), &text
	}
	args := []*expr{x}
	ok := x != nil
	for _, element := range elements {
		var arg *expr
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
	return operation("in", boolean, args...)
}

func isRange(n ast.Node) bool {
	b, ok := n.(*ast.BinaryNode)
	return ok && b.Operator == ".."
}

func (c *checker) between(n *ast.BinaryNode, want *event.Type) *expr {
	lo, hi := c.expr(n.Left, want), c.expr(n.Right, want)
	if lo == nil || hi == nil {
		return nil
	}
	for _, bound := range []*expr{lo, hi} {
		if !event.IsNumber(bound.typ) && bound.typ.Kind != pending {
			return c.fail(bound.span, fmt.Sprintf("a range goes from number to number, and this is %s", describe(bound)), "")
		}
	}
	if lo.op == opLit && hi.op == opLit && event.Compare(lo.val, hi.val) > 0 {
		return c.fail(syntax.SpanOf(n), "the range is empty", "the lower bound comes first")
	}
	e := operation(opBetween, event.Type{Kind: event.Uint}, lo, hi)
	e.span = syntax.SpanOf(n)
	return e
}

// stringOperator types an operator on strings with the right operand r.
func (c *checker) stringOperator(n *ast.BinaryNode, r *expr) *expr {
	l := pathOf(c.expr(n.Left, &text))
	if l == nil || r == nil {
		return nil
	}
	for _, side := range []*expr{l, r} {
		if side.typ.Kind != event.String && side.typ.Kind != pending {
			return c.fail(side.span, fmt.Sprintf("%s wants strings, and this is %s", n.Operator, named(side)), asText(side))
		}
	}
	return operation(n.Operator, boolean, l, r)
}

// pattern types the right operand of matches. It is a literal, so that a mistake in it is found now.
func (c *checker) pattern(n ast.Node) *expr {
	s, ok := c.stringLiteral(n)
	if !ok {
		return c.fail(syntax.SpanOf(n), "the pattern of matches has to be a literal string", `write x matches "…"`)
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return c.fail(syntax.SpanOf(n), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "the syntax is that of Go's package regexp")
	}
	return &expr{op: opLit, typ: text, val: re, span: syntax.SpanOf(n)}
}

// stringLiteral returns the value of n if that is a string literal, or a param that holds one.
func (c *checker) stringLiteral(n ast.Node) (s string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IdentifierNode:
		if p := c.param(n.Value); p != nil {
			s, ok = p.Value.(string)
			return s, ok
		}
	}
	return "", false
}
