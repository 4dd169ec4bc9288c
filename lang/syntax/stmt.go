package syntax

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// Declare is `let $x`, `let $x = e` or `let $x: uint16 = e`: a variable of this block, whatever the blocks around it have.
type Declare struct {
	Var   string // with its dollar
	Type  Type   // if the values do not choose it
	Value ast.Node
	Span  Span
}

// Nested is a block among the statements of another one.
type Nested struct {
	Body *Block
	Span Span
}

// While is `while (cond) { … }`.
type While struct {
	Cond ast.Node
	Body *Block
	Span Span
}

// Unroll is `unroll (n) { … }`, which runs n times.
type Unroll struct {
	Times ast.Node
	Body  *Block
	Span  Span
}

// Jump is break or continue.
type Jump struct {
	Word string
	Span Span
}

// Discard is an expression whose value is not used: `_ = e`, or e alone. A call that is a statement is a [Call].
type Discard struct {
	Value ast.Node
	Meant bool // written with _ =
	Span  Span
}

// Pos returns where the statement is.
func (s *Declare) Pos() Span { return s.Span }

// Pos returns where the statement is.
func (s *Nested) Pos() Span { return s.Span }

// Pos returns where the statement is.
func (s *While) Pos() Span { return s.Span }

// Pos returns where the statement is.
func (s *Unroll) Pos() Span { return s.Span }

// Pos returns where the statement is.
func (s *Jump) Pos() Span { return s.Span }

// Pos returns where the statement is.
func (s *Discard) Pos() Span { return s.Span }

// Step is `x++`, `++x`, `x--` or `--x` as a value: what x was before, or what it is then.
type Step struct {
	node
	Target ast.Node // as in an [Assign]
	Op     string   // ++ or --
	Before bool     // the operator stands before the target
}

// BlockExpr is `{ statement; …; value }`, whose variables are its own.
type BlockExpr struct {
	node
	Body  *Block
	Value ast.Node
}

func (n *Step) String() string      { return Print(n) }
func (n *BlockExpr) String() string { return Print(n) }

// inner returns the statements of a statement's blocks.
func inner(s Stmt) []*Block {
	switch s := s.(type) {
	case *If:
		return []*Block{s.Then, s.Else}
	case *For:
		return []*Block{s.Body}
	case *While:
		return []*Block{s.Body}
	case *Unroll:
		return []*Block{s.Body}
	case *Nested:
		return []*Block{s.Body}
	}
	return nil
}

// Exprs returns the expressions of a statement, without the expressions of its blocks.
func Exprs(s Stmt) []ast.Node {
	switch s := s.(type) {
	case *Assign:
		return present(s.Target, s.Value)
	case *Declare:
		return present(s.Type.Like, s.Value)
	case *If:
		return present(s.Cond)
	case *For:
		return present(s.In)
	case *While:
		return present(s.Cond)
	case *Unroll:
		return present(s.Times)
	case *Call:
		return present(s.Call)
	case *Discard:
		return present(s.Value)
	case *Return:
		return present(s.Value)
	}
	return nil
}

func present(nodes ...ast.Node) (all []ast.Node) {
	for _, n := range nodes {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// declare parses `let $x: type = value`.
func (p *parser) declare(from int) Stmt {
	p.next()
	s := &Declare{Var: p.tok.text}
	p.next()
	if p.tok.is(":") {
		p.next()
		s.Type = p.typ()
	}
	if p.tok.is("=") {
		p.next()
		s.Value = p.expression()
	}
	s.Span = Span{from, p.prev.span.To}
	return s
}

// counted parses `while (cond) { … }` or `unroll (n) { … }`.
func (p *parser) counted(from int, word string) Stmt {
	p.next()
	n := p.expression()
	body := p.block()
	span := Span{from, p.prev.span.To}
	if word == "while" {
		return &While{n, body, span}
	}
	return &Unroll{n, body, span}
}

// valueStmt parses a statement that begins with an expression: an assignment, a call, or a value that is not used.
func (p *parser) valueStmt(from int) Stmt {
	n := p.expression()
	switch e := n.(type) {
	case *Step:
		return &Assign{Target: e.Target, Op: e.Op, Span: Span{from, p.prev.span.To}, step: e}
	case *ast.CallNode:
		return &Call{e, Span{from, p.prev.span.To}}
	}
	switch {
	case assignable(n) && p.tok.kind == op && assignments[p.tok.text]:
		return p.assign(n, from)
	case assignable(n) && !p.atStmtEnd():
		p.unexpected("an assignment", fmt.Sprintf("write %s = …, or use += -= ++ --", Print(n)))
	}
	return &Discard{Value: n, Span: Span{from, p.prev.span.To}}
}

// discard parses `_ = e`.
func (p *parser) discard(from int) Stmt {
	p.next()
	p.next()
	return &Discard{p.expression(), true, Span{from, p.prev.span.To}}
}

// assign parses the rest of an assignment.
func (p *parser) assign(target ast.Node, from int) Stmt {
	s := &Assign{Target: target, Op: p.tok.text}
	p.next()
	s.Value = p.expression()
	s.Span = Span{from, p.prev.span.To}
	return s
}

// blockExpr parses a block that is a value.
func (p *parser) blockExpr() ast.Node {
	from := p.tok.span.From
	p.open++
	body := p.block()
	p.open--
	if stmts, value := body.value(); value != nil {
		return p.at(&BlockExpr{Body: &Block{stmts, body.Span}, Value: value}, from)
	}
	p.fail(Span{from, p.prev.span.To}, "the block has no value", "end it with an expression: { let $x = 1; $x + 1 }")
	return nil
}

// step parses ++ or -- before a target.
func (p *parser) step() ast.Node {
	t := p.tok
	p.next()
	if p.tok.kind != mapname && p.tok.kind != variable {
		p.unexpected("a map or a variable", "")
	}
	return p.at(&Step{Target: p.primary(), Op: t.text, Before: true}, t.span.From)
}

// indexed parses `x[0]`, which is x.0.
func (p *parser) indexed(of ast.Node, from int) ast.Node {
	index := p.size()
	return p.at(&Member{Of: of, Index: index}, from)
}

// size parses `[4]` and `[2 * 2]`: a number that is known now.
func (p *parser) size() int {
	p.next()
	at := p.tok.span
	n, known := natural(p.expr(precAdd))
	at.To = p.prev.span.To
	switch {
	case !known:
		p.fail(at, "this must be a number that is known before the program runs", "the members of a tuple are [0], [1] …")
	case n > maxIndex:
		p.fail(at, "no tuple has so many elements", "")
	}
	p.expect("]", "]", "the members of a tuple are [0], [1] …")
	return int(n)
}

// natural computes sums, differences and products of literals.
func natural(n ast.Node) (value uint64, known bool) {
	switch n := n.(type) {
	case *ast.ConstantNode:
		i, is := n.Value.(Int)
		return i.Value, is
	case *ast.BinaryNode:
		left, knownLeft := natural(n.Left)
		right, knownRight := natural(n.Right)
		if !knownLeft || !knownRight {
			return 0, false
		}
		switch n.Operator {
		case "+":
			return left + right, true
		case "-":
			return left - right, left >= right
		case "*":
			return left * right, true
		}
	}
	return 0, false
}

// maxIndex bounds the number of a member: a tuple has less.
const maxIndex = 1<<16 - 1

// isArgs reports whether an expression is the word args, whose members are fields.
func isArgs(n ast.Node) bool {
	word, ok := n.(*ast.IdentifierNode)
	return ok && word.Value == "args"
}

// Type is a type that the program names. The names are bpftrace's: int8 … int64, uint8 … uint64, their C names like uint8_t, and
// int, which is int64.
type Type struct {
	Name string   // normalised to int8 … uint64, bool or string; "" without a type
	Like ast.Node // of typeof(x), which is never evaluated; otherwise nil
	// Array is how many elements of the type an array has: OfValue for as many as the value fills, 0 for no array.
	Array int
}

// OfValue is the size of `uint8[]`.
const OfValue = -1

// Given reports whether there is a type.
func (t Type) Given() bool { return t.Name != "" || t.Like != nil }

// String returns the type as written.
func (t Type) String() string {
	if t.Like != nil {
		return "typeof(" + Print(t.Like) + ")"
	}
	switch t.Array {
	case 0:
		return t.Name
	case OfValue:
		return t.Name + "[]"
	}
	return fmt.Sprintf("%s[%d]", t.Name, t.Array)
}

// casts maps the type of a cast to its name in the tree.
var casts = map[string]string{
	"int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "int": "int32",
	"uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
	"int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64",
	"uint8_t": "uint8", "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64",
	"bool": "bool", "string": "string", "long": "int64", "short": "int16",
}

// TypeCalled returns the type of that name, as a cast has it.
func TypeCalled(name string) Type { return Type{Name: casts[name]} }

const typeOf = "typeof"

// cast parses `(uint8)x` and `(typeof(y))x`. It returns nil if the current bracket does not begin a cast.
func (p *parser) cast() ast.Node {
	from := p.tok.span.From
	ahead := p.lex
	word, after := ahead.next(), ahead.next()
	switch {
	case word.kind != ident:
		return nil
	case casts[word.text] != "" && (after.is(")") || after.is("[")), word.text == typeOf && after.is("("):
	default:
		return nil
	}
	p.next()
	to := p.typ()
	if p.tok.is("[") && to.Name != "" {
		to.Array = p.arraySize()
	}
	p.expect(")", ")", "")
	return p.at(&Cast{To: to, Of: p.expr(precUnary)}, from)
}

// arraySize parses the `[4]` or `[]` of an array's type.
func (p *parser) arraySize() int {
	if p.peek().is("]") {
		p.next()
		p.next()
		return OfValue
	}
	at := p.tok.span
	n := p.size()
	if n == 0 {
		p.fail(Span{at.From, p.prev.span.To}, "an array has at least one element", "")
	}
	return n
}

// typ parses the name of a type, or typeof(x) with a value or the name of a type.
func (p *parser) typ() Type {
	word := p.tok
	if word.kind == ident && word.text == typeOf {
		p.next()
		p.expect("(", "(", "")
		p.open++
		of := p.expression()
		p.open--
		p.expect(")", ")", "")
		if name, is := of.(*ast.IdentifierNode); is && casts[name.Value] != "" {
			return TypeCalled(name.Value)
		}
		return Type{Like: of}
	}
	if word.kind != ident || casts[word.text] == "" {
		p.unexpected("a type", "types are bool, string, int8 … int64, uint8 … uint64 and typeof(x)")
	}
	p.next()
	return TypeCalled(word.text)
}
