package plan

import (
	"fmt"
	"slices"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes"
	"trace/probes/event"
)

// This file has what the kernel does with the texts of numbers, like syscall_name(nr). It keeps a text as its code. Of names of what a cgroup
// runs it keeps the cgroup, see workload.go.

// codeOf describes how a number becomes the code of its text.
func codeOf(n *ir.Naming) (others uint64, pieces []codegen.Piece) {
	for _, p := range n.Pieces {
		pieces = append(pieces, codegen.Piece(p))
	}
	return uint64(n.Others), pieces
}

// operands returns the operands of an operator. Of texts of numbers it only compares whether they are equal, and chooses.
func (k *kernelizer) operands(e *ir.Expr) ([]*codegen.Expr, *Obstacle) {
	at := slices.IndexFunc(e.Args, func(a *ir.Expr) bool { return ir.NamingOf(a.Type) != nil })
	switch {
	case at < 0, e.Op == ir.OpAbsent:
		return k.exprs(e.Args)
	case e.Op != ir.OpEq && e.Op != ir.OpNe && e.Op != ir.OpIn && ir.NamingOf(e.Type) == nil:
		return nil, k.cannot(e, "the text of a number as an operand of "+whatOf(e))
	}
	out := make([]*codegen.Expr, len(e.Args))
	for i, a := range e.Args {
		of := e.Args[at].Type
		if a.Type.Kind != event.String { // the condition of a choice
			of = a.Type
		}
		var why *Obstacle
		if text, is := a.Val.(string); is && ir.NamingOf(e.Type) == nil {
			out[i] = literalCode(ir.NamingOf(of), text)
		} else if out[i], why = k.as(of, a); why != nil {
			return nil, why
		}
	}
	return out, nil
}

// as returns a value of a type: a text of a number, or a text of the program that is one, is its code.
func (k *kernelizer) as(t event.Type, e *ir.Expr) (*codegen.Expr, *Obstacle) {
	to, from := ir.NamingOf(t), ir.NamingOf(e.Type)
	text, isText := e.Val.(string)
	switch {
	case to == nil && from == nil, to != nil && from != nil && t.Unit == e.Type.Unit && t.Enum == e.Type.Enum && !isText:
		return k.expr(e)
	case to != nil && isText:
		if code := literalCode(to, text); code.Num != ir.NoText {
			return code, nil
		}
	}
	return nil, k.cannot(e, "a text beside texts of numbers")
}

func literalCode(n *ir.Naming, text string) *codegen.Expr {
	return &codegen.Expr{Op: codegen.OpLit, Type: codegen.Type{Kind: codegen.Int}, Num: uint64(n.CodeOf(text))}
}

// ask looks up the answer to a question.
func (k *kernelizer) ask(e *ir.Expr, cgroup *event.Field) (*codegen.Expr, *Obstacle) {
	if k.plan.Options.Questions == nil || !k.plan.Options.Questions() {
		return nil, k.cannot(e, "a condition on what a cgroup runs")
	}
	text := e.String()
	i := slices.IndexFunc(k.plan.questions, func(q Question) bool { return q.text == text })
	if i < 0 {
		i = len(k.plan.questions)
		if i == maxQuestions {
			return nil, &Obstacle{Reason: fmt.Sprintf("the kernel has answers to %d conditions on what cgroups run at most", maxQuestions), span: e.Span}
		}
		k.plan.questions = append(k.plan.questions, Question{probes.QuestionName(i), e, text})
	}
	return &codegen.Expr{
		Op: codegen.OpLookup, Type: codegen.Type{Kind: codegen.Bool}, Map: k.plan.questions[i].answers(), Args: []*codegen.Expr{idOf(cgroup)},
	}, nil
}

// idOf returns the id of a cgroup.
func idOf(cgroup *event.Field) *codegen.Expr {
	return &codegen.Expr{Op: codegen.OpField, Type: codegen.Type{Kind: codegen.Uint}, Field: kernelField(cgroup)}
}

// key returns the elements of a key.
func (k *kernelizer) key(m *ir.Map, in []*ir.Expr) ([]*codegen.Expr, *Obstacle) {
	out := make([]*codegen.Expr, len(in))
	for i, c := range m.Key {
		if e := in[i]; c.Type.NamesWorkload() && e.Op == ir.OpField && e.Field.Of != nil {
			out[i] = idOf(e.Field.Of)
			continue
		}
		one, why := k.columns(m.Key[i:i+1], in[i:i+1])
		if why != nil {
			return nil, why
		}
		out[i] = one[0]
	}
	return out, nil
}
