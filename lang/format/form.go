package format

import (
	"fmt"
	"slices"
	"strconv"
)

// Form is how the values of a tuple are nested and named. The values themselves stand in a row: (1, (2, "x")) has three. A tuple that
// holds neither a tuple nor a name needs no form, and has nil.
type Form struct {
	// Names are the names of the parts of a record; nil for a tuple.
	Names []string
	// Parts are the forms of the parts; nil for a single value.
	Parts []*Form
	// Array reports that the parts are the elements of an array.
	Array bool
}

// ArrayForm returns the form of an array of n numbers.
func ArrayForm(n int) *Form { return &Form{Parts: make([]*Form, n), Array: true} }

// IsArray reports whether the form is an array's.
func (f *Form) IsArray() bool { return f != nil && f.Array }

// NewForm returns the form of a tuple of parts, or of a record if there are names.
func NewForm(names []string, parts []*Form) *Form {
	if names == nil && !slices.ContainsFunc(parts, func(p *Form) bool { return p != nil }) {
		return nil
	}
	return &Form{Names: names, Parts: parts}
}

// Needed returns the form, or nil if the tuple needs none.
func (f *Form) Needed() *Form {
	if f == nil || f.Array {
		return f
	}
	return NewForm(f.Names, f.Parts)
}

// Full returns the form of a tuple of n values, also if it needs none.
func (f *Form) Full(n int) *Form {
	if f == nil {
		return &Form{Parts: make([]*Form, n)}
	}
	return f
}

// Width returns the number of values; a single value has no form.
func (f *Form) Width() int {
	if f == nil {
		return 1
	}
	n := 0
	for _, p := range f.Parts {
		n += p.Width()
	}
	return n
}

// From returns the place of the first value of a part.
func (f *Form) From(part int) int { return (&Form{Parts: f.Parts[:part]}).Width() }

// Index returns the number of the part of that name, or -1.
func (f *Form) Index(name string) int { return slices.Index(f.Names, name) }

// Equal reports whether two forms are the same.
func (f *Form) Equal(g *Form) bool {
	if f == nil || g == nil {
		return f == g
	}
	return f.Array == g.Array && slices.Equal(f.Names, g.Names) && slices.EqualFunc(f.Parts, g.Parts, (*Form).Equal)
}

// Order returns where g has the values of f: at index i the place of value number i. The parts of records have the same names, in any order.
// ok is false if the forms differ in more.
func (f *Form) Order(g *Form) (places []int, ok bool) {
	switch {
	case f == nil || g == nil:
		return []int{0}, f == g
	case len(f.Parts) != len(g.Parts) || (f.Names == nil) != (g.Names == nil) || f.Array != g.Array:
		return nil, false
	}
	for i, part := range f.Parts {
		at := i
		if f.Names != nil {
			at = g.Index(f.Names[i])
		}
		if at < 0 {
			return nil, false
		}
		within, ok := part.Order(g.Parts[at])
		if !ok {
			return nil, false
		}
		for _, n := range within {
			places = append(places, g.From(at)+n)
		}
	}
	return places, true
}

// Paths returns how each value is reached: 1.0 or a.b.
func (f *Form) Paths() (all []string) {
	for i, part := range f.Parts {
		name := strconv.Itoa(i)
		if f.Names != nil {
			name = f.Names[i]
		}
		if part == nil {
			all = append(all, name)
			continue
		}
		for _, path := range part.Paths() {
			all = append(all, name+"."+path)
		}
	}
	return all
}

// String returns the form as messages write it: (…, (…, …)) or (a = …, b = …).
func (f *Form) String() string {
	style := Style{Tuple: [2]string{"(", ")"}, Record: [2]string{"(", ")"}, Separator: ", ", Name: "%s = "}
	return string(style.Append(nil, f, f.Width(), func(b []byte, _ int) []byte { return append(b, "…"...) }))
}

// Formed are the values of a tuple that has a form.
type Formed struct {
	Form   *Form
	Values []any
}

// Shaped returns the values of a tuple with its form.
func Shaped(f *Form, values any) any {
	if row, ok := values.([]any); ok && f != nil {
		return Formed{f, row}
	}
	return values
}

// Style is how tuples and records are written: what is before and after them and between their parts, and the name of a part.
type Style struct {
	Tuple, Record   [2]string
	Separator, Name string
}

// The styles of text, of keys in JSON, and of JSON. They are bpftrace's.
var (
	TextStyle = Style{[2]string{"(", ")"}, [2]string{"{ ", " }"}, ", ", ".%s = "}
	KeyStyle  = Style{[2]string{"(", ")"}, [2]string{"{", "}"}, ",", ".%s="}
	JSONStyle = Style{[2]string{"[", "]"}, [2]string{"{", "}"}, ",", "%q:"}
)

// Append appends a tuple or a record of n values.
func (s Style) Append(b []byte, f *Form, n int, value func(b []byte, i int) []byte) []byte {
	brackets := s.Tuple
	switch {
	case f.IsArray():
		brackets, s.Separator = [2]string{"[", "]"}, ","
	case f != nil && f.Names != nil:
		brackets = s.Record
	}
	return append(s.Parts(append(b, brackets[0]...), f, n, value), brackets[1]...)
}

// Parts appends the parts of a tuple or a record of n values.
func (s Style) Parts(b []byte, f *Form, n int, value func(b []byte, i int) []byte) []byte {
	f = f.Full(n)
	for i, part := range f.Parts {
		if i > 0 {
			b = append(b, s.Separator...)
		}
		if f.Names != nil {
			b = fmt.Appendf(b, s.Name, f.Names[i])
		}
		from := f.From(i)
		if part == nil {
			b = value(b, from)
		} else {
			b = s.Append(b, part, part.Width(), func(b []byte, n int) []byte { return value(b, from+n) })
		}
	}
	return b
}
