package syntax

import (
	"slices"
	"strings"
)

// Position is what may stand at a place of a program.
type Position uint8

const (
	// Nowhere is within a string, a comment, a number, a param or a let, where no word can be completed.
	Nowhere Position = iota
	// Start is the beginning of a program, for a clause or a bare expression.
	Start
	// Probe is where a clause begins, or after a comma between its probes.
	Probe
	// Head is after the probes of a clause or its predicate, before its body.
	Head
	// Predicate is within the slashes of a clause, or in a bare expression.
	Predicate
	// Statement is where a statement begins.
	Statement
	// Expression is anywhere else in a body.
	Expression
)

// Place describes a place of a program, so that the word there can be completed.
type Place struct {
	Position Position
	// Word is the part of the word before the place: of a probe, a name with its dots, @map or $variable; or "".
	Word string
	// Probes are the probes of the clause, without the one that is being written.
	Probes []ProbeRef
	// Function is the function that takes the place as an argument, or "".
	Function string
	// Compared is the name that the place is compared with, by ==, != or in [ ], or "".
	Compared string
	// Maps are the maps of the program up to the place, with their @.
	Maps []string
	// Variables are the variables of the clause and the params of the program, up to the place, with their $.
	Variables []string
}

// At describes the place of src at a byte offset. The text after the place does not matter.
//
// It uses the lexer and the parser's rules for what a token may begin, and builds no tree: the text before a place is seldom a
// whole program, and a mistake in it must not hide the rest.
func At(src string, offset int) Place {
	c := cursor{parser: parser{lex: lexer{src: src[:max(0, min(offset, len(src)))]}, predicate: true}}
	for c.advance(); !c.arrived(); c.advance() {
		c.take()
	}
	return c.place
}

// cursor goes from token to token up to a place.
type cursor struct {
	parser
	place Place
	phase phase
	// opened are the brackets, braces and `?` that wait for their other half, innermost last.
	opened []opening
	// name is the name that the current token may compare, and compared the name that it is compared with.
	name, compared string
	params         []string
}

// phase is the part of an item of a program that the cursor is in.
type phase uint8

const (
	beginning   phase = iota
	afterComma        // between probes
	head              // after a probe or after the predicate
	inPredicate       // between the slashes
	bareProgram       // an expression that is the whole program
	namingParam       // before the = of a param
	declaration       // the rest of a param, a let, or of something that is not an item
)

// opening is a sign that waits for its other half.
type opening struct {
	sign     string
	function string // the function that is called, of a (
	compared string // the name compared with each element, of a [
}

// advance goes to the next token.
func (c *cursor) advance() {
	c.prev, c.tok = c.tok, c.lex.next()
	c.newItem()
	if ref, ok := c.lex.probe(c.tok.span.From); ok && c.phase <= afterComma {
		c.tok.kind, c.tok.span, c.tok.text = ident, ref.Span, c.lex.src[ref.Span.From:ref.Span.To]
		c.lex.pos = ref.Span.To
	}
	if from := c.tok.span.From; c.tok.kind == bad && strings.IndexByte("\"'`", c.lex.src[from]) >= 0 {
		// The lexer stops at a wrong escape, but the string continues to the end of the line.
		line, _, _ := strings.Cut(c.lex.src[c.lex.pos:], "\n")
		c.lex.pos += len(line)
	}
}

// arrived reports whether the current token ends at the place. If it does, it describes the place.
func (c *cursor) arrived() bool {
	text, after := c.lex.src[c.tok.span.From:c.lex.pos], c.lex.src[c.lex.pos:]
	switch c.tok.kind {
	case eof:
		if !c.inComment() && !c.prev.is(".") {
			c.describe("")
		}
		return true
	case op:
		return false
	case ident, variable, mapname:
		// A dot at the end belongs to the name. Its next part is about to be written.
		if after == "" || after == "." {
			c.describe(text + after)
			return true
		}
	case bad:
		if after == "" && (text == "$" || text[0] == '@') {
			c.describe(text)
		}
	}
	return after == ""
}

// newItem begins an item or a statement if the current token can only do that, whatever the lines before it left open.
func (c *cursor) newItem() {
	t, ends := c.tok, c.prev.endsStmt() || c.prev.is("{") || c.prev.is(";")
	switch {
	case t.nl && ends && c.atProbe(),
		c.phase == head && len(c.opened) == 0 && (c.atProbe() || t.nl && !t.is("/") && !t.is("{") && !t.is(",")),
		c.phase >= namingParam && len(c.opened) == 0 && t.nl:
		c.begin()
	case t.nl && ends && t.beginsStmt() && c.inBlock():
		c.closeBrackets()
	}
}

// begin moves to the start of an item.
func (c *cursor) begin() {
	c.phase, c.opened, c.name, c.compared = beginning, nil, "", ""
	c.place.Probes, c.place.Variables = nil, slices.Clone(c.params)
}

// inComment reports whether the text ends within a comment that ends with its line.
func (c *cursor) inComment() bool {
	if c.tok.comments == nil {
		return false
	}
	last := c.tok.comments[len(c.tok.comments)-1]
	return !strings.HasPrefix(last.Text, "/*") && !strings.Contains(c.lex.src[last.Span.To:], "\n")
}

// describe describes the place at the end of a word.
func (c *cursor) describe(word string) {
	c.place.Word, c.place.Function, c.place.Compared = word, c.function(), c.compared
	switch {
	case c.inBlock() && c.atStmt():
		c.place.Position = Statement
	case c.inBlock():
		c.place.Position = Expression
	case c.phase == beginning && c.prev.kind == eof:
		c.place.Position = Start
	case c.phase <= afterComma:
		c.place.Position = Probe
	case c.phase == head:
		c.place.Position = Head
	case c.phase <= bareProgram:
		c.place.Position = Predicate
	}
}

// atStmt reports whether the current token, which may be the end of the text, stands where a statement of a block begins.
func (c *cursor) atStmt() bool {
	switch {
	case c.prev.is("{"), c.prev.is("}"), c.prev.is(";"), c.prev.is("else"):
		return true
	case c.tok.kind == eof && c.opened[len(c.opened)-1].sign != "{":
		return false
	}
	return c.tok.nl && c.prev.endsStmt() && (c.tok.kind == eof || c.tok.beginsStmt())
}

func (c *cursor) inBlock() bool {
	return slices.ContainsFunc(c.opened, func(o opening) bool { return o.sign == "{" })
}

// function returns the function whose argument is at the place, or "".
func (c *cursor) function() string {
	for _, o := range slices.Backward(c.opened) {
		if o.function != "" || o.sign == "[" || o.sign == "{" {
			return o.function
		}
	}
	return ""
}

// take processes the current token.
func (c *cursor) take() {
	t := c.tok
	if c.phase <= afterComma && c.takeFirst() {
		return
	}
	switch t.kind {
	case mapname:
		c.place.Maps = with(c.place.Maps, t.text)
	case variable:
		c.place.Variables = with(c.place.Variables, t.text)
	}
	switch top := len(c.opened) - 1; {
	case t.is("=") && c.phase == namingParam:
		c.params = with(c.params, "$"+c.prev.text)
		c.phase = declaration
	case t.is("/") && top < 0 && c.phase == head:
		c.phase = inPredicate
	case t.is("/") && c.phase == inPredicate:
		if c.open = len(c.opened); c.closesPredicate() {
			c.phase = head
		}
	case t.is(",") && top < 0 && c.phase == head:
		c.phase = afterComma
	case t.is(";") && top < 0:
		c.begin()
	case t.is("("), t.is("["), t.is("?"):
		c.opened = append(c.opened, c.opening())
	case t.is("{"):
		c.closeBrackets()
		c.opened = append(c.opened, opening{sign: "{"})
	case t.is(")"):
		c.close("(")
	case t.is("]"):
		c.close("[")
	case t.is(":") && top >= 0 && c.opened[top].sign == "?":
		c.opened = c.opened[:top]
	case t.is("}"):
		c.closeBrackets()
		if c.close("{"); len(c.opened) == 0 && c.phase != inPredicate {
			c.begin()
		}
	}
	c.compare()
}

// takeFirst processes a token where a probe is expected. It reports whether the token is fully processed.
func (c *cursor) takeFirst() bool {
	t := c.tok
	ref, ok := c.lex.probe(t.span.From)
	if moment := moments[t.text]; !ok && t.kind == ident && moment != "" {
		ref, ok = ProbeRef{Group: moment, Span: t.span}, true
	}
	switch {
	case ok:
		c.place.Probes = append(c.place.Probes, ref)
		c.phase = head
		return true
	case t.is(";"), t.is("}"):
		return true
	case c.phase == afterComma:
		c.phase = head
	case c.prev.kind == eof && !c.atItem():
		c.phase = bareProgram
	case c.atParam():
		c.phase = namingParam
	default:
		c.phase = declaration
	}
	return false
}

// opening returns what the current token opens.
func (c *cursor) opening() opening {
	o := opening{sign: c.tok.text}
	switch {
	case o.sign == "(" && c.prev.kind == ident && !keywords[c.prev.text] && !statements[c.prev.text] && !c.tok.nl:
		o.function = c.prev.text
	case o.sign == "[" && c.prev.is("in"):
		o.compared = c.name
	}
	return o
}

// close closes the innermost bracket of that sign in the current block, with everything that is open in it.
func (c *cursor) close(sign string) {
	for i, o := range slices.Backward(c.opened) {
		if o.sign == sign {
			c.opened = c.opened[:i]
			return
		}
		if o.sign == "{" {
			return
		}
	}
}

// closeBrackets closes everything that is open in the current block.
func (c *cursor) closeBrackets() {
	for len(c.opened) > 0 && c.opened[len(c.opened)-1].sign != "{" {
		c.opened = c.opened[:len(c.opened)-1]
	}
}

// compare notes what the next token is compared with.
func (c *cursor) compare() {
	t, top := c.tok, len(c.opened)-1
	switch {
	case t.is("=="), t.is("!="):
		c.compared = c.name
	case t.is("["), t.is(",") && top >= 0:
		c.compared = c.opened[top].compared
	case !t.is("-"): // names of errors have it: -EINVAL
		c.compared = ""
	}
	switch {
	case t.kind == ident && !keywords[t.text]:
		c.name = t.text
	case !t.is("not") && !t.is("in"):
		c.name = ""
	}
}

// with adds a name unless it is known.
func with(names []string, name string) []string {
	if slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}
