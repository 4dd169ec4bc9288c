package syntax

import (
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Setting is `name = value` of the block `config = { name = value; … }`.
type Setting struct {
	// Name is in lower case and without BPFTRACE_.
	Name string
	// Value is a literal, or a word as an [ast.IdentifierNode].
	Value ast.Node
	Span  Span
}

func (p *parser) atConfig() bool { return p.tok.is("config") && p.peek().is("=") }

// config parses `config = { name = value; … }`.
func (p *parser) config(prog *Program) {
	const help = "write config = { max_map_keys = 10000; print_maps_on_exit = false }"
	from := p.tok.span.From
	if prog.Configured != (Span{}) {
		p.fail(p.tok.span, "there are two config blocks", "join them")
	}
	p.next()
	p.next()
	brace := p.tok.span
	p.expect("{", "the settings in braces", help)
	for !p.tok.is("}") {
		switch {
		case p.tok.is(";"), p.tok.is(","):
			p.next()
		case p.tok.kind == eof:
			p.lose(brace, "the block is not closed", "write } after its last setting")
		case p.tok.kind != ident:
			p.unexpected("the name of a setting", help)
		default:
			prog.Config = append(prog.Config, p.setting(help))
		}
	}
	p.next()
	prog.Configured = Span{from, p.prev.span.To}
	p.separator("a newline or ;", true)
}

func (p *parser) setting(help string) *Setting {
	s := &Setting{Name: strings.TrimPrefix(strings.ToLower(p.tok.text), "bpftrace_")}
	from := p.tok.span.From
	p.next()
	p.expect("=", "the = of the setting", help)
	if t := p.tok; t.kind == ident && !keywords[t.text] {
		p.next()
		s.Value = p.at(&ast.IdentifierNode{Value: t.text}, t.span.From)
	} else {
		s.Value = p.literal()
	}
	s.Span = Span{from, p.prev.span.To}
	return s
}

func (s *Setting) String() string { return s.Name + " = " + Print(s.Value) }

// configText returns the block in one line.
func (p *Program) configText() string {
	if len(p.Config) == 0 {
		return "config = {}"
	}
	texts := make([]string, len(p.Config))
	for i, s := range p.Config {
		texts[i] = s.String()
	}
	return "config = { " + strings.Join(texts, "; ") + " }"
}
