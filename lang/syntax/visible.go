package syntax

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendVisible appends a string. It escapes what a terminal could not show or would interpret, because texts from outside the
// program, such as names of processes, may hold anything.
func AppendVisible(b []byte, s string) []byte {
	if IsVisible(s) {
		return append(b, s...)
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b = append(b, s[:n]...)
		default:
			quoted := strconv.QuoteRune(r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		s = s[n:]
	}
	return b
}

// IsVisible reports whether a string needs no escapes.
func IsVisible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
		}
	}
	return true
}

// Visible returns a text with such escapes. It keeps newlines and tabs.
func Visible(s string) string {
	if IsVisible(s) {
		return s
	}
	var b []byte
	for len(s) > 0 {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			return string(AppendVisible(b, s))
		}
		b = append(AppendVisible(b, s[:i]), s[i])
		s = s[i+1:]
	}
	return string(b)
}
