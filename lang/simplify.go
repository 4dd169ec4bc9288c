package lang

import (
	"slices"

	"trace/probes/event"
)

// This file decides what literals decide, params among them. A filter that is off, like `$ctrl_id < 0 || ctrl_id == $ctrl_id` with a
// negative param, reads no field so, and a clause whose predicate is false attaches no probe.

// simplify returns what e comes to: a condition on literals is true or false, and a choice by one is what it chooses. The operands
// are simplified already.
func simplify(e *expr) *expr {
	switch e.op {
	case "&&", "||":
		for i, a := range e.args {
			if a.op != opLit {
				continue
			}
			if a.val == (e.op == "||") { // it decides, whatever the other is
				return truth(e, a.val)
			}
			return e.args[1-i]
		}
		return e
	case opCond:
		chosen := e.args[1]
		if decided(e.args[0], false) {
			chosen = e.args[2]
		}
		// A number that is chosen is as signed as the others would be, and a literal has no sign of its own.
		if e.args[0].op != opLit || chosen.op == opLit && event.IsNumber(chosen.typ) {
			return e
		}
		return chosen
	}
	compute := function(e)
	if e.typ.Kind != event.Bool || compute == nil || len(e.args) == 0 || slices.ContainsFunc(e.args, func(a *expr) bool { return a.op != opLit }) {
		return e
	}
	operands := make([]any, len(e.args))
	for i, a := range e.args {
		operands[i] = a.val
	}
	return truth(e, compute(operands))
}

// truth is the literal that e comes to.
func truth(e *expr, v any) *expr { return &expr{op: opLit, typ: boolean, val: v, span: e.span} }

// decided tells whether e is the literal true or false.
func decided(e *expr, v bool) bool { return e != nil && e.op == opLit && e.val == v }
