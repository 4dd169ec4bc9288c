package event

import "strconv"

// Shown is when a line of text for people has a field that is present.
type Shown uint8

const (
	// Always: in every line.
	Always Shown = iota
	// Detail: unless it is 0, empty or false (DETAIL in bpf/trace.h, and all booleans and flags).
	Detail
	// Unusual: unless it has its usual value (USUAL).
	Unusual
	// Instead: where another field with the same meaning is absent (INSTEAD).
	Instead
	// Verbose: only if everything is asked for (VERBOSE).
	Verbose
)

// Line describes when a line of text has a field.
type Line struct {
	Shown
	// Of is the usual value for Unusual, as a name or a number, and the other field for Instead.
	Of string
}

// IsFlags reports whether a type consists of booleans: one, or the bits of a number.
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

// String returns the mark as a list of fields shows it, "" for none.
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
