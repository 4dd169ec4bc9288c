package syntax

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// maxTokens of a program, with the files that it imports, limits the depth of its trees, and so the stack of everything that walks them.
const maxTokens = 10000

// Precedences, loosest first. They are C's, with the bitwise operators above the comparisons. `not` is Python's; `??` is expr's:
// `latency ?? 0 > 1ms` compares.
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

// negatable operators may follow `not`.
var negatable = map[string]bool{"in": true, "contains": true, "startsWith": true, "endsWith": true, "matches": true}

var keywords = map[string]bool{
	"and": true, "or": true, "not": true, "in": true, "contains": true, "startsWith": true, "endsWith": true, "matches": true,
	"true": true, "false": true, "nil": true,
}

// statements are the words that begin a statement.
var statements = map[string]bool{"if": true, "for": true, "return": true, "while": true, "unroll": true, "let": true, "break": true, "continue": true}

type parser struct {
	lex      lexer
	text     Text
	tok      token // the current one
	prev     token // the one before it
	count    int
	comments []Comment // up to tok
	// open counts brackets and `?` that wait for their other half, including those around a mistake: inside, a `/` divides. calls
	// counts the brackets of calls: inside, `#` is an operand. blocks counts the blocks around it: inside, a brace begins a value.
	open, calls, blocks int
	predicate           bool // between the slashes of a clause
	lost                bool // the mistake leaves no way to continue within the clause
	errs                ErrorList
}

// bailout unwinds the parser to the statement or clause with a mistake, which is in errs.
type bailout struct{}

// attempt runs parse and reports whether it found no mistake.
func (p *parser) attempt(parse func()) (ok bool) {
	calls, blocks := p.calls, p.blocks
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(bailout); !mine {
				panic(r)
			}
			p.calls, p.blocks, p.predicate = calls, blocks, false
		}
	}()
	parse()
	return true
}

func (p *parser) fail(at Span, msg, help string) { p.abandon(p.text.Error(at, msg, help)) }

// abandon gives up the current statement or clause because of a mistake.
func (p *parser) abandon(mistake *Error) {
	if len(p.errs) == MaxErrors {
		p.stop()
	}
	p.errs = append(p.errs, mistake)
	panic(bailout{})
}

// lose fails with the whole clause.
func (p *parser) lose(at Span, msg, help string) {
	p.lost = true
	p.fail(at, msg, help)
}

// stop goes to the end of the text.
func (p *parser) stop() {
	p.lost = true
	end := len(p.text.Content)
	p.tok, p.lex.pos = token{span: Span{end, end}}, end
}

// unexpected fails because something else should stand here.
func (p *parser) unexpected(want, help string) {
	help = cmp.Or(p.hint(), help)
	switch {
	case p.tok.msg != "":
		p.fail(p.tok.span, p.tok.msg, p.tok.help)
	case p.tok.kind == eof:
		end := p.prev.span.To
		p.fail(Span{end, end}, "expected "+want+", found the end of the program", help)
	default:
		p.fail(p.tok.span, fmt.Sprintf("expected %s, found %q", want, p.text.Content[p.tok.span.From:p.tok.span.To]), help)
	}
}

// hint returns advice about the current token, which is misplaced, or "".
func (p *parser) hint() string {
	const regexps = `for a regular expression, write x matches "^a" or x not matches "^a"`
	switch t := p.tok; {
	case (t.is("=") || t.is("!")) && p.peek().is("~"), t.is("~"):
		return regexps
	case t.kind == op:
		return hints[t.text]
	case t.kind == ident && p.prev.kind == number && units[t.text] != 0 && isDigit(p.prev.text[len(p.prev.text)-1]):
		return fmt.Sprintf("write %s%s without a blank", p.prev.text, t.text)
	}
	return ""
}

// hints is advice about operators.
var hints = map[string]string{
	"=": "to compare, write ==",
	"#": "# begins a comment only at the start of a line; elsewhere // does",
}

func (p *parser) next() {
	p.prev = p.tok
	p.tok = p.lex.next()
	p.comments = append(p.comments, p.tok.comments...)
	if p.count++; p.count > maxTokens && p.tok.kind != eof {
		at := p.tok.span
		p.stop()
		p.fail(at, fmt.Sprintf("the program is too long: more than %d words and signs", maxTokens),
			"for a list of values, write x in [a, b, …]")
	}
}

// peek returns the token after the current one.
func (p *parser) peek() token {
	ahead := p.lex
	return ahead.next()
}

func (p *parser) expect(text, want, help string) {
	if !p.tok.is(text) {
		p.unexpected(want, help)
	}
	p.next()
}

func (p *parser) expression() ast.Node { return p.expr(precCond) }

// expr parses an expression of operators that bind at least as tightly as prec.
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
		if operator == "**" { // it groups to the right
			next = at
		}
		right := p.expr(next)
		left = p.at(&ast.BinaryNode{Operator: operator, Left: left, Right: right}, from)
		if negated {
			left = p.at(&ast.UnaryNode{Operator: "!", Node: left}, from)
		}
	}
}

// infix returns the current operator, under its name in the tree, or "". The operator of `not in` is `in`, negated.
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
		if t := p.peek(); t.kind == ident && negatable[t.text] {
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

// closesPredicate reports whether the current `/` ends the predicate: nothing is open, and what follows can only follow a
// predicate.
func (p *parser) closesPredicate() bool {
	if !p.predicate || p.open > 0 {
		return false
	}
	ahead := p.lex
	t := ahead.next()
	return t.kind == eof || t.nl || p.isProbe(ahead, t) || t.is("{") || t.is(",") || t.is(";")
}

func (p *parser) conditional(cond ast.Node, from int) ast.Node {
	p.next()
	p.open++
	yes := p.expression()
	p.open--
	p.expect(":", "the : of the condition", "write condition ? a : b")
	no := p.expression()
	return p.at(&ast.ConditionalNode{Ternary: true, Cond: cond, Exp1: yes, Exp2: no}, from)
}

// operand parses a literal, a name, a map, a call, brackets, or a prefix operator with its operand; and members after it.
func (p *parser) operand() ast.Node {
	from := p.tok.span.From
	n := p.primary()
	for {
		t := p.tok
		switch {
		case t.kind == element && t.span.From == p.prev.span.To:
			p.next()
			n = p.at(&Member{Of: n, Index: int(t.num)}, from)
		case t.is(".") && !t.nl && t.span.From == p.prev.span.To:
			p.next()
			if p.tok.kind != ident || p.tok.span.From != t.span.To {
				p.unexpected("the number or the name of a member", "in for ($kv : @map), $kv.0 is the key and $kv.1 the value")
			}
			p.next()
			for name := range strings.SplitSeq(p.prev.text, ".") {
				n = p.at(&Member{Of: n, Name: name}, from)
			}
		case t.is("->") && isArgs(n) && p.peek().kind == ident:
			p.next()
			n = p.at(&ast.IdentifierNode{Value: "args." + p.tok.text}, from)
			p.next()
		case t.is("->"):
			p.fail(t.span, "there are no pointers to follow", "write the field alone: trace -lv lists the fields")
		case t.counts() && !t.nl && assignable(n):
			p.next()
			return p.at(&Step{Target: n, Op: t.text}, from)
		case t.is("[") && !t.nl && p.peek().kind != number:
			p.fail(t.span, "only a map has a key in [ ]", "write .0, .1 … for the members of a tuple")
		case t.is("[") && !t.nl:
			n = p.indexed(n, from)
		default:
			return n
		}
	}
}

func (p *parser) primary() ast.Node {
	t := p.tok
	from := t.span.From
	switch {
	case t.kind == number:
		p.next()
		return p.at(&ast.ConstantNode{Value: Int{t.num, t.text}}, from)
	case t.kind == str:
		p.next()
		return p.at(&ast.StringNode{Value: t.text}, from)
	case t.kind == variable:
		p.next()
		return p.at(&ast.IdentifierNode{Value: t.text}, from)
	case t.kind == mapname:
		return p.mapRef()
	case t.is("true"), t.is("false"):
		p.next()
		return p.at(&ast.BoolNode{Value: t.text == "true"}, from)
	case t.is("nil"):
		p.next()
		return p.at(&ast.NilNode{}, from)
	case t.is("#") && p.calls > 0:
		p.next()
		return p.at(&ast.PointerNode{}, from)
	case t.is("-"), t.is("!"), t.is("~"):
		p.next()
		return p.at(&ast.UnaryNode{Operator: t.text, Node: p.expr(precUnary)}, from)
	case t.is("not"):
		p.next()
		return p.at(&ast.UnaryNode{Operator: "!", Node: p.expr(precNot)}, from)
	case t.is("*"), t.is("&"):
		p.fail(t.span, "there are no pointers to follow", "a field holds the value itself: trace -lv lists the fields")
	case t.is("("):
		return p.brackets()
	case t.is("{") && (p.blocks > 0 || p.predicate):
		return p.blockExpr()
	case t.counts():
		return p.step()
	case t.is("["):
		return p.at(&ast.ArrayNode{Nodes: p.list("]", p.expression)}, from)
	case t.kind == ident && !keywords[t.text]:
		return p.name()
	}
	p.unexpected("an expression", "")
	return nil
}

// name parses the name of a field or a value, or a call.
func (p *parser) name() ast.Node {
	t := p.tok
	called := p.peek()
	switch {
	case moments[t.text] != "":
		p.fail(t.span, t.text+" is a probe", "write event."+t.text+" for a field of that name")
	case statements[t.text] && called.is("("):
		p.fail(t.span, t.text+" begins a statement, which must be in a block", "write probe { … }, or c ? a : b for a choice in an expression")
	case t.text == "struct":
		p.noTypes()
	case t.text == "str" && called.is("("):
		p.noPointer()
	}
	p.next()
	n := p.at(&ast.IdentifierNode{Value: t.text}, t.span.From)
	if called.is("!") && called.span.From == t.span.To { // a call of a macro may have it
		ahead := p.lex
		if bracket := ahead.next(); bracket.is("(") {
			p.next()
			called = bracket
		}
	}
	if called.is("(") && !called.nl {
		return p.call(n)
	}
	return n
}

// noPointer fails at str(arg1), whose argument is the address of a string.
func (p *parser) noPointer() {
	ahead := p.lex
	ahead.next()
	arg := ahead.next()
	digits, isArg := strings.CutPrefix(strings.TrimPrefix(arg.text, "event."), "arg")
	if arg.kind == ident && isArg && digits != "" && strings.Trim(digits, "0123456789") == "" {
		p.fail(arg.span, fmt.Sprintf("trace does not read what %s points to", arg.text), "it is a number: an address in the memory of the process")
	}
}

// noTypes fails at the word struct.
func (p *parser) noTypes() {
	p.fail(p.tok.span, "C types are not available", "trace -lv lists the fields of each probe")
}

func (p *parser) call(callee ast.Node) *ast.CallNode {
	p.calls++
	n := &ast.CallNode{Callee: callee, Arguments: p.list(")", p.argument)}
	p.calls--
	p.at(n, SpanOf(callee).From)
	return n
}

// argument parses an argument of a call: an expression, `name = expression`, or a decimal fraction.
func (p *parser) argument() ast.Node { return p.named(p.value) }

// element parses an element of a key: an expression, or `name = expression`.
func (p *parser) element() ast.Node { return p.named(p.expression) }

// named parses a value that may have a name.
func (p *parser) named(value func() ast.Node) ast.Node {
	t := p.tok
	if t.kind == ident && isName(t.text) && !keywords[t.text] && p.peek().is("=") {
		p.next()
		p.next()
		return p.at(&NamedArg{Name: t.text, Value: value()}, t.span.From)
	}
	return value()
}

// value parses an expression or a decimal fraction, which is not an operand.
func (p *parser) value() ast.Node {
	t := p.tok
	if after := p.peek(); t.kind != fraction || !after.is(",") && !after.is(")") {
		return p.expression()
	}
	p.next()
	v, _ := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64) // the lexer has checked it, and it is too short to overflow
	return p.at(&ast.ConstantNode{Value: Float{v, t.text}}, t.span.From)
}

// mapRef parses `@x`, `@x[a, b]` or `@x[name = a, b]`.
func (p *parser) mapRef() *MapRef {
	t := p.tok
	p.next()
	n := &MapRef{Name: t.text}
	if p.tok.is("[") && !p.tok.nl {
		if p.peek().is("]") {
			p.fail(p.tok.span, "the key is empty", "write "+t.text+" for a map without keys")
		}
		n.Key = p.list("]", p.element)
	}
	p.at(n, t.span.From)
	return n
}

// isNamed reports whether an element has a name.
func isNamed(n ast.Node) bool {
	_, named := n.(*NamedArg)
	return named
}

// brackets parses an expression in brackets, a tuple, a record or a cast.
func (p *parser) brackets() ast.Node {
	from := p.tok.span.From
	if n := p.cast(); n != nil {
		return n
	}
	p.next()
	p.open++
	var elems []ast.Node
	comma := true // also after the last element: (1,)
	for comma && !p.tok.is(")") {
		elems = append(elems, p.element())
		if comma = p.tok.is(","); comma {
			p.next()
		}
	}
	p.open--
	if len(elems) == 1 && !comma && !isNamed(elems[0]) {
		p.expect(")", "an operator or )", "")
		return elems[0]
	}
	p.expect(")", "a comma or )", "")
	return p.at(&Tuple{Elems: elems}, from)
}

// list parses items separated by commas, from the current bracket to the closing one.
func (p *parser) list(closing string, item func() ast.Node) []ast.Node {
	p.next()
	p.open++
	var all []ast.Node
	for !p.tok.is(closing) {
		all = append(all, item())
		if !p.tok.is(",") {
			break
		}
		p.next()
	}
	p.open--
	p.expect(closing, "a comma or "+closing, "")
	return all
}

// at sets the place of n: from the byte from to the last token.
func (p *parser) at(n ast.Node, from int) ast.Node {
	n.SetLocation(file.Location{From: from, To: p.prev.span.To})
	return n
}
