package syntax

import "strings"

// spacing writes the tokens of a text as they are written there, with one blank or none between them.
type spacing struct {
	b    strings.Builder
	lex  lexer
	prev token
	// operand: prev ends an operand, so a sign that follows has two operands. prefix: prev belongs to what follows.
	operand, prefix bool
	casts           []bool // the open brackets: whether each holds the type of a cast
	declared        bool   // prev is a variable after let, so a colon precedes its type
}

// spaced returns the text between two places with canonical spaces. It keeps line breaks; lines after the first are indented.
func spaced(src string, from, to, indent int) string {
	s := &spacing{lex: lexer{src: src[:to], pos: from}}
	for t := s.lex.next(); t.kind != eof; t = s.lex.next() {
		switch {
		case s.b.Len() == 0:
		case t.nl && (t.is(")") || t.is("]") || t.is("}")):
			s.b.WriteString("\n" + strings.Repeat("\t", indent))
		case t.nl:
			s.b.WriteString("\n" + strings.Repeat("\t", indent+1))
		case s.gap(t):
			s.b.WriteByte(' ')
		}
		s.b.WriteString(src[t.span.From:t.span.To])
		s.follow(t)
	}
	return s.b.String()
}

// gap reports whether a blank precedes t.
func (s *spacing) gap(t token) bool {
	switch {
	case s.prefix:
		return s.prev.is("-") && (t.is("-") || t.is("--")) // two signs, not a decrement
	case s.prev.is("("), s.prev.is("["), t.is(")"), t.is("]"), t.is(","), t.is(";"):
		return false
	case s.prev.kind == op && tight[s.prev.text], t.kind == op && tight[t.text], t.kind == element:
		return false
	case s.prev.is("{") && t.is("}"):
		return false
	case t.is("("), t.is("["):
		return !s.operand || s.prev.kind == ident && statements[s.prev.text]
	case t.counts():
		return !s.operand
	case s.calls(t):
		return false
	case t.is(":"):
		return !s.declared
	}
	return true
}

// calls reports whether t is the mark of a call of a macro: m!(x).
func (s *spacing) calls(t token) bool {
	return t.is("!") && s.operand && t.span.From == s.prev.span.To
}

// tight operators have no blanks around them.
var tight = map[string]bool{"..": true, ".": true, "->": true}

// follow notes what t means for the token after it.
func (s *spacing) follow(t token) {
	if s.calls(t) {
		return
	}
	before, returns := s.operand, s.prev.kind == eof && t.is("return")
	s.declared = s.prev.is("let") && t.kind == variable
	s.prev, s.prefix = t, false
	switch {
	case t.is("("):
		s.casts = append(s.casts, !before && s.atCast())
		s.operand = false
	case t.is(")"):
		cast := false
		if n := len(s.casts); n > 0 {
			cast, s.casts = s.casts[n-1], s.casts[:n-1]
		}
		s.operand, s.prefix = !cast, cast
	case t.is("]"), t.is("}"), t.is("#"):
		s.operand = true
	case t.counts():
		s.operand, s.prefix = before, !before
	case t.kind == op:
		s.operand, s.prefix = false, !before && signs[t.text]
	case t.kind == ident:
		word := keywords[t.text] && !t.is("true") && !t.is("false") && !t.is("nil")
		s.operand = !word && !returns
	default:
		s.operand = true
	}
}

// signs are operators that may stand before an operand alone.
var signs = map[string]bool{"-": true, "!": true, "~": true}

// atCast reports whether the bracket that was just opened holds the type of a cast.
func (s *spacing) atCast() bool {
	ahead := s.lex
	word := ahead.next()
	after := ahead.next()
	return casts[word.text] != "" && after.is(")") || word.text == typeOf && after.is("(")
}
