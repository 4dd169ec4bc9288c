package config

import (
	"fmt"
	"strings"

	"trace/lang/syntax"
)

// Place is where something stands in a file of the configuration. The zero place is nowhere.
type Place struct {
	text *syntax.Text
	// line and column count from 1, columns in characters. length is in bytes.
	line, column, length int
}

// String returns the place as file:line:column.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.text.Name, p.line, p.column) }

// Known reports whether it is anywhere.
func (p Place) Known() bool { return p.text != nil }

// Error returns a mistake at the place, with advice or "".
func (p Place) Error(msg, help string) *syntax.Error {
	from := p.offset()
	return p.text.Error(syntax.Span{From: from, To: min(from+p.length, len(p.text.Content))}, msg, help)
}

// offset returns where in the text it begins.
func (p Place) offset() int {
	from := 0
	for range p.line - 1 {
		next := strings.IndexByte(p.text.Content[from:], '\n')
		if next < 0 {
			break
		}
		from += next + 1
	}
	line, _, _ := strings.Cut(p.text.Content[from:], "\n")
	at := 0
	for i := range line {
		if at++; at == p.column {
			return from + i
		}
	}
	return from + len(line)
}
