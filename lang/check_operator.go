package lang

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types operators that compute: arithmetic and choices. check_compare.go has those that compare.

// operation makes a node. It is absent if an operand is, but for the operators that deal with that. So is a comparison of tuples if
// one of their elements is.
func operation(op string, typ event.Type, args ...*expr) *expr {
	e := &expr{op: op, typ: typ, args: args}
	switch op {
	case opAbsent, opTuple, opLookup, opHasKey, opLen:
	case "??":
		e.optional = args[0].optional && args[1].optional
	case opCond:
		e.optional = args[1].optional || args[2].optional
	default:
		e.optional = slices.ContainsFunc(args, func(a *expr) bool { return a.optional || a.typ.Kind == format.Tuple && op != opMember })
	}
	return e
}

// negated is the type of -x. That of an error number, -ret, still knows the names, and they are positive there.
func negated(t *event.Type) *event.Type {
	if t == nil || t.Unit != event.Errno {
		return t
	}
	return &event.Type{Kind: t.Kind, Size: t.Size, Enum: event.ErrnoNames()}
}

func (c *checker) unary(n *ast.UnaryNode, want *event.Type) *expr {
	switch n.Operator {
	case "!":
		e := c.condition(n.Node)
		if e == nil {
			return nil
		}
		return operation("!", boolean, e)
	case "-":
		return c.arithmetic(n, opNegate, c.expr(n.Node, negated(want)))
	default:
		return c.arithmetic(n, n.Operator, c.expr(n.Node, want))
	}
}

func (c *checker) binary(n *ast.BinaryNode, want *event.Type) *expr {
	switch n.Operator {
	case "&&", "||":
		l, r := c.condition(n.Left), c.condition(n.Right)
		if l == nil || r == nil {
			return nil
		}
		return operation(n.Operator, boolean, l, r)
	case "==", "!=", "<", "<=", ">", ">=":
		return c.comparison(n)
	case "in":
		return c.in(n)
	case "contains", "startsWith", "endsWith":
		return c.stringOperator(n, c.expr(n.Right, &text))
	case "matches":
		return c.stringOperator(n, c.pattern(n.Right))
	case "..":
		return c.fail(syntax.SpanOf(n), "a range stands only after in", "write x in a..b")
	}
	switch n.Operator {
	case "??", "|", "&", "^": // these keep what a value means
		l := c.expr(n.Left, either(c.context(n.Right), want))
		r := c.expr(n.Right, either(c.context(n.Left), want))
		if n.Operator != "??" {
			return c.arithmetic(n, n.Operator, l, r)
		}
		if l == nil || r == nil {
			return nil
		}
		return c.choice(n, "??", l, r)
	}
	return c.arithmetic(n, n.Operator, c.expr(n.Left, nil), c.expr(n.Right, nil))
}

// arithmetic types an operation on numbers. It is unsigned only if all operands are. Literals are computed at once.
func (c *checker) arithmetic(n ast.Node, op string, args ...*expr) *expr {
	typ := event.Type{Kind: event.Uint, Size: 8}
	constant := true
	for _, a := range args {
		if a == nil {
			return nil
		}
		if !event.IsNumber(a.typ) && a.typ.Kind != pending {
			return c.fail(a.span, fmt.Sprintf("arithmetic wants numbers, and this is %s", describe(a)), "")
		}
		if a.typ.Kind == event.Int {
			typ.Kind = event.Int
		}
		constant = constant && a.op == opLit
	}
	e := operation(op, typ, args...)
	if constant {
		e = c.fold(n, e)
	}
	if e != nil {
		e.typ.Unit, e.typ.Enum = resultUnit(op, args), resultFlags(op, args)
	}
	return e
}

// resultFlags is the enum of the flags that a bit operation on flags makes, or nil.
func resultFlags(op string, args []*expr) *event.Enum {
	if !slices.Contains([]string{"&", "|", "^", "~"}, op) {
		return nil
	}
	var flags *event.Enum
	for _, a := range args {
		switch enum := a.typ.Enum; {
		case plain(a):
		case enum == nil || !enum.Flags || flags != nil && flags != enum:
			return nil
		default:
			flags = enum
		}
	}
	return flags
}

// instant is the unit of nsecs: a plain number, but the difference of two is a duration.
const instant event.Unit = 100

// resultUnit is the unit of a number that arithmetic makes: that of all operands, but for literals without one, where the operator
// keeps it.
func resultUnit(op string, args []*expr) event.Unit {
	if op == "-" && args[0].typ.Unit == instant && args[1].typ.Unit == instant {
		return event.Nanoseconds
	}
	unit, ok := event.None, false
	for _, a := range args {
		switch {
		case plain(a):
		case ok && a.typ.Unit != unit:
			return event.None
		default:
			unit, ok = a.typ.Unit, true
		}
	}
	switch {
	case (unit == event.Nanoseconds || unit == event.Bytes) && (op == "+" || op == "-" || op == opNegate),
		unit == event.Hex && (op == "&" || op == "|" || op == "^" || op == "~"):
		return unit
	}
	return event.None
}

// fold computes an operation on literals. Negation is exact, and a difference may be negative: 5 - 10 is -5 for everybody.
func (c *checker) fold(n ast.Node, e *expr) *expr {
	a := event.To[uint64](e.args[0].val)
	switch {
	case e.op == opNegate && e.typ.Kind == event.Int:
		e.typ.Kind = event.Uint
	case e.op == opNegate && a > 1<<63:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("-%d does not fit 64 bits", a), "")
	case e.op == opNegate, e.op == "-" && e.typ.Kind == event.Uint && a < event.To[uint64](e.args[1].val):
		e.typ.Kind = event.Int
	}
	var operands []any
	for _, arg := range e.args {
		operands = append(operands, arg.val)
	}
	return literal(function(e)(operands))
}

// choice types an operation that yields a or b, made to be of one type; first are the operands before them.
func (c *checker) choice(n ast.Node, op string, a, b *expr, first ...*expr) *expr {
	for _, x := range []*expr{a, b} {
		if x.typ.Kind == format.Tuple || x.typ.Kind == format.Array {
			return c.fail(x.span, fmt.Sprintf("%s cannot be chosen", describe(x)), "choose each of its elements")
		}
	}
	var typ event.Type
	switch {
	case a.typ.Kind == pending:
		typ = b.typ
	case b.typ.Kind == pending:
		typ = a.typ
	case describe(a) != describe(b):
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("this is either %s or %s", describe(a), describe(b)),
			"both have to be of one type")
	default:
		typ = common(a.typ, b.typ, plain(a), plain(b))
	}
	if a.typ.Kind != b.typ.Kind && typ.Kind == event.Int { // as in arithmetic: one signed operand makes it signed
		a, b = signed(a), signed(b)
	}
	return operation(op, typ, append(first, a, b)...)
}

// signed makes e signed, bit by bit.
func signed(e *expr) *expr {
	switch {
	case e.typ.Kind != event.Uint:
		return e
	case e.op == opLit:
		literal := *e
		literal.typ.Kind, literal.val = event.Int, event.To[int64](e.val)
		return &literal
	}
	return &expr{op: opSigned, args: []*expr{e}, typ: event.Type{Kind: event.Int, Size: 8}, optional: e.optional, span: e.span}
}
