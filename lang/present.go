package lang

import (
	"slices"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is what stands between values and a terminal or a file. Names of processes, cgroups and functions are chosen by whoever
// runs them, and a recording may come from anywhere: control characters in them are written as escapes, like \x1b, unless the user wants
// them raw. What the program itself says is written as it is.

// own tells whether the program itself says what the value is: its literals, and what it chooses from or makes of them.
func own(e *expr) bool {
	switch e.op {
	case opLit:
		return true
	case opCond:
		return own(e.args[1]) && own(e.args[2])
	case "??", opCall:
		return !slices.ContainsFunc(e.args, func(a *expr) bool { return !own(a) })
	}
	return false
}

// presentable replaces the numbers of stacks by their frames, and marks what is written as it is.
func (p *Printer) presentable(t event.Type, elems []event.Type, v any) any {
	switch {
	case v == nil:
		return nil
	case t.Kind == format.Stack && v == uint64(0): // a map has no such key
		return nil
	case t.Kind == format.Stack && p.stacks != nil:
		return p.shownFrames(p.stacks.frames(v.(uint64)))
	case t.Kind == format.Tuple && (p.raw || slices.ContainsFunc(elems, func(e event.Type) bool { return e.Kind == format.Stack })):
		values := slices.Clone(v.([]any))
		for i := range values {
			values[i] = p.presentable(elems[i], nil, values[i])
		}
		return values
	case p.raw && p.format != JSON:
		return asVerbatim(t, v)
	}
	return v
}

// asVerbatim marks a string, and the path of a cgroup.
func asVerbatim(t event.Type, v any) any {
	switch {
	case t.Kind == event.String:
		return format.Verbatim(v.(string))
	case t.Unit == event.Cgroup && t.Enum != nil:
		if path := t.Enum.NameOf(event.To[int64](v)); path != "" {
			return format.Verbatim(path)
		}
	}
	return v
}

// shownFrames are frames as they are printed. JSON has escapes of its own.
func (p *Printer) shownFrames(all format.Frames) format.Frames {
	if p.raw || p.format == JSON || !slices.ContainsFunc(all, func(f string) bool { return !syntax.IsVisible(f) }) {
		return all
	}
	shown := make(format.Frames, len(all))
	for i, f := range all {
		shown[i] = format.VisibleLine(f)
	}
	return shown
}

// presentableRow does so for the columns of a key or a value.
func (p *Printer) presentableRow(columns []column, values []any) []any {
	var out []any
	for i, c := range columns {
		if i == len(values) || c.typ.Kind != format.Stack && !p.raw { // an aggregation has no values
			continue
		}
		if out == nil {
			out = slices.Clone(values)
		}
		out[i] = p.presentable(c.typ, nil, values[i])
	}
	if out == nil {
		return values
	}
	return out
}

// presentableArgs does so for the arguments of printf, whose text JSON escapes as a whole.
func (p *Printer) presentableArgs(args []*expr, values []any) []any {
	out := values
	for i, a := range args {
		v := values[i]
		switch {
		case v == nil:
		case a.typ.Kind == event.String && (p.raw || p.format == JSON || own(a)):
			v = format.Verbatim(v.(string))
		case a.typ.Kind == format.Stack || a.typ.Kind == format.Tuple || p.raw:
			v = p.presentable(a.typ, a.elems, v)
		default:
			continue
		}
		if &out[0] == &values[0] {
			out = slices.Clone(values)
		}
		out[i] = v
	}
	return out
}
