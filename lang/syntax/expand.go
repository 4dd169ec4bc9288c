package syntax

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// Expand returns the program with the bodies of its macros in the place of their calls. The variables of a body are its own, and it
// has no maps but those that it is given. Nodes keep the places where they are written. The error is an [ErrorList].
func Expand(p *Program) (*Program, error) {
	if len(p.Macros) == 0 {
		return p, nil
	}
	x := &expander{text: p.Text, macros: map[string]*Macro{}, params: map[string]bool{}}
	for _, param := range p.Params {
		x.params["$"+param.Name] = true
	}
	for _, m := range p.Macros {
		if x.macros[m.Name] != nil {
			x.fail(m.Span, fmt.Sprintf("macro %s is declared twice", m.Name), "")
		}
		x.macros[m.Name] = m
	}
	out := *p
	out.Clauses = nil
	for _, c := range p.Clauses {
		expanded := *c
		expanded.written = c.String()
		expanded.Pred, expanded.Body = x.node(c.Pred, nil), x.block(c.Body, nil)
		out.Clauses = append(out.Clauses, &expanded)
	}
	return &out, x.errs.Err()
}

// Conditioned returns the clause with the conditions of its predicate from the first one that acts in an if of its body: what they do is then done like
// all that a body does. A clause without a body stays.
func (c *Clause) Conditioned(acts func(ast.Node) bool) *Clause {
	if c.Pred == nil || c.Body == nil || !acts(c.Pred) {
		return c
	}
	out := *c
	out.written = c.String()
	conditions := conjuncts(c.Pred)
	first := slices.IndexFunc(conditions, acts)
	out.Pred = conjunction(conditions[:first])
	choice := &If{Cond: conjunction(conditions[first:]), Then: c.Body, Span: c.Body.Span}
	out.Body = &Block{Stmts: []Stmt{choice}, Span: c.Body.Span}
	return &out
}

// conjuncts returns the conditions that are joined by &&, in their order.
func conjuncts(n ast.Node) []ast.Node {
	if both, is := n.(*ast.BinaryNode); is && both.Operator == "&&" {
		return append(conjuncts(both.Left), conjuncts(both.Right)...)
	}
	return []ast.Node{n}
}

// conjunction returns the condition that all of them hold, or nil if there are none.
func conjunction(all []ast.Node) (n ast.Node) {
	for _, next := range all {
		if n == nil {
			n = next
			continue
		}
		both := &ast.BinaryNode{Operator: "&&", Left: n, Right: next}
		both.SetLocation(file.Location{From: SpanOf(n).From, To: SpanOf(next).To})
		n = both
	}
	return n
}

// maxExpansions bounds how large a program becomes, and maxNested how deep.
const (
	maxExpansions = 1000
	maxNested     = 32
	maxCopies     = 100_000 // of nodes: each use of an argument copies it
)

type expander struct {
	text   Text
	macros map[string]*Macro
	params map[string]bool // with their dollar
	errs   ErrorList
	calls  int
	copies int // of nodes
}

// call is what the params of a macro stand for in one call. A nil call is the program itself.
type call struct {
	macro  *Macro
	number int
	args   map[string]ast.Node
	depth  int
}

func (x *expander) fail(at Span, msg, help string) {
	x.errs = append(x.errs, x.text.Error(at, msg, help))
}

// called returns the macro that a node calls, with the arguments, or nil.
func (x *expander) called(n ast.Node, in *call) (*Macro, []ast.Node) {
	switch n := n.(type) {
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return x.macros[callee.Value], n.Arguments
		}
	case *ast.IdentifierNode:
		if m := x.macros[n.Value]; m != nil && len(m.Params) == 0 && in.arg(n.Value) == nil {
			return m, nil
		}
	}
	return nil, nil
}

// arg returns what a param stands for, or nil.
func (in *call) arg(name string) ast.Node {
	if in == nil {
		return nil
	}
	return in.args[name]
}

// expand returns the body of a macro for one call, or nil after a mistake.
func (x *expander) expand(at Span, m *Macro, args []ast.Node, in *call) *Block {
	inner := &call{macro: m, args: map[string]ast.Node{}}
	if in != nil {
		inner.depth = in.depth + 1
	}
	x.calls++
	inner.number = x.calls
	switch {
	case len(args) != len(m.Params):
		x.fail(at, fmt.Sprintf("%s has %d arguments here and %d params", m.Name, len(args), len(m.Params)), "write "+strings.TrimPrefix(m.head(), "macro "))
		return nil
	case inner.depth > maxNested || x.calls > maxExpansions:
		if x.calls <= maxExpansions+1 || inner.depth == maxNested+1 {
			x.fail(at, fmt.Sprintf("macro %s becomes too large", m.Name), "a macro cannot call itself")
		}
		x.calls = maxExpansions + 1
		return nil
	}
	for i, param := range m.Params {
		arg := x.node(args[i], in)
		if !fits(param, arg) {
			x.fail(SpanOf(args[i]), fmt.Sprintf("%s of %s takes %s", param, m.Name, kindOf(param)), "")
			return nil
		}
		inner.args[param] = arg
	}
	return x.block(m.Body, inner)
}

func fits(param string, arg ast.Node) bool {
	switch param[0] {
	case '$':
		v, ok := arg.(*ast.IdentifierNode)
		return ok && v.Value[0] == '$'
	case '@':
		m, ok := arg.(*MapRef)
		return ok && m.Key == nil
	}
	return arg != nil
}

func kindOf(param string) string {
	if param[0] == '$' {
		return "a variable"
	}
	return "a map"
}

// node returns a copy of an expression, with macros expanded and params replaced.
func (x *expander) node(n ast.Node, in *call) ast.Node {
	if n == nil {
		return nil
	}
	if x.copies++; x.copies > maxCopies {
		if x.copies == maxCopies+1 {
			x.fail(SpanOf(n), "the program becomes too large", "a macro that uses its argument twice doubles it")
		}
		return n
	}
	if m, args := x.called(n, in); m != nil {
		return x.valueOf(n, m, args, in)
	}
	return x.copied(n, in)
}

// valueOf returns the value of a call of a macro.
func (x *expander) valueOf(n ast.Node, m *Macro, args []ast.Node, in *call) ast.Node {
	body := x.expand(SpanOf(n), m, args, in)
	if body == nil {
		return n
	}
	stmts, value := body.value()
	switch {
	case value == nil:
		x.fail(SpanOf(n), fmt.Sprintf("macro %s has no value", m.Name), "end its body with an expression")
		return n
	case len(stmts) == 0:
		return value
	}
	block := &BlockExpr{Body: &Block{stmts, body.Span}, Value: value}
	block.SetLocation(n.Location())
	return block
}

// copied returns a copy of a node whose operands are expanded.
func (x *expander) copied(n ast.Node, in *call) ast.Node {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		return x.identifier(n, in)
	case *MapRef:
		return x.mapRef(n, in)
	case *ast.UnaryNode:
		out := *n
		out.Node = x.node(n.Node, in)
		return &out
	case *ast.BinaryNode:
		out := *n
		out.Left, out.Right = x.node(n.Left, in), x.node(n.Right, in)
		return &out
	case *ast.ConditionalNode:
		out := *n
		out.Cond, out.Exp1, out.Exp2 = x.node(n.Cond, in), x.node(n.Exp1, in), x.node(n.Exp2, in)
		return &out
	case *ast.ArrayNode:
		out := *n
		out.Nodes = x.nodes(n.Nodes, in)
		return &out
	case *ast.CallNode:
		out := *n
		out.Arguments = x.nodes(n.Arguments, in)
		return &out
	case *Tuple:
		out := *n
		out.Elems = x.nodes(n.Elems, in)
		return &out
	case *Member:
		out := *n
		out.Of = x.node(n.Of, in)
		return &out
	case *Cast:
		out := *n
		out.To.Like, out.Of = x.node(n.To.Like, in), x.node(n.Of, in)
		return &out
	case *NamedArg:
		out := *n
		out.Value = x.node(n.Value, in)
		return &out
	case *Step:
		out := *n
		out.Target = x.node(n.Target, in)
		return &out
	case *BlockExpr:
		out := *n
		out.Body, out.Value = x.block(n.Body, in), x.node(n.Value, in)
		return &out
	}
	return n // literals have no operands
}

func (x *expander) nodes(all []ast.Node, in *call) []ast.Node {
	out := slices.Clone(all)
	for i, n := range all {
		out[i] = x.node(n, in)
	}
	return out
}

// identifier replaces a param. Another variable of a macro gets a name that no program can write.
func (x *expander) identifier(n *ast.IdentifierNode, in *call) ast.Node {
	if in == nil {
		return n
	}
	if arg := in.arg(n.Value); arg != nil {
		return x.node(arg, nil)
	}
	if n.Value[0] != '$' || x.params[n.Value] || IsArgument(n.Value) {
		return n
	}
	out := *n
	out.Value = in.own(n.Value)
	return &out
}

// own returns the name of a variable of the macro.
func (in *call) own(variable string) string {
	if in == nil {
		return variable
	}
	if arg, ok := in.arg(variable).(*ast.IdentifierNode); ok {
		return arg.Value
	}
	return fmt.Sprintf("%s of %s, call %d", variable, in.macro.Name, in.number)
}

func (x *expander) mapRef(n *MapRef, in *call) ast.Node {
	out := *n
	out.Key = x.nodes(n.Key, in)
	if in == nil {
		return &out
	}
	arg, ok := in.arg(n.Name).(*MapRef)
	if !ok {
		x.fail(SpanOf(n), fmt.Sprintf("macro %s is not given %s", in.macro.Name, n.Name), fmt.Sprintf("add the map to its params: macro %s(%s)", in.macro.Name, n.Name))
		return &out
	}
	out.Name = arg.Name
	return &out
}

func (x *expander) block(b *Block, in *call) *Block {
	if b == nil {
		return nil
	}
	out := &Block{Span: b.Span}
	for _, s := range b.Stmts {
		out.Stmts = append(out.Stmts, x.stmt(s, in))
	}
	return out
}

// stmt returns a copy of a statement. A call of a macro becomes a block.
func (x *expander) stmt(s Stmt, in *call) Stmt {
	switch s := s.(type) {
	case *Call:
		if m, args := x.called(s.Call, in); m != nil {
			return x.nested(s, m, args, in)
		}
		out := *s
		out.Call = x.copied(s.Call, in).(*ast.CallNode)
		return &out
	case *Discard:
		if m, args := x.called(s.Value, in); m != nil && !s.Meant {
			return x.nested(s, m, args, in)
		}
		out := *s
		out.Value = x.node(s.Value, in)
		return &out
	case *Assign:
		out := *s
		out.Target, out.Value = x.node(s.Target, in), x.node(s.Value, in)
		if s.step != nil {
			out.step = x.node(s.step, in).(*Step)
		}
		return &out
	case *Declare:
		out := *s
		out.Var, out.Type.Like, out.Value = in.own(s.Var), x.node(s.Type.Like, in), x.node(s.Value, in)
		return &out
	case *If:
		out := *s
		out.Cond, out.Then, out.Else = x.node(s.Cond, in), x.block(s.Then, in), x.block(s.Else, in)
		return &out
	case *For:
		out := *s
		out.Var, out.In, out.Body = in.own(s.Var), x.node(s.In, in), x.block(s.Body, in)
		return &out
	case *While:
		out := *s
		out.Cond, out.Body = x.node(s.Cond, in), x.block(s.Body, in)
		return &out
	case *Unroll:
		out := *s
		out.Times, out.Body = x.node(s.Times, in), x.block(s.Body, in)
		return &out
	case *Nested:
		out := *s
		out.Body = x.block(s.Body, in)
		return &out
	case *Return:
		out := *s
		out.Value = x.node(s.Value, in)
		return &out
	}
	return s
}

// nested returns the block that a call of a macro becomes as a statement.
func (x *expander) nested(s Stmt, m *Macro, args []ast.Node, in *call) Stmt {
	body := x.expand(s.Pos(), m, args, in)
	if body == nil {
		return s
	}
	return &Nested{body, s.Pos()}
}
