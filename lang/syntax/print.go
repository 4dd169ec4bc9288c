package syntax

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// String returns the clause in one line.
func (c *Clause) String() string {
	if c.written != "" {
		return c.written
	}
	return c.head() + tail(c.Body)
}

// written returns the reference with its label.
func (r ProbeRef) written() string {
	if r.Label == "" {
		return r.String()
	}
	return r.Label + "=" + r.String()
}

// head returns the clause without its body.
func (c *Clause) head() string {
	probes := make([]string, len(c.Probes))
	for i, r := range c.Probes {
		probes[i] = r.written()
	}
	return strings.TrimSpace(strings.Join(probes, ", ") + " " + c.predicate())
}

// predicate returns the predicate with its slashes, or "".
func (c *Clause) predicate() string {
	if c.Pred == nil {
		return ""
	}
	return "/ " + Print(c.Pred) + " /"
}

func (p *Param) String() string {
	s := "param "
	if p.Short != "" {
		s += p.Short + ", "
	}
	s += p.Name + " = " + Print(p.Default)
	if p.Help != "" {
		s += " " + strconv.Quote(p.Help)
	}
	return s
}

func (l *Let) String() string { return "let " + l.Map + " = " + l.Kind + "(" + Print(l.MaxKeys) + ")" }

// String returns the block in one line.
func (b *Block) String() string {
	if len(b.Stmts) == 0 {
		return "{}"
	}
	stmts := make([]string, len(b.Stmts))
	for i, s := range b.Stmts {
		stmts[i] = PrintStmt(s)
	}
	return "{ " + strings.Join(stmts, "; ") + " }"
}

// tail returns the block as it follows its head.
func tail(b *Block) string {
	if b == nil {
		return ""
	}
	return " " + b.String()
}

// PrintStmt returns the text of a statement in one line.
func PrintStmt(s Stmt) string {
	switch s := s.(type) {
	case *If:
		text := s.head() + tail(s.Then)
		switch inner := s.elseIf(); {
		case inner != nil:
			return text + " else " + PrintStmt(inner)
		case s.Else != nil:
			return text + " else" + tail(s.Else)
		}
		return text
	case *For:
		return s.head() + tail(s.Body)
	case *Call:
		return Print(s.Call)
	case *While:
		return s.head() + tail(s.Body)
	case *Unroll:
		return s.head() + tail(s.Body)
	case *Nested:
		return s.Body.String()
	case *Declare:
		return s.text()
	case *Jump:
		return s.Word
	case *Discard:
		if s.Meant {
			return "_ = " + Print(s.Value)
		}
		return Print(s.Value)
	case *Return:
		if s.Value != nil {
			return "return " + Print(s.Value)
		}
		return "return"
	case *Assign:
		if s.Value == nil {
			return Print(s.Target) + s.Op
		}
		return Print(s.Target) + " " + s.Op + " " + Print(s.Value)
	}
	panic(fmt.Sprintf("syntax: the parser does not make a %T", s))
}

func (s *If) head() string     { return "if (" + Print(s.Cond) + ")" }
func (s *While) head() string  { return "while (" + Print(s.Cond) + ")" }
func (s *Unroll) head() string { return "unroll (" + Print(s.Times) + ")" }

func (s *Declare) text() string {
	text := "let " + s.Var
	if s.Type.Given() {
		text += ": " + s.Type.String()
	}
	if s.Value != nil {
		text += " = " + Print(s.Value)
	}
	return text
}

func (s *For) head() string {
	order := ""
	if s.By != nil {
		order = ", by = " + Print(s.By)
	}
	return "for (" + s.Var + " : " + Print(s.In) + order + ")"
}

// elseIf returns the statement of `else if`. It returns nil without else, or for else with a block of its own.
func (s *If) elseIf() *If {
	if s.Else == nil || len(s.Else.Stmts) != 1 || s.Else.Span != s.Else.Stmts[0].Pos() {
		return nil
	}
	inner, _ := s.Else.Stmts[0].(*If)
	return inner
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
		fmt.Fprint(b, n.Value)
	case *ast.IdentifierNode:
		b.WriteString(n.Value)
	case *ast.PointerNode:
		b.WriteByte('#')
	case *ast.ArrayNode:
		writeList(b, "[", n.Nodes, "]")
	case *ast.CallNode:
		write(b, n.Callee, precOperand)
		writeList(b, "(", n.Arguments, ")")
	case *MapRef:
		b.WriteString(n.Name)
		if n.Key != nil {
			writeList(b, "[", n.Key, "]")
		}
	case *Tuple:
		closing := ")"
		if len(n.Elems) == 1 && !isNamed(n.Elems[0]) {
			closing = ",)"
		}
		writeList(b, "(", n.Elems, closing)
	case *Step:
		if n.Before {
			b.WriteString(n.Op)
		}
		write(b, n.Target, precOperand)
		if !n.Before {
			b.WriteString(n.Op)
		}
	case *BlockExpr:
		last := &Discard{Value: n.Value}
		b.WriteString((&Block{Stmts: append(slices.Clone(n.Body.Stmts), last)}).String())
	case *Member:
		of := precOperand
		if _, ok := n.Of.(*ast.ConstantNode); ok {
			of++ // in brackets, because 1.0 is a fraction
		}
		write(b, n.Of, of)
		b.WriteString("." + n.Selector())
	case *Cast:
		b.WriteString("(" + n.To.String() + ")")
		write(b, n.Of, precUnary)
	case *NamedArg:
		b.WriteString(n.Name + " = ")
		write(b, n.Value, precCond)
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

// writeList writes the elements, separated by commas, between the brackets.
func writeList(b *strings.Builder, opening string, elems []ast.Node, closing string) {
	b.WriteString(opening)
	for i, e := range elems {
		if i > 0 {
			b.WriteString(", ")
		}
		write(b, e, precCond)
	}
	b.WriteString(closing)
}

func (i Int) String() string   { return i.Text }
func (f Float) String() string { return f.Text }

func precedence(n ast.Node) int {
	switch n := n.(type) {
	case *ast.ConditionalNode:
		return precCond
	case *ast.BinaryNode:
		return precedences[n.Operator]
	case *ast.UnaryNode, *Cast:
		return precUnary
	}
	return precOperand
}
