package ir

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// This file has the texts that functions make of numbers. The kernel keeps such a text as a number, its code: equal texts have equal
// codes. The empty text, which a map has where nothing was set, has the code 0.

// Units of such texts.
const (
	ErrorTexts  event.Unit = 120 + iota // strerror
	SignalTexts                         // signal_name
	CallTexts                           // syscall_name; the enum of the type has the names
)

// TextUnits maps the functions to their units.
var TextUnits = map[string]event.Unit{"strerror": ErrorTexts, "signal_name": SignalTexts, "syscall_name": CallTexts}

// Naming is how one of the functions makes texts.
type Naming struct {
	// Of returns the text of a number.
	Of func(n int64) string
	// Pieces are ranges of numbers with texts of their own.
	Pieces []Piece
	// Others is the code of the text that all other numbers share; other is one of them.
	Others, other int64
}

// Piece is a range of numbers: the code of n is n + Add, or Add - n if the piece is Negated.
type Piece struct {
	From, To int64 // inclusive
	Negated  bool
	Add      int64
}

// NoText is a code that no text has.
const NoText = 1 << 62

// NamingOf returns how the texts of a type are made, or nil if they are texts of another origin.
func NamingOf(t event.Type) *Naming {
	switch t.Unit {
	case ErrorTexts: // -2 and 2 have one text
		named := format.Errors()
		all := append(pieces(named), Piece{From: 0, To: 0, Add: 1})
		for _, p := range pieces(named) {
			all = append(all, Piece{From: -p.To, To: -p.From, Negated: true, Add: p.Add})
		}
		return &Naming{Of: format.ErrorText, Pieces: all, Others: -1, other: math.MaxInt64}
	case SignalTexts: // each number below 1 has a text of its own
		all := []Piece{{From: 1, To: format.LastSignal, Add: 1}, {From: math.MinInt64, To: 0, Add: -1}}
		return &Naming{Of: format.SignalText, Pieces: all, Others: format.LastSignal + 2, other: math.MaxInt64}
	case CallTexts:
		return &Naming{Of: func(n int64) string { return callText(t.Enum, n) }, Pieces: pieces(t.Enum.Values), Others: -1, other: -1}
	}
	return nil
}

// callText returns the name of a system call.
func callText(calls *event.Enum, n int64) string {
	if name := calls.NameOf(n); name != "" {
		return name
	}
	return "Unknown syscall"
}

// pieces returns the ranges of ascending numbers that are not negative. Their codes are one more, so that 0 is free.
func pieces(numbers []int64) (all []Piece) {
	for _, n := range numbers {
		if last := len(all) - 1; last >= 0 && all[last].To == n-1 {
			all[last].To = n
		} else {
			all = append(all, Piece{From: n, To: n, Add: 1})
		}
	}
	return all
}

// code returns the code of a number in the piece.
func (p Piece) code(n int64) int64 {
	if p.Negated {
		n = -n
	}
	return n + p.Add
}

// Code returns the code of the text of a number.
func (n *Naming) Code(number int64) int64 {
	for _, p := range n.Pieces {
		if p.From <= number && number <= p.To {
			return p.code(number)
		}
	}
	return n.Others
}

// Text returns the text of a code.
func (n *Naming) Text(code int64) string {
	if code == 0 {
		return ""
	}
	for _, p := range n.Pieces {
		if number := code - p.Add; !p.Negated && p.From <= number && number <= p.To {
			return n.Of(number)
		}
	}
	return n.Of(n.other)
}

// CodeOf returns the code of a text, or NoText if no number has it.
func (n *Naming) CodeOf(text string) int64 {
	if text == "" {
		return 0
	}
	for _, p := range n.Pieces {
		for number := max(p.From, 0); number <= p.To; number++ {
			if n.Of(number) == text {
				return p.code(number)
			}
		}
	}
	number, err := strconv.ParseInt(text[strings.LastIndexByte(text, ' ')+1:], 10, 64) // it may end with its number
	switch {
	case err == nil && n.Of(number) == text:
		return n.Code(number)
	case n.Of(n.other) == text:
		return n.Others
	}
	return NoText
}

// named converts values between texts and codes, with the types of columns.
func named(columns []Column, values []any, convert func(*Naming, any) any) []any {
	out := values
	for i, c := range columns {
		n := NamingOf(c.Type)
		if n == nil || values[i] == nil {
			continue
		}
		if &out[0] == &values[0] {
			out = append([]any(nil), values...)
		}
		out[i] = convert(n, values[i])
	}
	return out
}

// Coded returns values as the kernel keeps them: codes in the place of texts.
func Coded(columns []Column, values []any) []any {
	return named(columns, values, func(n *Naming, v any) any { return n.CodeOf(v.(string)) })
}

// Decoded returns values that the kernel kept. A name of what a cgroup runs is the cgroup's id there; see [Joins].
func Decoded(columns []Column, values []any) []any {
	out := named(columns, values, func(n *Naming, v any) any { return n.Text(event.To[int64](v)) })
	for i, c := range columns {
		if !c.Type.NamesWorkload() || out[i] == nil {
			continue
		}
		if &out[0] == &values[0] {
			out = append([]any(nil), values...)
		}
		if name := c.Type.Enum.NameOf(event.To[int64](out[i])); name != "" {
			out[i] = name
		} else {
			out[i] = nil
		}
	}
	return out
}

// Joins reports whether several keys in the kernel may become one in user space.
func Joins(columns []Column) bool {
	return slices.ContainsFunc(columns, func(c Column) bool { return c.Type.NamesWorkload() })
}
