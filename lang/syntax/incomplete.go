package syntax

import (
	"slices"
	"strings"
)

// Incomplete reports whether src ends within a bracket, a string in backticks or a comment, or after an operator that needs an
// operand: then the next line belongs to it.
func Incomplete(src string) bool {
	l := lexer{src: src}
	depth := 0
	var last token
	for {
		t := l.next()
		switch {
		case t.kind == eof:
			return depth > 0 || last.kind == op && slices.Contains(wantsMore, last.text)
		case t.kind == bad:
			rest := src[t.span.From:]
			return rest[0] == '`' || strings.HasPrefix(rest, "/*") // more lines correct no other mistake
		case t.is("{") || t.is("(") || t.is("["):
			depth++
		case t.is("}") || t.is(")") || t.is("]"):
			depth--
		}
		last = t
	}
}

// wantsMore are operators that never end a program. A slash and a star may: they close a predicate, or are part of a probe.
var wantsMore = []string{",", "&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "|", "^", "&", "<<", ">>", "?", "??", "="}
