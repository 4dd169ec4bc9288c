package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types operators: arithmetic and choices, and then the ones that compare.

// negated returns the type of -x. The negation of an error number, -ret, keeps the error names, which are positive there.
func negated(t *event.Type) *event.Type {
	if t == nil || t.Unit != event.Errno {
		return t
	}
	return &event.Type{Kind: t.Kind, Size: t.Size, Enum: event.ErrnoNames()}
}

func (c *checker) unary(n *ast.UnaryNode, want *event.Type) *ir.Expr {
	switch n.Operator {
	case "!":
		e := c.condition(n.Node)
		if e == nil {
			return nil
		}
		return ir.Operation(ir.OpNot, ir.Boolean, e)
	case "-":
		return c.arithmetic(n, ir.OpNegate, c.expr(n.Node, negated(want)))
	default:
		return c.arithmetic(n, ir.OpCompl, c.expr(n.Node, want))
	}
}

func (c *checker) binary(n *ast.BinaryNode, want *event.Type) *ir.Expr {
	if n.Operator == ".." {
		return c.fail(syntax.SpanOf(n), "a range is allowed only after in", "write x in a..b")
	}
	op := ir.Operator(n.Operator)
	if op != ir.OpAnd && op != ir.OpOr && op != ir.OpCoalesce && acts(n.Right) {
		operands := c.inOrder([]ast.Node{n.Left, n.Right})
		n = &ast.BinaryNode{Operator: n.Operator, Left: operands[0], Right: operands[1]}
		n.SetLocation(file.Location{From: syntax.SpanOf(operands[0]).From, To: syntax.SpanOf(operands[1]).To})
	}
	switch op {
	case ir.OpAnd, ir.OpOr:
		left := c.condition(n.Left)
		right := func() (r *ir.Expr) {
			c.branch(left, op == ir.OpAnd, func() { r = c.condition(n.Right) })
			return r
		}
		l, r := c.decides(left, n, right, func(l *ir.Expr) (*ir.Expr, bool) {
			if op == ir.OpOr {
				return l, false
			}
			return ir.Operation(ir.OpNot, ir.Boolean, l), false
		})
		if l == nil || r == nil {
			return nil
		}
		return ir.Operation(op, ir.Boolean, l, r)
	case ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe:
		return c.comparison(n)
	case ir.OpIn:
		return c.in(n)
	case ir.OpContains, ir.OpStartsWith, ir.OpEndsWith:
		return c.stringOperator(n, c.expr(n.Right, &ir.Text))
	case ir.OpMatches:
		return c.stringOperator(n, c.pattern(n.Right))
	case ir.OpCoalesce, ir.OpBitOr, ir.OpBitAnd, ir.OpBitXor: // these keep the enum and the unit of a value
		l := c.expr(n.Left, either(c.context(n.Right), want))
		right := func() *ir.Expr { return c.expr(n.Right, either(c.context(n.Left), want)) }
		if op != ir.OpCoalesce {
			return c.arithmetic(n, op, l, right())
		}
		l, r := c.decides(l, n, right, func(l *ir.Expr) (*ir.Expr, bool) { return ir.Operation(ir.OpAbsent, ir.Boolean, l), true })
		if l == nil || r == nil {
			return nil
		}
		return c.choice(n, op, l, r)
	default:
		return c.arithmetic(n, op, c.expr(n.Left, nil), c.expr(n.Right, nil))
	}
}

// arithmetic types an operation on numbers. A difference and a negation are signed; another result is unsigned only if all operands
// are. Operations on literals are computed at once.
func (c *checker) arithmetic(n ast.Node, op ir.Op, args ...*ir.Expr) *ir.Expr {
	typ := event.Type{Kind: event.Uint, Size: 8}
	constant := true
	for _, a := range args {
		if a == nil {
			return nil
		}
		if !event.IsNumber(a.Type) && a.Type.Kind != ir.Pending {
			return c.fail(a.Span, fmt.Sprintf("arithmetic takes numbers, not %s", describe(a)), "")
		}
		if a.Type.Kind == event.Int {
			typ.Kind = event.Int
		}
		constant = constant && a.Op == ir.OpLit
	}
	if !constant && (op == ir.OpSub || op == ir.OpNegate) {
		typ.Kind = event.Int
	}
	e := ir.Operation(op, typ, args...)
	if constant {
		e = c.fold(n, e)
	}
	if e != nil {
		e.Type.Unit, e.Type.Enum = resultUnit(op, args), resultFlags(op, args)
	}
	return e
}

// resultFlags returns the enum of the flags that result from a bit operation on flags, or nil.
func resultFlags(op ir.Op, args []*ir.Expr) *event.Enum {
	if !slices.Contains([]ir.Op{ir.OpBitAnd, ir.OpBitOr, ir.OpBitXor, ir.OpCompl}, op) {
		return nil
	}
	var flags *event.Enum
	for _, a := range args {
		switch enum := a.Type.Enum; {
		case plain(a):
		case enum == nil || !enum.Flags || flags != nil && flags != enum:
			return nil
		default:
			flags = enum
		}
	}
	return flags
}

// resultUnit returns the unit of a number that arithmetic computes: the unit of all operands but plain literals, if the operator
// keeps it. A duration stays one times a number; a size does not, because bytes * 8 are bits.
func resultUnit(op ir.Op, args []*ir.Expr) event.Unit {
	if op == ir.OpMul {
		a, b := args[0].Type.Unit, args[1].Type.Unit
		if a == event.Nanoseconds && b == event.None || a == event.None && b == event.Nanoseconds {
			return event.Nanoseconds
		}
		return event.None
	}
	if op == ir.OpSub && args[0].Type.Unit == ir.Instant && args[1].Type.Unit == ir.Instant {
		return event.Nanoseconds
	}
	unit, ok := event.None, false
	for _, a := range args {
		switch {
		case plain(a):
		case ok && a.Type.Unit != unit:
			return event.None
		default:
			unit, ok = a.Type.Unit, true
		}
	}
	switch {
	case (unit == event.Nanoseconds || unit == event.Bytes) && (op == ir.OpAdd || op == ir.OpSub || op == ir.OpNegate),
		unit == event.Hex && (op == ir.OpBitAnd || op == ir.OpBitOr || op == ir.OpBitXor || op == ir.OpCompl):
		return unit
	}
	return event.None
}

// fold computes an operation on literals. Negation is exact, and a difference may be negative: 5 - 10 is -5.
func (c *checker) fold(n ast.Node, e *ir.Expr) *ir.Expr {
	a := event.To[uint64](e.Args[0].Val)
	switch {
	case e.Op == ir.OpNegate && e.Type.Kind == event.Int:
		e.Type.Kind = event.Uint
	case e.Op == ir.OpNegate && a > 1<<63:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("-%d does not fit in 64 bits", a), "")
	case e.Op == ir.OpNegate, e.Op == ir.OpSub && e.Type.Kind == event.Uint && a < event.To[uint64](e.Args[1].Val):
		e.Type.Kind = event.Int
	}
	var operands []any
	for _, arg := range e.Args {
		operands = append(operands, arg.Val)
	}
	return literal(ir.Function(e)(operands))
}

// choice types an operation that yields a or b, and converts both to one type. first holds the operands before them.
func (c *checker) choice(n ast.Node, op ir.Op, a, b *ir.Expr, first ...*ir.Expr) *ir.Expr {
	if op == ir.OpCond && a.Type.Kind == format.Tuple && b.Type.Kind == format.Tuple && len(a.Elems) == len(b.Elems) && a.Form.Equal(b.Form) {
		return c.tupleChoice(n, a, b, first[0])
	}
	for _, x := range []*ir.Expr{a, b} {
		if x.Type.Kind == format.Tuple || x.Type.Kind == format.Array {
			return c.fail(x.Span, fmt.Sprintf("%s cannot be chosen", describe(x)), "write the choice for each of its elements")
		}
	}
	var typ event.Type
	switch {
	case a.Type.Kind == ir.Pending:
		typ = b.Type
	case b.Type.Kind == ir.Pending:
		typ = a.Type
	case describe(a) != describe(b):
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("this is either %s or %s", describe(a), describe(b)),
			"both must have the same type")
	default:
		typ = common(a.Type, b.Type, plain(a), plain(b))
	}
	if a.Type.Kind != b.Type.Kind && typ.Kind == event.Int { // as in arithmetic, one signed operand makes the result signed
		a, b = ir.Signed(a), ir.Signed(b)
	}
	return ir.Operation(op, typ, append(first, a, b)...)
}

// tupleChoice chooses each element of a tuple.
func (c *checker) tupleChoice(n ast.Node, a, b, cond *ir.Expr) *ir.Expr {
	if draws(cond) { // once for all elements
		if !c.inBody() {
			return c.fail(syntax.SpanOf(n), "each element would have a random number of its own", "write the choice in the body")
		}
		cond = c.keepValue(n, cond)
	}
	all := row{tuple: true, form: a.Form}
	others := c.membersOf(b)
	for i, x := range c.membersOf(a) {
		one := c.choice(n, ir.OpCond, x, others[i], cond)
		if one == nil {
			return nil
		}
		all.values = append(all.values, simplify(one))
	}
	return tupleOf(all, syntax.SpanOf(n))
}

// constant types an argument that must be a literal number in a range.
func (c *checker) constant(n ast.Node, what string, lo, hi int64) (v int64, ok bool) {
	e := c.expr(n, nil)
	switch {
	case e == nil:
		return 0, false
	case e.Op != ir.OpLit || !event.IsNumber(e.Type):
		c.fail(e.Span, what+" must be a literal number", "")
		return 0, false
	case event.Compare(e.Val, lo) < 0 || event.Compare(e.Val, hi) > 0:
		msg := fmt.Sprintf("%s must be between %d and %d", what, lo, hi)
		if lo == minInt64 {
			msg = what + " does not fit in a signed 64-bit number"
		}
		c.fail(e.Span, msg, "")
		return 0, false
	}
	return event.To[int64](e.Val), true
}

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
	wantLeft, wantRight := either(c.context(n.Right), c.textFor(n.Left, n.Right)), either(c.context(n.Left), c.textFor(n.Right, n.Left))
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
	if l != nil && r != nil && !ordered {
		l, r = c.besideBool(l, r), c.besideBool(r, l)
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
	if left, right := c.partsOf(l), c.partsOf(r); len(left) > 0 && len(left) == len(right) {
		all := eachEqual(syntax.SpanOf(n), left, right)
		if n.Operator == "!=" {
			return ir.Operation(ir.OpNot, ir.Boolean, all)
		}
		return all
	}
	return ir.Operation(ir.Operator(n.Operator), ir.Boolean, l, r)
}

// besideBool returns a value that is compared with another one. A boolean is a number beside a number: true == 1.
func (c *checker) besideBool(e, beside *ir.Expr) *ir.Expr {
	if e.Type.Kind != event.Bool || !event.IsNumber(beside.Type) || isName(beside.Type) || beside.Type.Unit != event.None {
		return e
	}
	return simplify(c.castTo("uint8", e, e.Span))
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
		case pair[0].Op == ir.OpField && pair[0].Field.Of != nil && event.IsNumber(pair[1].Type):
			help = besideWorkload(pair[0].Field.Name, pair[1])
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
	if equal := oneEqual(syntax.SpanOf(n), c.partsOf(x), c.partsOfAll(args[1:])); equal != nil {
		return equal
	}
	return ir.Operation(ir.OpIn, ir.Boolean, args...)
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
	re, err := c.regexp(s)
	if err != nil {
		return c.fail(syntax.SpanOf(n), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "patterns use the syntax of Go's package regexp")
	}
	return &ir.Expr{Op: ir.OpLit, Type: ir.Text, Val: re, Span: syntax.SpanOf(n)}
}

// pair gives each element of two tuples the meaning that the other one has: (opcode, size) == (write, 4KiB).
func (c *checker) pair(a, b ast.Node) {
	x, isTuple := a.(*syntax.Tuple)
	y, isToo := b.(*syntax.Tuple)
	if !isTuple || !isToo || len(x.Elems) != len(y.Elems) {
		return
	}
	xs, _ := namesOfKey(x.Elems)
	ys, _ := namesOfKey(y.Elems)
	for i := range xs {
		c.pair(xs[i], ys[i])
		for _, side := range [][2]ast.Node{{xs[i], ys[i]}, {ys[i], xs[i]}} {
			if want := c.context(side[1]); want != nil {
				c.paired[side[0]] = want
			}
		}
	}
}
