package check

// This file splits calls into their parts.

import (
	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/syntax"
)

// arguments separates named arguments from the others.
func arguments(n *ast.CallNode) (args []ast.Node, named []*syntax.NamedArg) {
	for _, arg := range n.Arguments {
		if a, ok := arg.(*syntax.NamedArg); ok {
			named = append(named, a)
		} else {
			args = append(args, arg)
		}
	}
	return args, named
}

// callee returns the name of the called function.
func callee(n *ast.CallNode) string {
	id, ok := n.Callee.(*ast.IdentifierNode)
	if !ok {
		return ""
	}
	return id.Value
}

// aggregationCall returns n and the name of its function if n calls an aggregation.
func aggregationCall(n ast.Node) (call *ast.CallNode, fn string) {
	call, ok := n.(*ast.CallNode)
	if !ok {
		return nil, ""
	}
	fn = callee(call)
	if _, ok := agg.Lookup(fn); !ok {
		return nil, ""
	}
	return call, fn
}
