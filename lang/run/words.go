package run

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// SplitWords splits the command of -c like a shell: at blanks that are neither quoted nor escaped. No shell runs it. Expansions
// like $HOME and * are left unchanged, and operators that would join commands are an error.
func SplitWords(command string) ([]string, error) {
	var words []string
	for w, err := range syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).WordsSeq(strings.NewReader(command)) {
		if err != nil {
			return nil, fmt.Errorf("%w (there is no shell: to use one, write -c \"sh -c '…'\")", err)
		}
		var text strings.Builder
		for _, part := range w.Parts {
			text.WriteString(unquote(command, part))
		}
		words = append(words, text.String())
	}
	return words, nil
}

// unquote returns the value of a part of a word.
func unquote(command string, part syntax.WordPart) string {
	switch part := part.(type) {
	case *syntax.Lit:
		return unescape(part.Value, "")
	case *syntax.SglQuoted:
		return part.Value
	case *syntax.DblQuoted:
		var text strings.Builder
		for _, inner := range part.Parts {
			if lit, ok := inner.(*syntax.Lit); ok {
				text.WriteString(unescape(lit.Value, "$`\"\\"))
			} else {
				text.WriteString(unquote(command, inner))
			}
		}
		return text.String()
	}
	return command[part.Pos().Offset():part.End().Offset()]
}

// unescape removes each backslash before one of the given characters or, if these are "", before any.
func unescape(s, escapable string) string {
	var text strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (escapable == "" || strings.IndexByte(escapable, s[i+1]) >= 0) {
			i++
		}
		text.WriteByte(s[i])
	}
	return text.String()
}
