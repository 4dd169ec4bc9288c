package event

import "strconv"

// Shown says when a line of text for people has a field that is there.
type Shown uint8

const (
	// Always has it.
	Always Shown = iota
	// Detail has it where it is not 0, not empty and not false (DETAIL in bpf/trace.h, and all booleans and flags).
	Detail
	// Unusual has it where it is not the value that it usually has (USUAL).
	Unusual
	// Instead has it where another field is absent, which tells the same (INSTEAD).
	Instead
	// Verbose has it only where everything is asked for (VERBOSE).
	Verbose
)

// Line says when a line of text has a field.
type Line struct {
	Shown
	// Of is the usual value, as a name or a number, of Unusual, and the other field of Instead.
	Of string
}

// IsFlags tells whether a type is of booleans: one, or the bits of a number.
func (t Type) IsFlags() bool { return t.Kind == Bool || t.Enum != nil && t.Enum.Flags }

// Usual returns the usual value of a field of type t, if it has one.
func (l Line) Usual(t Type) (int64, bool) {
	if l.Shown != Unusual {
		return 0, false
	}
	if t.Enum != nil {
		if v, ok := t.Enum.Value(l.Of); ok {
			return v, true
		}
	}
	v, err := strconv.ParseInt(l.Of, 0, 64)
	return v, err == nil
}

// String is the mark as a list of fields shows it, "" for none.
func (l Line) String() string {
	switch l.Shown {
	case Detail:
		return "detail"
	case Unusual:
		return "usual " + l.Of
	case Instead:
		return "for " + l.Of
	case Verbose:
		return "-v"
	}
	return ""
}
