package check

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types operators that compute: arithmetic and choices. compare.go types operators that compare.

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
		l, r := c.decides(c.condition(n.Left), n, func() *ir.Expr { return c.condition(n.Right) }, func(l *ir.Expr) (*ir.Expr, bool) {
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

// arithmetic types an operation on numbers. The result is unsigned only if all operands are. Operations on literals are computed at
// once.
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
// keeps it.
func resultUnit(op ir.Op, args []*ir.Expr) event.Unit {
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
