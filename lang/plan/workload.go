package plan

import (
	"slices"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes/event"
)

// This file has what the kernel does with the names of what a cgroup runs, like pod. It has the cgroup's id alone. A condition on names is a
// question about the cgroup: user space answers it once for each cgroup, and the kernel looks the answer up. A name in a key is the id,
// and user space joins the values of cgroups with the same name.

// A Question is a condition on names of what a cgroup runs.
type Question struct {
	// Name of the map with the answers.
	Name      string
	Condition *ir.Expr
	text      string
}

// maxQuestions bounds them: each takes a map with room for all cgroups.
const maxQuestions = 8

// answers is the map of a question to the code generator.
func (q Question) answers() *codegen.Map {
	return &codegen.Map{
		Name: q.Name, Key: codegen.NewRow(codegen.Column{Type: codegen.Type{Kind: codegen.Uint}}),
		Value: codegen.NewRow(codegen.Column{Type: codegen.Type{Kind: codegen.Bool}, Optional: true}),
	}
}

// asks reports whether an expression is a question about the cgroup of the event, and needs nothing else.
func asks(e *ir.Expr) bool {
	switch e.Op {
	case ir.OpLit:
		return true
	case ir.OpField:
		return e.Field.Of != nil
	case ir.OpAnd, ir.OpOr, ir.OpNot, ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe, ir.OpIn, ir.OpBetween, ir.OpContains, ir.OpStartsWith, ir.OpEndsWith,
		ir.OpMatches, ir.OpAbsent, ir.OpCoalesce, ir.OpCond:
		return !slices.ContainsFunc(e.Args, func(a *ir.Expr) bool { return !asks(a) })
	}
	return false
}

// cgroupOf returns the field with the cgroup that a question is about, or nil if e is none.
func cgroupOf(e *ir.Expr) (cgroup *event.Field) {
	if e.Type.Kind != event.Bool || !asks(e) {
		return nil
	}
	ir.WalkExpr(e, func(e *ir.Expr) {
		if e.Op == ir.OpField {
			cgroup = e.Field.Of
		}
	})
	return cgroup
}
