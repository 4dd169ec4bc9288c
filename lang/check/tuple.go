package check

import (
	"slices"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file compares tuples element by element, so that the kernel can do it.

// eachEqual compares the elements of two tuples, so that the kernel can do it.
func eachEqual(at syntax.Span, l, r []*ir.Expr) *ir.Expr {
	var all *ir.Expr
	for i := range l {
		one := simplify(ir.Operation(ir.OpEq, ir.Boolean, l[i], r[i]))
		if one.Span = at; all == nil {
			all = one
		} else {
			all = simplify(ir.Operation(ir.OpAnd, ir.Boolean, all, one))
		}
	}
	return all
}

// again are the operators that may be evaluated again for each element of a list.
var again = []ir.Op{ir.OpLit, ir.OpField, ir.OpVar, ir.OpMember, ir.OpCast, ir.OpSigned}

// oneEqual compares a tuple with each of a list, so that the kernel can do it. It returns nil if that would evaluate more than values of fields and
// variables again.
func oneEqual(at syntax.Span, left []*ir.Expr, list [][]*ir.Expr) (any *ir.Expr) {
	simple := true
	for _, e := range left {
		ir.WalkExpr(e, func(e *ir.Expr) { simple = simple && slices.Contains(again, e.Op) })
	}
	if !simple {
		return nil
	}
	for _, right := range list {
		if len(right) == 0 || len(right) != len(left) {
			return nil
		}
		one := eachEqual(at, left, right)
		if any == nil {
			any = one
		} else {
			any = simplify(ir.Operation(ir.OpOr, ir.Boolean, any, one))
		}
		any.Span = at
	}
	return any
}
