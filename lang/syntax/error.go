package syntax

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// Source is the text of a program and the name that its errors carry.
type Source struct {
	Name, Text string
}

// Span is a part of the source: the bytes from From up to To.
type Span struct {
	From, To int
}

// SpanOf returns the part of the source that n was parsed from.
func SpanOf(n ast.Node) Span {
	l := n.Location()
	return Span{l.From, l.To}
}

// Error is a mistake in a program, with the place to look at.
type Error struct {
	File string
	// Line and Col count from 1, columns in characters. EndCol is just after the underlined part.
	Line, Col, EndCol int
	Msg               string
	// Help says what to do, or is empty.
	Help string
	// Foreign is the probe of bpftrace that is used as if it were one of the catalog, if that is the mistake: kprobe:ib_modify_qp.
	Foreign string
	// Source is the line that holds the mistake.
	Source string
}

// Error returns an error about the part of the source at.
func (s Source) Error(at Span, msg, help string) *Error {
	before := s.Text[:at.From]
	start := strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(s.Text[start:], "\n")
	end := min(at.To, start+len(line))
	return &Error{
		File:   s.Name,
		Line:   strings.Count(before, "\n") + 1,
		Col:    utf8.RuneCountInString(s.Text[start:at.From]) + 1,
		EndCol: utf8.RuneCountInString(s.Text[start:max(end, at.From)]) + 1,
		Msg:    msg,
		Help:   help,
		Source: strings.TrimSuffix(line, "\r"),
	}
}

// Error shows the message, the line with the mistake underlined, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
	if strings.TrimSpace(e.Source) != "" {
		fmt.Fprintf(&b, "\n    %s\n    %s^%s", e.Source, e.indent(), strings.Repeat("~", max(e.underlined()-1, 0)))
	}
	if e.Help != "" {
		fmt.Fprintf(&b, "\nhelp: %s", e.Help)
	}
	return Visible(b.String())
}

// columns of a part of the line as it is shown: what a terminal would obey is an escape.
func columns(s string) int { return utf8.RuneCountInString(Visible(s)) }

// at is where a column of the line begins; beyond is how many columns it is behind its end.
func (e *Error) at(col int) (offset, beyond int) {
	for i := range e.Source {
		if col--; col == 0 {
			return i, 0
		}
	}
	return len(e.Source), col - 1
}

// underlined is how many columns the mistake has.
func (e *Error) underlined() int {
	from, _ := e.at(e.Col)
	to, beyond := e.at(e.EndCol)
	return columns(e.Source[from:max(from, to)]) + beyond
}

// indent is as wide as the line before the mistake. It keeps tabs, whose width only the terminal knows.
func (e *Error) indent() string {
	offset, beyond := e.at(e.Col)
	parts := strings.Split(e.Source[:offset], "\t")
	for i, part := range parts {
		parts[i] = strings.Repeat(" ", columns(part))
	}
	return strings.Join(parts, "\t") + strings.Repeat(" ", beyond)
}

// ErrorList holds the mistakes of one program.
type ErrorList []*Error

func (l ErrorList) Error() string {
	texts := make([]string, len(l))
	for i, e := range l {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// Err returns the mistakes in the order of the text, each once, or nil if there is none.
func (l ErrorList) Err() error {
	if len(l) == 0 {
		return nil
	}
	slices.SortStableFunc(l, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Msg, b.Msg))
	})
	return slices.CompactFunc(l, func(a, b *Error) bool { return *a == *b })
}
