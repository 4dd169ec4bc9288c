package syntax

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// Text is the text of a program, and its name in errors.
type Text struct {
	Name, Content string
	// imported are the files that follow the program in Content, in order.
	imported []imported
}

// imported is where the text of an imported file begins.
type imported struct {
	name string
	from int
}

// file returns the name of the file that holds an offset, and where it begins.
func (s Text) file(at int) (name string, from int) {
	name = s.Name
	for _, f := range s.imported {
		if f.from <= at {
			name, from = f.name, f.from
		}
	}
	return name, from
}

// Span is a part of the text: the bytes from From up to To.
type Span struct {
	From, To int
}

// SpanOf returns the part of the text that n was parsed from.
func SpanOf(n ast.Node) Span {
	l := n.Location()
	return Span{l.From, l.To}
}

// Error is a mistake in a program, with its place.
type Error struct {
	File string
	// Line and Col count from 1, columns in characters. EndCol is just after the underlined part.
	Line, Col, EndCol int
	Msg               string
	// Help is advice on what to do, or empty.
	Help string
	// Foreign is the bpftrace probe that the program uses, like kprobe:ib_modify_qp, if that is the mistake; otherwise "".
	Foreign string
	// Text is the line with the mistake.
	Text string
}

// Error returns an error about the part of the text at.
func (s Text) Error(at Span, msg, help string) *Error {
	name, from := s.file(at.From)
	before := s.Content[from:at.From]
	start := from + strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(s.Content[start:], "\n")
	end := min(at.To, start+len(line))
	return &Error{
		File:   name,
		Line:   strings.Count(before, "\n") + 1,
		Col:    utf8.RuneCountInString(s.Content[start:at.From]) + 1,
		EndCol: utf8.RuneCountInString(s.Content[start:max(end, at.From)]) + 1,
		Msg:    msg,
		Help:   help,
		Text:   strings.TrimSuffix(line, "\r"),
	}
}

// Place returns where the mistake is, as in program:1:5-9.
func (e *Error) Place() string { return fmt.Sprintf("%s:%d:%d-%d", e.File, e.Line, e.Col, e.EndCol) }

// Error returns the message, the line with the mistake underlined, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", Visible(e.File), e.Line, e.Col, Visible(clip(e.Msg)))
	if strings.TrimSpace(e.Text) != "" {
		before, at, after := e.window()
		marks := strings.Repeat("~", max(utf8.RuneCountInString(at)-1, 0))
		fmt.Fprintf(&b, "\n    %s%s%s\n    %s^%s", before, at, after, blank(before), marks)
	}
	if e.Help != "" {
		fmt.Fprintf(&b, "\nhelp: %s", Visible(clip(e.Help)))
	}
	return b.String()
}

// maxText limits a message that repeats words of the program.
const maxText = 1000

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// maxWindow is how many columns of the line with the mistake are shown. With the indentation of four they fit in a terminal.
const maxWindow = 74

// window returns the shown part of the line: what precedes the mistake, the mistake, and what follows it. Characters that a
// terminal could not show are escaped.
func (e *Error) window() (before, at, after string) {
	from, to := offset(e.Text, e.Col-1), offset(e.Text, e.EndCol-1)
	const near = maxWindow * utf8.UTFMax * 2 // in bytes; the line may have ten million
	left := []rune(Visible(e.Text[max(0, from-near):from]))
	marked := []rune(Visible(e.Text[from:min(to, from+near)]))
	right := []rune(Visible(e.Text[to:min(len(e.Text), to+near)]))
	if len(left)+len(marked)+len(right) <= maxWindow {
		return string(left), string(marked), string(right)
	}
	if len(marked) > maxWindow/2 { // its start matters
		marked, right = append(marked[:maxWindow/2-1:maxWindow/2-1], '…'), nil
	}
	room := maxWindow - len(marked)
	if most := max(room/2, room-len(right)); len(left) > most {
		left = append([]rune{'…'}, left[len(left)-most+1:]...)
	}
	if most := room - len(left); len(right) > most {
		right = append(right[:most-1:most-1], '…')
	}
	return string(left), string(marked), string(right)
}

// offset returns where character n of text begins, or the end of text.
func offset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// blank returns blanks as wide as text. It keeps tabs, whose width only the terminal knows.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, text)
}

// MaxErrors is how many mistakes are reported.
const MaxErrors = 25

// ErrorList holds the mistakes of one program.
type ErrorList []*Error

func (l ErrorList) Error() string {
	texts := make([]string, len(l))
	for i, e := range l {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the mistakes, so that errors.As finds an [*Error].
func (l ErrorList) Unwrap() []error {
	all := make([]error, len(l))
	for i, e := range l {
		all[i] = e
	}
	return all
}

// Err returns the first mistakes in the order of the text, each once, or nil without mistakes.
func (l ErrorList) Err() error {
	if len(l) == 0 {
		return nil
	}
	slices.SortStableFunc(l, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Msg, b.Msg))
	})
	l = slices.CompactFunc(l, func(a, b *Error) bool { return *a == *b })
	if len(l) <= MaxErrors {
		return l
	}
	rest := *l[MaxErrors]
	rest.Msg, rest.Help = "too many mistakes", "the rest are not shown"
	return append(l[:MaxErrors:MaxErrors], &rest)
}
