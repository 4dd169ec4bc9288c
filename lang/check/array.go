package check

import (
	"fmt"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types arrays, which are the parts of a number: a tuple with a form of its own.

func isArray(e *ir.Expr) bool { return e.Form.IsArray() }

// arrayOf types (uint8[4])x and (uint8[])x: the parts of a number as they are in memory, the lowest first.
func (c *checker) arrayOf(n *syntax.Cast, x *ir.Expr) *ir.Expr {
	at, to := syntax.SpanOf(n), casts[n.To.Name]
	switch {
	case to.bits == 0:
		return c.fail(at, "the elements of an array are numbers", "write (uint8[4])x")
	case isArray(x):
		x = c.numberOf(x)
	case !event.IsNumber(x.Type) && x.Type.Kind != ir.Pending:
		return c.fail(at, fmt.Sprintf("%s cannot be cast to an array", describe(x)), "numbers can")
	}
	count := n.To.Array
	if count == syntax.OfValue && x.Type.Kind == ir.Pending {
		return &ir.Expr{Op: ir.OpCast, Type: x.Type, Args: []*ir.Expr{x}, Bits: to.bits}
	} else if count == syntax.OfValue {
		count = max(1, 8*sizeOfNumber(n, x)/to.bits)
	}
	if count*to.bits > 64 {
		return c.fail(at, fmt.Sprintf("%s is larger than a number, which has 8 bytes", n.To), "")
	}
	if c.inBody() && x.Op != ir.OpLit && x.Op != ir.OpField && x.Op != ir.OpVar {
		if x = c.keepValue(n, x); x == nil {
			return nil
		}
	}
	whole := row{tuple: true, form: format.ArrayForm(count)}
	for i := range count {
		part := ir.Operation(ir.OpShr, event.Type{Kind: x.Type.Kind, Size: 8}, x, literal(uint64(i*to.bits)))
		part.Span = at
		part = c.castTo(n.To.Name, part, at)
		part.Span = at
		whole.values = append(whole.values, part)
	}
	return tupleOf(whole, at)
}

// sizeOfNumber returns the bytes of the operand of a cast. A literal has the bytes that it needs.
func sizeOfNumber(n *syntax.Cast, x *ir.Expr) int {
	if _, sized := n.Of.(*syntax.Cast); x.Op == ir.OpLit && !sized {
		return bytesFor(x.Val)
	}
	return x.Type.Size
}

// numberOf returns the number whose parts an array has.
func (c *checker) numberOf(array *ir.Expr) *ir.Expr {
	at := func(e *ir.Expr) *ir.Expr {
		e.Span = array.Span
		return e
	}
	whole := literal(uint64(0))
	bits := 0
	for _, part := range c.membersOf(array) {
		size := 8 * part.Type.Size
		low := at(ir.Operation(ir.OpCast, ir.Natural64, part))
		low.Bits = size
		moved := at(ir.Operation(ir.OpShl, ir.Natural64, low, literal(uint64(bits))))
		whole = at(ir.Operation(ir.OpBitOr, ir.Natural64, whole, moved))
		bits += size
	}
	whole.Type.Size = bits / 8
	return whole
}
