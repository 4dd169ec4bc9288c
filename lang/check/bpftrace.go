package check

import (
	"github.com/expr-lang/expr/ast"

	"trace/lang/syntax"
)

// This file writes functions of bpftrace as expressions that mean the same.

// foreignCall is a function of bpftrace.
type foreignCall struct {
	usage, params string // as of a signature
	// means returns what a call means, or nil if an argument is wrong. The arguments have the right sorts.
	means func(args []ast.Node) ast.Node
}

var foreignCalls = map[string]foreignCall{
	"strlen":      {"strlen(s)", "t", renamed("len")},
	"strstr":      {`strstr(s, "part")`, "tt", renamed("indexOf")},
	"strcontains": {`strcontains(s, "part")`, "tt", joined("contains")},
	"strncmp":     {`strncmp(s, "text", 3), with a literal number`, "ttn", compared},
	"str_concat":  {"str_concat(a, b)", "tt", concatenated},
}

// renamed returns a call of another function.
func renamed(fn string) func([]ast.Node) ast.Node {
	return func(args []ast.Node) ast.Node { return callOf(fn, args...) }
}

// joined returns an operator with two operands.
func joined(operator string) func([]ast.Node) ast.Node {
	return func(args []ast.Node) ast.Node {
		return &ast.BinaryNode{Operator: operator, Left: args[0], Right: args[1]}
	}
}

func callOf(fn string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: fn}, Arguments: args}
}

// compared is strncmp(a, b, n): 0 if the first n bytes are equal, and otherwise 1. The kernel can do it if b is a literal.
func compared(args []ast.Node) ast.Node {
	text, isText := args[1].(*ast.StringNode)
	n, _, isNumber := literalValue(args[2])
	count, isNatural := n.(uint64)
	if !isNumber || !isNatural {
		return nil
	}
	var equal ast.Node
	switch {
	case !isText:
		equal = &ast.BinaryNode{Operator: "==", Left: callOf("memcmp", args...), Right: numberNode(0)}
	case count <= uint64(len(text.Value)):
		equal = &ast.BinaryNode{Operator: "startsWith", Left: args[0], Right: &ast.StringNode{Value: text.Value[:count]}}
	default:
		equal = &ast.BinaryNode{Operator: "==", Left: args[0], Right: text}
	}
	return &ast.ConditionalNode{Ternary: true, Cond: equal, Exp1: numberNode(0), Exp2: numberNode(1)}
}

// concatenated is str_concat(a, b).
func concatenated(args []ast.Node) ast.Node {
	return callOf("join", &ast.ArrayNode{Nodes: args}, &ast.StringNode{Value: ""})
}

// located gives nodes that were made for a call its place.
func located(n ast.Node, call ast.Node) ast.Node {
	if syntax.SpanOf(n) != (syntax.Span{}) {
		return n
	}
	syntax.Walk(n, func(n ast.Node) bool {
		if syntax.SpanOf(n) == (syntax.Span{}) {
			n.SetLocation(call.Location())
		}
		return true
	})
	return n
}
