package syntax

import (
	"slices"
	"strconv"
	"strings"
)

// Format returns the program src with canonical line breaks, indents and spaces. It keeps comments, operators and brackets as they are
// written, single blank lines where src has blank lines, and line breaks within statements. The errors have the given name and are an
// [ErrorList].
func Format(name, src string) (string, error) {
	p, err := Parse(name, src)
	if err != nil {
		return "", err
	}
	return p.layout(spaced) + "\n", nil
}

// String returns a text that parses to the same tree. A comment stands above the statement or clause that it precedes or is within, or
// after it if it does so in the original text.
func (p *Program) String() string { return p.layout(nil) }

// layout writes the program. spaced returns the text of a part that has no block; nil prints the tree.
func (p *Program) layout(spaced func(src string, from, to, indent int) string) string {
	l := &layout{src: p.Text.Content, comments: p.Comments, first: true, spaced: spaced}
	items := p.items()
	for i, it := range items {
		next := len(l.src)
		if i+1 < len(items) {
			next = items[i+1].span.From
		}
		l.item(it, next)
	}
	l.flush(len(l.src))
	return strings.TrimSuffix(l.b.String(), "\n")
}

// item is what stands alone at the top level of a program: its probes, the rest of its head, which begins at from, and its body.
type item struct {
	span   Span
	probes []ProbeRef
	head   string
	from   int
	body   *Block
}

// items returns the items of the program in the order of the text.
func (p *Program) items() []item {
	if p.Expr != nil {
		span := p.extent()
		return []item{{span: span, head: Print(p.Expr), from: span.From, body: p.Body}}
	}
	var all []item
	add := func(span Span, head string, body *Block) {
		all = append(all, item{span: span, head: head, from: span.From, body: body})
	}
	if p.Config != nil || p.Configured != (Span{}) {
		add(p.Configured, p.configText(), nil)
	}
	for _, i := range p.Imports {
		add(i.Span, "import "+strconv.Quote(i.Path), nil)
	}
	for _, m := range p.Macros {
		add(m.Span, m.head(), m.Body)
	}
	for _, param := range p.Params {
		add(param.Span, param.String(), nil)
	}
	for _, let := range p.Lets {
		add(let.Span, let.String(), nil)
	}
	for _, c := range p.Clauses {
		all = append(all, item{c.Span, c.Probes, c.predicate(), c.Probes[len(c.Probes)-1].Span.To, c.Body})
	}
	slices.SortStableFunc(all, func(a, b item) int { return a.span.From - b.span.From })
	return all
}

// extent returns the place of a bare expression and its body, with the brackets around it.
func (p *Program) extent() Span {
	lex := lexer{src: p.Text.Content}
	last := lex.next()
	span := last.span
	for ; last.kind != eof; last = lex.next() {
		span.To = last.span.To
	}
	return span
}

// layout writes items and statements line by line, with the comments of the original text between them.
type layout struct {
	b        strings.Builder
	src      string
	comments []Comment // the ones not written yet
	spaced   func(src string, from, to, indent int) string
	indent   int
	first    bool // of the program or the block: no blank line precedes
	apart    bool // a blank line must precede
}

func (l *layout) item(it item, next int) {
	head := it.span.To
	if it.body != nil {
		head = it.body.Span.From
	}
	l.lead(it.span.From, head)
	l.b.WriteString(l.probes(it.probes))
	text := l.written(it.from, head, it.head)
	switch {
	case it.probes == nil || text == "":
	case l.broken(it.from):
		l.b.WriteString("\n\t")
	default:
		l.b.WriteByte(' ')
	}
	l.b.WriteString(text)
	if it.body != nil {
		l.b.WriteByte(' ')
		l.block(it.body)
	}
	l.trail(it.span.To, next)
	l.apart = it.body != nil
}

// probes returns the probes of a clause. A probe that begins a line of the original text begins one here.
func (l *layout) probes(refs []ProbeRef) string {
	var b strings.Builder
	for i, r := range refs {
		switch {
		case i == 0:
		case l.broken(refs[i-1].Span.To + len(",")):
			b.WriteString(",\n")
		default:
			b.WriteString(", ")
		}
		b.WriteString(r.written())
	}
	return b.String()
}

// broken reports whether the original text, if its lines are kept, has a line break between a place and the next token.
func (l *layout) broken(at int) bool {
	if l.spaced == nil {
		return false
	}
	lex := lexer{src: l.src, pos: at}
	return lex.next().nl
}

// written returns a part of the program that has no block. printed is its tree.
func (l *layout) written(from, to int, printed string) string {
	if l.spaced == nil {
		return printed
	}
	return l.spaced(l.src, from, to, l.indent)
}

// block writes a block, with a line for each statement.
func (l *layout) block(b *Block) {
	inner := len(l.comments) > 0 && l.comments[0].Span.From < b.Span.To
	if len(b.Stmts) == 0 && !inner {
		l.b.WriteString("{}")
		return
	}
	next := func(i int) int {
		if i < len(b.Stmts) {
			return b.Stmts[i].Pos().From
		}
		return b.Span.To
	}
	l.b.WriteByte('{')
	l.trail(b.Span.From+1, next(0))
	l.indent++
	l.first = true
	for i, s := range b.Stmts {
		l.stmt(s)
		if l.plain(s) != "" && i+1 < len(b.Stmts) && continues(l.plain(b.Stmts[i+1])) {
			l.b.WriteByte(';')
		}
		l.trail(s.Pos().To, next(i+1))
	}
	l.flush(b.Span.To)
	l.indent--
	l.first = false
	l.tabs()
	l.b.WriteByte('}')
}

func (l *layout) stmt(s Stmt) {
	span := s.Pos()
	switch s := s.(type) {
	case *If:
		l.lead(span.From, s.Then.Span.From)
		l.ifStmt(s)
	case *For:
		l.headed(s.head(), span.From, s.Body)
	case *While:
		l.headed(s.head(), span.From, s.Body)
	case *Unroll:
		l.headed(s.head(), span.From, s.Body)
	case *Nested:
		l.lead(span.From, s.Body.Span.From)
		l.block(s.Body)
	default:
		l.lead(span.From, span.To)
		l.b.WriteString(l.plain(s))
	}
}

// plain returns the text of a statement without a block of its own, and "" for others.
func (l *layout) plain(s Stmt) string {
	switch s.(type) {
	case *If, *For, *While, *Unroll, *Nested:
		return ""
	}
	return l.written(s.Pos().From, s.Pos().To, PrintStmt(s))
}

// continues reports whether a line that begins with text continues an expression at the end of the line before: `-1` does.
func continues(text string) bool {
	p := parser{lex: lexer{src: text}}
	p.next()
	operator, _ := p.infix()
	return precedences[operator] != 0
}

// headed writes a statement that is a head and a block.
func (l *layout) headed(head string, from int, body *Block) {
	l.lead(from, body.Span.From)
	l.b.WriteString(l.written(from, body.Span.From, head) + " ")
	l.block(body)
}

func (l *layout) ifStmt(s *If) {
	l.b.WriteString(l.written(s.Span.From, s.Then.Span.From, s.head()) + " ")
	l.block(s.Then)
	switch inner := s.elseIf(); {
	case inner != nil:
		l.b.WriteString(" else ")
		l.ifStmt(inner)
	case s.Else != nil:
		l.b.WriteString(" else ")
		l.block(s.Else)
	}
}

// lead begins the line of what starts at from. It writes above it the comments that precede it and the comments in its head, which
// ends at head.
func (l *layout) lead(from, head int) {
	l.flush(from)
	l.gap(from)
	for len(l.comments) > 0 && l.comments[0].Span.From < head {
		l.comment()
	}
	l.tabs()
}

// flush writes the comments before pos, each on its line.
func (l *layout) flush(pos int) {
	for len(l.comments) > 0 && l.comments[0].Span.From < pos {
		l.gap(l.comments[0].Span.From)
		l.comment()
	}
}

// comment writes the next comment. A `#` begins a comment only at the start of a line.
func (l *layout) comment() {
	text := l.comments[0].Text
	if text[0] == '#' && l.indent > 0 {
		text = "//" + text[1:]
	}
	l.comments = l.comments[1:]
	l.tabs()
	l.b.WriteString(text + "\n")
}

// trail ends the line of what ends at end. It adds the comment that follows there in the original text, if that is before next.
func (l *layout) trail(end, next int) {
	if len(l.comments) > 0 {
		if c := l.comments[0]; end <= c.Span.From && c.Span.From < next && l.trails(c, end) {
			l.b.WriteString(" " + c.Text)
			l.comments = l.comments[1:]
		}
	}
	l.b.WriteByte('\n')
}

// trails reports whether c ends the line of the original text that contains end.
func (l *layout) trails(c Comment, end int) bool {
	after, _, _ := strings.Cut(l.src[c.Span.To:], "\n")
	return !strings.Contains(l.src[end:c.Span.From], "\n") && strings.TrimSpace(after) == ""
}

// gap writes a blank line if one precedes pos in the original text and none is written yet.
func (l *layout) gap(pos int) {
	before := l.src[:pos]
	blanks := before[len(strings.TrimRight(before, " \t\r\n")):]
	if !l.first && (l.apart || strings.Count(blanks, "\n") > 1) {
		l.b.WriteByte('\n')
	}
	l.first, l.apart = false, false
}

func (l *layout) tabs() { l.b.WriteString(strings.Repeat("\t", l.indent)) }
