package syntax

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Dump returns the tree as text: all brackets, numbers as their values, one statement per line. Programs that differ only in their
// layout and in the spelling of the same tree have the same text.
func Dump(p *Program) string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(strings.Join(parts, " ") + "\n") }
	for _, s := range p.Config {
		line("config", s.Name, dump(s.Value))
	}
	for _, i := range p.Imports {
		line("import", strconv.Quote(i.Path))
	}
	for _, m := range p.Macros {
		line(m.head())
		dumpBlock(&b, m.Body, 1)
	}
	for _, param := range p.Params {
		line("param", strings.TrimPrefix(param.Short+","+param.Name, ","), dump(param.Default), strconv.Quote(param.Help))
	}
	for _, let := range p.Lets {
		line("let", let.Map, let.Kind, dump(let.MaxKeys))
	}
	for _, c := range p.Clauses {
		probes := make([]string, len(c.Probes))
		for i, r := range c.Probes {
			probes[i] = r.written()
		}
		line(strings.Join(probes, ","), dump(c.Pred))
		dumpBlock(&b, c.Body, 1)
	}
	if p.Expr != nil {
		line(dump(p.Expr))
		dumpBlock(&b, p.Body, 1)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Equal reports whether two programs have the same tree.
func Equal(p, q *Program) bool { return Dump(p) == Dump(q) }

func dumpBlock(b *strings.Builder, block *Block, indent int) {
	if block == nil {
		return
	}
	tabs := strings.Repeat("\t", indent)
	line := func(parts ...string) { b.WriteString(tabs + strings.Join(parts, " ") + "\n") }
	line("{")
	for _, s := range block.Stmts {
		switch s := s.(type) {
		case *Assign:
			line(dump(s.Target), s.Op, dump(s.Value))
		case *Call:
			line(dump(s.Call))
		case *Return:
			line("return")
			if s.Value != nil {
				line("value", dump(s.Value))
			}
		case *Jump:
			line(s.Word)
		case *Discard:
			line("_", dump(s.Value))
		case *Declare:
			line("let", s.Var, s.Type.String(), dump(s.Value))
		case *Nested:
			dumpBlock(b, s.Body, indent+1)
		case *While:
			line("while", dump(s.Cond))
			dumpBlock(b, s.Body, indent+1)
		case *Unroll:
			line("unroll", dump(s.Times))
			dumpBlock(b, s.Body, indent+1)
		case *If:
			line("if", dump(s.Cond))
			dumpBlock(b, s.Then, indent+1)
			if s.Else != nil {
				line("else")
				dumpBlock(b, s.Else, indent+1)
			}
		case *For:
			if s.By != nil {
				line("for", s.Var, dump(s.In), "by", dump(s.By))
			} else {
				line("for", s.Var, dump(s.In))
			}
			dumpBlock(b, s.Body, indent+1)
		}
	}
	line("}")
}

// dump returns an expression with every bracket, or a dash if there is no expression.
func dump(n ast.Node) string {
	switch n := n.(type) {
	case nil:
		return "-"
	case *ast.NilNode:
		return "nil"
	case *ast.ConstantNode:
		switch v := n.Value.(type) {
		case Int:
			return fmt.Sprint(v.Value)
		case Float:
			return fmt.Sprint(v.Value, "f")
		}
	case *ast.UnaryNode:
		return "(" + n.Operator + " " + dump(n.Node) + ")"
	case *ast.BinaryNode:
		return "(" + dump(n.Left) + " " + n.Operator + " " + dump(n.Right) + ")"
	case *ast.ConditionalNode:
		return "(" + dump(n.Cond) + " ? " + dump(n.Exp1) + " : " + dump(n.Exp2) + ")"
	case *ast.ArrayNode:
		return "[" + dumpAll(n.Nodes) + "]"
	case *ast.CallNode:
		return dump(n.Callee) + "(" + dumpAll(n.Arguments) + ")"
	case *MapRef:
		if n.Key == nil {
			return n.Name
		}
		return n.Name + "[" + dumpAll(n.Key) + "]"
	case *Tuple:
		return "(tuple " + dumpAll(n.Elems) + ")"
	case *Member:
		return "(" + dump(n.Of) + " ." + n.Selector() + ")"
	case *Cast:
		return "(" + n.To.String() + " " + dump(n.Of) + ")"
	case *Step:
		if n.Before {
			return "(" + n.Op + " " + dump(n.Target) + ")"
		}
		return "(" + dump(n.Target) + " " + n.Op + ")"
	case *BlockExpr:
		var b strings.Builder
		dumpBlock(&b, n.Body, 0)
		return "(" + strings.ReplaceAll(b.String(), "\n", ";") + " " + dump(n.Value) + ")"
	case *NamedArg:
		return n.Name + "=" + dump(n.Value)
	}
	return Print(n) // names, strings, true, false and #
}

func dumpAll(all []ast.Node) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = dump(n)
	}
	return strings.Join(texts, " ")
}
