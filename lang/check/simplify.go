package check

import (
	"slices"

	"trace/lang/ir"
	"trace/probes/event"
)

// This file evaluates what literals and params decide. A filter that is off, like `$ctrl_id < 0 || ctrl_id == $ctrl_id` with a
// negative param, then reads no field, and a clause whose predicate is false attaches no probe.

// simplify evaluates e as far as literals decide it: a condition becomes true or false, and a choice becomes the chosen operand.
// The operands are simplified already.
func simplify(e *ir.Expr) *ir.Expr {
	switch e.Op {
	case ir.OpAnd, ir.OpOr:
		for i, a := range e.Args {
			if a.Op != ir.OpLit {
				continue
			}
			if a.Val == (e.Op == ir.OpOr) { // this operand decides
				return truth(e, a.Val)
			}
			return e.Args[1-i]
		}
		return e
	case ir.OpCond:
		chosen := e.Args[1]
		if decided(e.Args[0], false) {
			chosen = e.Args[2]
		}
		// A chosen number has the sign that the choice would have. A literal has no sign of its own.
		if e.Args[0].Op != ir.OpLit || chosen.Op == ir.OpLit && event.IsNumber(chosen.Type) {
			return e
		}
		return chosen
	}
	compute := ir.Function(e)
	if e.Type.Kind != event.Bool || compute == nil || len(e.Args) == 0 || slices.ContainsFunc(e.Args, func(a *ir.Expr) bool { return a.Op != ir.OpLit }) {
		return e
	}
	operands := make([]any, len(e.Args))
	for i, a := range e.Args {
		operands[i] = a.Val
	}
	return truth(e, compute(operands))
}

// truth returns e as a literal.
func truth(e *ir.Expr, v any) *ir.Expr {
	return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: v, Span: e.Span}
}

// decided reports whether e is the literal v.
func decided(e *ir.Expr, v bool) bool { return e != nil && e.Op == ir.OpLit && e.Val == v }
