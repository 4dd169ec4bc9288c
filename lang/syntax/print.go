package syntax

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// String returns a program that parses to the same tree.
func (p *Program) String() string {
	if p.Expr != nil {
		return Print(p.Expr)
	}
	clauses := make([]string, len(p.Clauses))
	for i, c := range p.Clauses {
		clauses[i] = c.String()
	}
	return strings.Join(clauses, "\n")
}

func (c *Clause) String() string {
	probes := make([]string, len(c.Probes))
	for i, r := range c.Probes {
		probes[i] = r.String()
	}
	s := strings.Join(probes, ", ")
	if c.Pred != nil {
		s += " / " + Print(c.Pred) + " /"
	}
	return s
}

// Print returns the text of an expression, with brackets only where they are needed.
func Print(n ast.Node) string {
	var b strings.Builder
	write(&b, n, precCond)
	return b.String()
}

// write writes n, in brackets if it binds looser than prec.
func write(b *strings.Builder, n ast.Node, prec int) {
	if precedence(n) < prec {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	switch n := n.(type) {
	case *ast.NilNode:
		b.WriteString("nil")
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(n.Value))
	case *ast.StringNode:
		b.WriteString(strconv.Quote(n.Value))
	case *ast.ConstantNode:
		b.WriteString(n.Value.(Int).Text)
	case *ast.IdentifierNode:
		b.WriteString(n.Value)
	case *ast.ArrayNode:
		b.WriteByte('[')
		for i, e := range n.Nodes {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, e, precCond)
		}
		b.WriteByte(']')
	case *ast.UnaryNode:
		b.WriteString(n.Operator)
		if inner, ok := n.Node.(*ast.UnaryNode); ok && n.Operator == "-" && inner.Operator == "-" {
			b.WriteByte(' ') // two signs, not a decrement
		}
		write(b, n.Node, precUnary)
	case *ast.BinaryNode:
		at := precedences[n.Operator]
		left, right, gap := at, at+1, " "
		switch n.Operator {
		case "**":
			left, right = at+1, at
		case "..":
			gap = ""
		}
		write(b, n.Left, left)
		b.WriteString(gap + n.Operator + gap)
		write(b, n.Right, right)
	case *ast.ConditionalNode:
		write(b, n.Cond, precCond+1)
		b.WriteString(" ? ")
		write(b, n.Exp1, precCond)
		b.WriteString(" : ")
		write(b, n.Exp2, precCond)
	default:
		panic(fmt.Sprintf("syntax: the parser does not make a %T", n))
	}
}

func precedence(n ast.Node) int {
	switch n := n.(type) {
	case *ast.ConditionalNode:
		return precCond
	case *ast.BinaryNode:
		return precedences[n.Operator]
	case *ast.UnaryNode:
		return precUnary
	}
	return precOperand
}
