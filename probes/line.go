package probes

import (
	"fmt"
	"strconv"
	"strings"
)

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

// lineOf reads the tag of a member of an event, which has none as a rule.
func lineOf(tags []string, t Type) (Line, error) {
	tag := tagged(tags, "line:")
	kind, of, _ := strings.Cut(tag, ":")
	switch kind {
	case "detail":
		return Line{Shown: Detail}, nil
	case "usual":
		l := Line{Unusual, of}
		if _, ok := l.Usual(t); !ok {
			return Line{}, fmt.Errorf("the usual value %s is none of its values", of)
		}
		return l, nil
	case "instead":
		return Line{Instead, of}, nil
	case "verbose":
		return Line{Shown: Verbose}, nil
	case "":
		if t.isFlags() {
			return Line{Shown: Detail}, nil
		}
		return Line{}, nil
	}
	return Line{}, fmt.Errorf("no tag %q is known", "line:"+tag)
}

func (t Type) isFlags() bool { return t.Kind == Bool || t.Enum != nil && t.Enum.Flags }

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

// Describe gives the fields of recorded probes, and their enums, what the catalog says of how people read them. A recording has only what
// the values are, so that it is shown as events are today, whenever it was made.
func Describe(recorded []*Probe) error {
	var names []string
	for _, p := range recorded {
		names = append(names, p.Group)
	}
	if names == nil {
		return nil // Load would take that for all groups
	}
	catalog, err := Load(names...)
	if err != nil {
		return err
	}
	for _, p := range recorded {
		for _, known := range catalog.Match(p.String()) {
			p.takeLines(known)
		}
	}
	return nil
}

func (p *Probe) takeLines(from *Probe) {
	for _, f := range p.Fields {
		k := from.Field(f.Name)
		if k == nil || k.Type.Kind != f.Type.Kind {
			continue
		}
		f.Line = k.Line
		if f.Type.Enum != nil && k.Type.Enum != nil {
			f.Type.Enum.Classes = k.Type.Enum.Classes
		}
	}
}
