package syntax

import (
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Macro is `macro name(x, $v, @m) { … }`. [Expand] puts its body in the place of each call.
type Macro struct {
	Name string
	// Params are names of expressions, and of variables and maps with their $ and @.
	Params []string
	Body   *Block
	Span   Span
}

func (p *parser) atMacro() bool {
	if !p.tok.is("macro") {
		return false
	}
	name := p.peek()
	return name.kind == ident && !keywords[name.text]
}

// macro parses `macro name(x, $v, @m) { … }`, where the brackets may be missing.
func (p *parser) macro() *Macro {
	const help = "write macro name(x, $v, @m) { … }"
	from := p.tok.span.From
	p.next()
	m := &Macro{Name: p.tok.text}
	if !isName(m.Name) {
		p.fail(p.tok.span, "the name of a macro has no dots", help)
	}
	p.next()
	if p.tok.is("(") {
		p.next()
		p.open++
		for !p.tok.is(")") {
			if p.tok.kind != ident && p.tok.kind != variable && p.tok.kind != mapname {
				p.unexpected("a param of the macro", help)
			}
			m.Params = append(m.Params, p.tok.text)
			p.next()
			if !p.tok.is(",") {
				break
			}
			p.next()
		}
		p.open--
		p.expect(")", "a comma or )", help)
	}
	m.Body = p.block()
	m.Span = Span{from, p.prev.span.To}
	p.separator("a newline or ;", true)
	return m
}

func (m *Macro) head() string { return "macro " + m.Name + "(" + strings.Join(m.Params, ", ") + ")" }

// value splits the body into its statements and the expression that is its value; nil if it has none.
func (b *Block) value() (stmts []Stmt, value ast.Node) {
	n := len(b.Stmts)
	if n == 0 {
		return nil, nil
	}
	switch last := b.Stmts[n-1].(type) {
	case *Discard:
		if !last.Meant {
			return b.Stmts[:n-1], last.Value
		}
	case *Assign:
		if last.step != nil {
			return b.Stmts[:n-1], last.step
		}
	case *Call:
		return b.Stmts[:n-1], last.Call
	}
	return b.Stmts, nil
}
