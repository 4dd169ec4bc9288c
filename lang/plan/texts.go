package plan

import (
	"slices"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes/event"
)

// This file has what the kernel does with the texts of numbers, like syscall_name(nr). It keeps a text as its code.

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
