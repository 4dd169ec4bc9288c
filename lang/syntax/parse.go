package syntax

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// maxTokens of one program bounds the depth of its trees, and so the stack of everything that walks them.
const maxTokens = 10000

// Parse parses a program. The name stands in its errors, which are an [ErrorList].
func Parse(name, src string) (*Program, error) {
	p := &parser{lex: lexer{src: src}, source: Source{name, src}}
	prog := &Program{Source: p.source}
	p.next()
	if p.tok.kind == eof {
		p.errs = append(p.errs, p.source.Error(p.tok.span, "the program is empty", "write an expression, or probe / expression /"))
		return prog, p.errs.Err()
	}
	if _, ok := p.lex.probe(p.tok.span.From); !ok {
		p.recovering(func() { prog.Expr = p.bare() })
		return prog, p.errs.Err()
	}
	for p.tok.kind != eof {
		from := p.tok.span.From
		if !p.recovering(func() { prog.Clauses = append(prog.Clauses, p.clause()) }) {
			p.skipClause(from)
		}
	}
	return prog, p.errs.Err()
}

// Precedences, loosest first. They are those of C, with the bitwise operators above the comparisons, as everyone means
// them; `not` is that of Python; `??` that of expr: `latency ?? 0 > 1ms` compares.
const (
	precCond = iota + 1
	precOr
	precAnd
	precNot
	precEqual
	precCompare
	precRange
	precBitOr
	precBitXor
	precBitAnd
	precShift
	precAdd
	precMul
	precUnary
	precPower
	precCoalesce
	precOperand
)

var precedences = map[string]int{
	"||": precOr, "&&": precAnd, "==": precEqual, "!=": precEqual,
	"<": precCompare, "<=": precCompare, ">": precCompare, ">=": precCompare,
	"in": precCompare, "contains": precCompare, "startsWith": precCompare, "endsWith": precCompare, "matches": precCompare,
	"..": precRange, "|": precBitOr, "^": precBitXor, "&": precBitAnd, "<<": precShift, ">>": precShift,
	"+": precAdd, "-": precAdd, "*": precMul, "/": precMul, "%": precMul, "**": precPower, "??": precCoalesce,
}

// negatable operators may have `not` before them.
var negatable = map[string]bool{"in": true, "contains": true, "startsWith": true, "endsWith": true, "matches": true}

var keywords = map[string]bool{
	"and": true, "or": true, "not": true, "in": true, "contains": true, "startsWith": true, "endsWith": true, "matches": true,
	"true": true, "false": true, "nil": true,
}

type parser struct {
	lex    lexer
	source Source
	tok    token // the next one to look at
	end    int   // of the token before it
	count  int
	// open counts brackets and `?` that wait for their other half: inside, a `/` divides.
	open      int
	predicate bool // between the slashes of a clause
	errs      ErrorList
}

// bailout unwinds the parser to the clause that has a mistake, which is in errs.
type bailout struct{}

// recovering runs parse and tells whether it found no mistake.
func (p *parser) recovering(parse func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(bailout); !mine {
				panic(r)
			}
			p.open, p.predicate = 0, false
		}
	}()
	parse()
	return true
}

func (p *parser) fail(at Span, msg, help string) {
	p.errs = append(p.errs, p.source.Error(at, msg, help))
	panic(bailout{})
}

// unexpected fails because something else should stand here.
func (p *parser) unexpected(want, help string) {
	switch {
	case p.tok.kind == bad:
		p.fail(p.tok.span, p.tok.msg, p.tok.help)
	case p.tok.kind == eof:
		p.fail(Span{p.end, p.end}, "expected "+want+", found the end of the program", help)
	default:
		p.fail(p.tok.span, fmt.Sprintf("expected %s, found %q", want, p.source.Text[p.tok.span.From:p.tok.span.To]), help)
	}
}

func (p *parser) next() {
	p.end = p.tok.span.To
	p.tok = p.lex.next()
	if p.count++; p.count > maxTokens && p.tok.kind != eof {
		at := p.tok.span
		p.tok, p.lex.pos = token{span: Span{len(p.source.Text), len(p.source.Text)}}, len(p.source.Text)
		p.fail(at, fmt.Sprintf("the program is too long: more than %d words and signs", maxTokens),
			"a list of values is shorter as x in [a, b, …]")
	}
}

func (p *parser) expect(text, want, help string) {
	if !p.tok.is(text) {
		p.unexpected(want, help)
	}
	p.next()
}

// skipClause goes from the mistake in the clause at from to where the next clause begins.
func (p *parser) skipClause(from int) {
	for p.tok.kind != eof {
		_, probe := p.lex.probe(p.tok.span.From)
		if probe && p.tok.nl && p.tok.span.From > from {
			return
		}
		semicolon := p.tok.is(";")
		if !p.recovering(p.next) || semicolon {
			return
		}
	}
}

// bare parses the expression that is the whole program.
func (p *parser) bare() ast.Node {
	n := p.expr(precCond)
	if p.tok.is(";") {
		p.fail(p.tok.span, "a bare expression is the whole program", "name the probe of each clause: probe / expression /")
	}
	p.noBlock()
	if p.tok.kind != eof {
		p.unexpected("an operator or the end", "")
	}
	return n
}

// clause parses `probe, probe / predicate /` and the separator after it.
func (p *parser) clause() *Clause {
	c := &Clause{Probes: []ProbeRef{p.probe()}}
	for p.tok.is(",") {
		p.next()
		c.Probes = append(c.Probes, p.probe())
	}
	if slash := p.tok.span; p.tok.is("/") {
		p.predicate = true
		p.next()
		c.Pred = p.expr(precCond)
		if !p.tok.is("/") {
			if p.tok.kind == eof {
				p.fail(slash, "the predicate is not closed", "write / after the expression; // begins a comment")
			}
			p.unexpected("an operator or the / that closes the predicate", "")
		}
		p.predicate = false
		p.next()
	}
	p.noBlock()
	_, probe := p.lex.probe(p.tok.span.From)
	switch {
	case p.tok.is(";"):
		p.next()
	case p.tok.kind == eof || p.tok.nl || probe && c.Pred != nil:
	default:
		p.unexpected("a predicate in slashes, a newline or ;", "")
	}
	return c
}

func (p *parser) probe() ProbeRef {
	ref, ok := p.lex.probe(p.tok.span.From)
	if !ok {
		p.unexpected("a probe", "a probe is group:name, like nvme:complete_rq or nvme:*")
	}
	if ref.Name == "" {
		p.fail(ref.Span, fmt.Sprintf("expected the name of a probe after %s:", ref.Group),
			fmt.Sprintf("write it without blanks, or %s:* for all of the group", ref.Group))
	}
	p.lex.pos, p.tok.span.To = ref.Span.To, ref.Span.To
	p.next()
	return ref
}

func (p *parser) noBlock() {
	if p.tok.is("{") {
		p.fail(p.tok.span, "actions in braces are not available", "leave the block out: each event that passes the filter is printed")
	}
}

// expr parses an expression of operators that bind at least as tight as prec.
func (p *parser) expr(prec int) ast.Node {
	from := p.tok.span.From
	left := p.operand()
	for {
		if p.tok.is("?") && prec <= precCond {
			left = p.conditional(left, from)
			continue
		}
		operator, negated := p.infix()
		at := precedences[operator]
		if at == 0 || at < prec {
			return left
		}
		if negated {
			p.next()
		}
		p.next()
		next := at + 1
		if operator == "**" { // groups to the right
			next = at
		}
		right := p.expr(next)
		left = p.at(&ast.BinaryNode{Operator: operator, Left: left, Right: right}, from)
		if negated {
			left = p.at(&ast.UnaryNode{Operator: "!", Node: left}, from)
		}
	}
}

// infix returns the operator at hand, under the name that it has in the tree, or "". The operator of `not in` is `in`,
// negated.
func (p *parser) infix() (operator string, negated bool) {
	if p.tok.kind != op && p.tok.kind != ident {
		return "", false
	}
	switch p.tok.text {
	case "and":
		return "&&", false
	case "or":
		return "||", false
	case "not":
		ahead := p.lex
		if t := ahead.next(); t.kind == ident && negatable[t.text] {
			return t.text, true
		}
		return "", false
	case "/":
		if p.closesPredicate() {
			return "", false
		}
	}
	return p.tok.text, false
}

// closesPredicate tells whether the `/` at hand ends the predicate: nothing is open, and what follows can only follow a
// predicate.
func (p *parser) closesPredicate() bool {
	if !p.predicate || p.open > 0 {
		return false
	}
	ahead := p.lex
	t := ahead.next()
	_, probe := ahead.probe(t.span.From)
	return t.kind == eof || t.nl || probe || t.is("{") || t.is(",") || t.is(";")
}

func (p *parser) conditional(cond ast.Node, from int) ast.Node {
	p.next()
	p.open++
	yes := p.expr(precCond)
	p.open--
	p.expect(":", "the : of the condition", "write condition ? a : b")
	no := p.expr(precCond)
	return p.at(&ast.ConditionalNode{Ternary: true, Cond: cond, Exp1: yes, Exp2: no}, from)
}

// operand parses a literal, a name, an expression in brackets, or a prefix operator and its operand.
func (p *parser) operand() ast.Node {
	t := p.tok
	from := t.span.From
	switch {
	case t.kind == number:
		p.next()
		return p.at(&ast.ConstantNode{Value: Int{t.num, t.text}}, from)
	case t.kind == str:
		p.next()
		return p.at(&ast.StringNode{Value: t.text}, from)
	case t.is("true"), t.is("false"):
		p.next()
		return p.at(&ast.BoolNode{Value: t.text == "true"}, from)
	case t.is("nil"):
		p.next()
		return p.at(&ast.NilNode{}, from)
	case t.is("-"), t.is("!"), t.is("~"):
		p.next()
		return p.at(&ast.UnaryNode{Operator: t.text, Node: p.expr(precUnary)}, from)
	case t.is("not"):
		p.next()
		return p.at(&ast.UnaryNode{Operator: "!", Node: p.expr(precNot)}, from)
	case t.is("("):
		p.next()
		p.open++
		n := p.expr(precCond)
		p.open--
		p.expect(")", "an operator or )", "")
		return n
	case t.is("["):
		return p.array()
	case t.kind == ident && !keywords[t.text]:
		p.next()
		if p.tok.is("(") {
			p.fail(t.span, fmt.Sprintf("functions are not available: %s(…)", t.text), "")
		}
		return p.at(&ast.IdentifierNode{Value: t.text}, from)
	}
	p.unexpected("an expression", "")
	return nil
}

func (p *parser) array() ast.Node {
	from := p.tok.span.From
	p.next()
	p.open++
	array := &ast.ArrayNode{}
	for !p.tok.is("]") {
		array.Nodes = append(array.Nodes, p.expr(precCond))
		if !p.tok.is(",") {
			break
		}
		p.next()
	}
	p.open--
	p.expect("]", "a comma or ]", "")
	return p.at(array, from)
}

// at says that n reaches from the byte from to the last token.
func (p *parser) at(n ast.Node, from int) ast.Node {
	n.SetLocation(file.Location{From: from, To: p.end})
	return n
}
