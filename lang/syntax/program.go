package syntax

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// Parse parses a program. name is its name in errors, which are an [ErrorList].
func Parse(name, src string) (*Program, error) { return parse(Text{Name: name, Content: src}, 0, 0) }

// parse parses the file that begins at from, the last one of the text. The files before it have so many words.
func parse(text Text, from, words int) (*Program, error) {
	p := &parser{lex: lexer{src: text.Content, pos: from}, text: text, count: words}
	prog := &Program{Text: p.text}
	p.next()
	if p.tok.kind == eof {
		p.errs = append(p.errs, p.text.Error(p.tok.span, "the program is empty", "write an expression, or probe / expression /"))
		return prog, p.errs.Err()
	}
	if p.atItem() {
		p.items(prog)
	} else {
		p.attempt(func() { p.bare(prog) })
	}
	prog.Comments, prog.words = p.comments, p.count
	return prog, p.errs.Err()
}

// bare parses the expression that is the whole program, and its body.
func (p *parser) bare(prog *Program) {
	if p.tok.is("{") {
		p.fail(p.tok.span, "a body needs a probe or an expression before it", "write probe { … } or expression { … }")
	}
	prog.Expr = p.expression()
	if p.tok.is("{") {
		prog.Body = p.block()
	}
	switch {
	case p.tok.kind == eof:
	case p.tok.is(";"), prog.Body != nil:
		p.fail(p.tok.span, "a bare expression is the whole program", "name the probe of each clause: probe / expression /")
	case p.tok.assigns() && assignable(prog.Expr):
		p.fail(p.tok.span, "an assignment must be in a body", "write probe { "+Print(prog.Expr)+" "+p.tok.text+" … }, or == to compare")
	default:
		p.unexpected("an operator or the end", "")
	}
}

// items parses params, lets and clauses.
func (p *parser) items(prog *Program) {
	for p.tok.kind != eof {
		from := p.tok.span.From
		if !p.attempt(func() { p.item(prog) }) {
			p.lost, p.open = false, 0
			p.skipItem(from)
		}
	}
}

func (p *parser) item(prog *Program) {
	switch {
	case p.atParam():
		prog.Params = append(prog.Params, p.param())
	case p.atLet():
		prog.Lets = append(prog.Lets, p.let())
	case p.atMacro():
		prog.Macros = append(prog.Macros, p.macro())
	case p.atConfig():
		p.config(prog)
	case p.atImport():
		prog.Imports = append(prog.Imports, p.importing())
	case p.atForeignItem():
		p.noTypes()
	default:
		prog.Clauses = append(prog.Clauses, p.clause())
	}
}

// atItem reports whether the current token can only begin a param, a let or a clause.
func (p *parser) atItem() bool {
	return p.atProbe() || p.atMacro() || p.atParam() || p.atLet() || p.atConfig() || p.atImport() || p.atForeignItem()
}

// atForeignItem reports whether the current token begins an item that only bpftrace has.
func (p *parser) atForeignItem() bool { return p.tok.is("struct") }

func (p *parser) atParam() bool {
	if !p.tok.is("param") {
		return false
	}
	name := p.peek()
	return name.kind == ident && !keywords[name.text]
}

func (p *parser) atLet() bool { return p.tok.is("let") && p.peek().kind == mapname }

// importing parses `import "file"`.
func (p *parser) importing() *Import {
	from := p.tok.span.From
	p.next()
	i := &Import{Path: p.tok.text}
	p.next()
	i.Span = Span{from, p.prev.span.To}
	p.separator("a newline or ;", false)
	return i
}

func (p *parser) atImport() bool { return p.tok.is("import") && p.peek().kind == str }

// skipItem skips from the mistake in the item at from to the start of the next one.
func (p *parser) skipItem(from int) {
	for depth := 0; p.tok.kind != eof; {
		if p.tok.nl && p.tok.span.From > from && p.atItem() {
			return
		}
		done := false
		switch {
		case p.tok.is("{"):
			depth++
		case p.tok.is("}"):
			depth--
			done = depth <= 0
		case p.tok.is(";"):
			done = depth == 0
		}
		if !p.attempt(p.next) || done {
			break
		}
	}
	if p.prev.is("}") && p.tok.is(";") {
		p.attempt(p.next)
	}
}

// param parses `param name = literal "help"`. A letter and a comma may precede the name.
func (p *parser) param() *Param {
	from := p.tok.span.From
	p.next()
	param := &Param{Name: p.tok.text}
	if p.peek().is(",") {
		if param.Short = p.tok.text; len(param.Short) > 1 {
			p.fail(p.tok.span, "the short flag must be one letter", "write param i, interval = 1")
		}
		p.next()
		p.next()
		param.Name = p.tok.text
	}
	if p.tok.kind != ident {
		p.unexpected("the name of the param", "write param i, interval = 1")
	}
	if !isName(param.Name) {
		p.fail(p.tok.span, "the name of a param cannot have dots", "it becomes a flag: --name=VALUE")
	}
	p.next()
	p.expect("=", "the = of the param", "write param name = 10ms \"help\"")
	param.Default = p.literal()
	if p.tok.kind == str {
		param.Help = p.tok.text
		p.next()
	}
	param.Span = Span{from, p.prev.span.To}
	p.separator("the help in quotes, a newline or ;", false)
	return param
}

// literal parses a number, which may be negative, a string, true or false.
func (p *parser) literal() ast.Node {
	t := p.tok
	switch {
	case t.is("-") && p.peek().kind == number:
		p.next()
		return p.at(&ast.UnaryNode{Operator: "-", Node: p.primary()}, t.span.From)
	case t.kind == number, t.kind == str, t.is("true"), t.is("false"):
		return p.primary()
	}
	p.unexpected("a literal", "write a number, duration, size, string, true or false")
	return nil
}

// let parses `let @x = lru(10000)`.
func (p *parser) let() *Let {
	const help = "write let @x = lru(10000)"
	from := p.tok.span.From
	p.next()
	let := &Let{Map: p.tok.text}
	p.next()
	p.expect("=", "the = of the map", help)
	if let.Kind = p.tok.text; p.tok.kind != ident {
		p.unexpected("the kind of the map", help)
	}
	p.next()
	p.expect("(", "the number of keys in brackets", help)
	if p.tok.kind != number {
		p.unexpected("the number of keys", help)
	}
	let.MaxKeys = p.primary()
	p.expect(")", ")", help)
	let.Span = Span{from, p.prev.span.To}
	p.separator("a newline or ;", false)
	return let
}

// clause parses `probe, probe / predicate / { … }` and the separator after it. Newlines may stand between its elements.
func (p *parser) clause() *Clause {
	from := p.tok.span.From
	c := &Clause{Probes: []ProbeRef{p.probe()}}
	for p.tok.is(",") {
		p.next()
		c.Probes = append(c.Probes, p.probe())
	}
	want := "a predicate in slashes, a body in braces, a newline or ;"
	if p.tok.is("/") {
		c.Pred = p.slashes()
		want = "a body in braces, a newline or ;"
	}
	if p.tok.is("{") {
		c.Body = p.block()
	}
	c.Span = Span{from, p.prev.span.To}
	p.separator(want, c.Body != nil || c.Pred != nil && p.atProbe())
	return c
}

// slashes parses a predicate.
func (p *parser) slashes() ast.Node {
	slash := p.tok.span
	p.predicate = true
	p.next()
	pred := p.expression()
	if !p.tok.is("/") {
		if p.tok.kind == eof {
			p.fail(slash, "the predicate is not closed", "write / after the expression (// begins a comment)")
		}
		p.unexpected("an operator or the / that closes the predicate", "")
	}
	p.predicate = false
	p.next()
	return pred
}

// separator parses the separator between items: a semicolon or a newline. It may be missing if ok.
func (p *parser) separator(want string, ok bool) {
	switch {
	case p.tok.is(";"):
		p.next()
	case p.tok.kind == eof || p.tok.nl || ok:
	default:
		p.unexpected(want, "")
	}
}

// block parses `{ statement; … }`. A mistake in a statement ends only that statement.
func (p *parser) block() *Block {
	brace := p.tok.span
	p.expect("{", "a block in braces", "")
	p.blocks++
	b := &Block{}
	for !p.tok.is("}") {
		from := p.tok.span.From
		switch {
		case p.tok.is(";"):
			p.next()
		case p.tok.kind == eof, p.tok.nl && p.atProbe():
			p.lose(brace, "the block is not closed", "write } after its last statement")
		case p.attempt(func() { b.Stmts = append(b.Stmts, p.stmt()) }):
		case p.lost || !p.skipStmt(from): // the mistake is reported, and the end of the block cannot be found
			p.lost = true
			panic(bailout{})
		}
	}
	p.blocks--
	p.next()
	b.Span = Span{brace.From, p.prev.span.To}
	return b
}

// skipStmt skips from the mistake in the statement at from to the start of the next one or the end of the block. It reports whether
// there is such a place. A semicolon in open brackets does not count, but a newline may: a bracket may not be closed.
func (p *parser) skipStmt(from int) bool {
	brackets := p.open
	p.open = 0
	for depth := 0; p.tok.kind != eof; p.next() {
		newline := p.tok.nl && p.tok.span.From > from
		switch {
		case newline && p.atProbe():
			return true
		case depth == 0 && (p.tok.is("}") || p.tok.is(";") && brackets <= 0 || newline && p.prev.endsStmt() && p.tok.beginsStmt()):
			return true
		case p.tok.is("("), p.tok.is("["):
			brackets++
		case p.tok.is(")"), p.tok.is("]"):
			brackets--
		case p.tok.is("{"):
			depth++
		case p.tok.is("}"):
			if depth--; depth == 0 && !p.peek().is("else") {
				p.next()
				return true
			}
		}
	}
	return false
}

// endsStmt reports whether a statement may end with t, so that a newline after it may separate it from the next.
func (t token) endsStmt() bool {
	switch t.kind {
	case op:
		return t.is(")") || t.is("]") || t.is("}") || t.counts()
	case ident:
		return !keywords[t.text] || t.is("true") || t.is("false") || t.is("nil")
	}
	return true
}

// beginsStmt reports whether a statement may begin with t.
func (t token) beginsStmt() bool {
	return t.kind == ident && !keywords[t.text] || t.kind == variable || t.kind == mapname || t.counts()
}

// beginsValue reports whether an expression can begin with t, which is not a name.
func (t token) beginsValue() bool {
	switch t.kind {
	case variable, mapname, number, str:
		return true
	}
	return t.counts() || t.is("(") || t.is("[") || t.is("-") || t.is("!") || t.is("~") || t.is("not") || t.is("true") || t.is("false")
}

// stmt parses a statement and checks that it ends.
func (p *parser) stmt() Stmt {
	from := p.tok.span.From
	s := p.statement(from)
	if p.atStmtEnd() || p.prev.is("}") {
		return s
	}
	p.unexpected("an operator, a newline, ; or }", "")
	return nil
}

func (p *parser) atStmtEnd() bool {
	return p.tok.is(";") || p.tok.is("}") || p.tok.nl || p.tok.kind == eof
}

func (p *parser) statement(from int) Stmt {
	t := p.tok
	switch {
	case t.is("{"):
		body := p.block()
		return &Nested{body, body.Span}
	case t.kind != ident || keywords[t.text]:
		if !t.beginsValue() {
			p.unexpected("a statement", p.statementHelp())
		}
	case t.text == "_" && p.peek().is("="):
		return p.discard(from)
	case t.text == "if":
		return p.ifStmt(from)
	case t.text == "for":
		return p.forStmt(from)
	case t.text == "while", t.text == "unroll":
		return p.counted(from, t.text)
	case (t.text == "break" || t.text == "continue") && p.endsAfter():
		p.next()
		return &Jump{t.text, t.span}
	case t.text == "return":
		p.next()
		s := &Return{}
		if !p.atStmtEnd() {
			s.Value = p.expression()
		}
		s.Span = Span{from, p.prev.span.To}
		return s
	case t.text == "let" && p.peek().kind == variable:
		return p.declare(from)
	case t.text == "let":
		p.fail(t.span, "a map must be declared outside of blocks", "write let @x = lru(10000) at the start of the program")
	case calls[t.text] && !p.peek().is("("):
		p.unexpected("a statement", p.statementHelp())
	}
	return p.valueStmt(from)
}

// endsAfter reports whether the current statement ends with the current token.
func (p *parser) endsAfter() bool {
	t := p.peek()
	return t.nl || t.kind == eof || t.is(";") || t.is("}")
}

// calls are the functions that are statements.
var calls = map[string]bool{"clear": true, "delete": true, "exit": true, "print": true, "printf": true, "time": true, "zero": true}

// statementHelp returns what to write in place of the current token, which begins no statement.
func (p *parser) statementHelp() string {
	switch t := p.tok; {
	case t.kind == ident && calls[t.text] && p.endsAfter():
		return fmt.Sprintf("write a call with brackets: %s()", t.text)
	case t.kind == ident && calls[t.text]:
		return fmt.Sprintf("write a call with brackets: %s(…)", t.text)
	}
	return "write an assignment, a call, if, for or return"
}

// assignments are the assignment operators that take a value.
var assignments = map[string]bool{
	"=": true, "+=": true, "-=": true, "*=": true, "/=": true, "%=": true, "&=": true, "|=": true, "^=": true, "<<=": true, ">>=": true,
}

func (t token) counts() bool  { return t.is("++") || t.is("--") }
func (t token) assigns() bool { return t.counts() || t.kind == op && assignments[t.text] }

// assignable reports whether n can be assigned to.
func assignable(n ast.Node) bool {
	switch n := n.(type) {
	case *MapRef:
		return true
	case *ast.IdentifierNode:
		return n.Value[0] == '$'
	}
	return false
}

// ifStmt parses `if (cond) { … } else …`. `else if` becomes a block of one if.
func (p *parser) ifStmt(from int) *If {
	p.next()
	s := &If{Cond: p.expression(), Then: p.block()}
	if p.tok.is("else") {
		p.next()
		if p.tok.is("if") {
			inner := p.ifStmt(p.tok.span.From)
			s.Else = &Block{[]Stmt{inner}, inner.Span}
		} else {
			s.Else = p.block()
		}
	}
	s.Span = Span{from, p.prev.span.To}
	return s
}

// forStmt parses `for ($kv : @map) { … }` or `for ($i : a..b) { … }`.
func (p *parser) forStmt(from int) *For {
	const help = "write for ($kv : @map) { … } or for ($i : a..b) { … }"
	p.next()
	bracket := p.tok.is("(") // bpftrace's ranges do without
	if bracket {
		p.next()
		p.open++
	}
	s := &For{Var: p.tok.text}
	if p.tok.kind != variable {
		p.unexpected("a variable", help)
	}
	p.next()
	p.expect(":", ":", help)
	s.In = p.expression()
	if !iterable(s.In) {
		p.fail(SpanOf(s.In), "this is neither a map nor a range", help)
	}
	if p.tok.is(",") {
		p.next()
		if !p.tok.is("by") {
			p.unexpected("by", `write for ($kv : @map, by = "value") { … }`)
		}
		p.next()
		p.expect("=", "the = of by", `write for ($kv : @map, by = "value") { … }`)
		s.By = p.literal()
	}
	if bracket {
		p.open--
		p.expect(")", ")", help)
	}
	s.Body = p.block()
	s.Span = Span{from, p.prev.span.To}
	return s
}

func iterable(n ast.Node) bool {
	switch n := n.(type) {
	case *MapRef:
		return n.Key == nil
	case *ast.BinaryNode:
		return n.Operator == ".."
	}
	return false
}
