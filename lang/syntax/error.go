package syntax

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// Text is the text of a program and the name that its errors carry.
type Text struct {
	Name, Content string
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
	// Text is the line that holds the mistake.
	Text string
}

// Error returns an error about the part of the source at.
func (s Text) Error(at Span, msg, help string) *Error {
	before := s.Content[:at.From]
	start := strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(s.Content[start:], "\n")
	end := min(at.To, start+len(line))
	return &Error{
		File:   s.Name,
		Line:   strings.Count(before, "\n") + 1,
		Col:    utf8.RuneCountInString(s.Content[start:at.From]) + 1,
		EndCol: utf8.RuneCountInString(s.Content[start:max(end, at.From)]) + 1,
		Msg:    msg,
		Help:   help,
		Text:   strings.TrimSuffix(line, "\r"),
	}
}

// Error shows the message, the line with the mistake underlined, and what to do.
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

// maxText bounds a message that repeats words of the program.
const maxText = 1000

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// maxWindow is how many columns of the line with the mistake are shown: with the four before them they fit into a terminal.
const maxWindow = 74

// window is the part of the line around the mistake that is shown: what stands before the mistake, the mistake, and what stands behind it.
// What a terminal could not show is escaped.
func (e *Error) window() (before, at, after string) {
	from, to := offset(e.Text, e.Col-1), offset(e.Text, e.EndCol-1)
	const near = maxWindow * utf8.UTFMax * 2 // bytes, of which there may be ten million
	left := []rune(Visible(e.Text[max(0, from-near):from]))
	marked := []rune(Visible(e.Text[from:min(to, from+near)]))
	right := []rune(Visible(e.Text[to:min(len(e.Text), to+near)]))
	if len(left)+len(marked)+len(right) <= maxWindow {
		return string(left), string(marked), string(right)
	}
	if len(marked) > maxWindow/2 { // where it begins matters
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

// offset is where the character number n of text begins, or the end of text.
func offset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// blank is as wide as text. It keeps tabs, whose width only the terminal knows.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, text)
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
