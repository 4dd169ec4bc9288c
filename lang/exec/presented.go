package exec

import (
	"slices"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/result"
	"trace/probes/event"
)

// This file adds names that only this run knows to what is printed, and finds the texts that the program itself chose.

// named replaces the numbers of stacks with their frames.
func (m *machine) named(t event.Type, elems []event.Type, v any) any {
	switch {
	case v == nil:
		return nil
	case t.Kind == format.Stack && v == uint64(0): // no map has such a key
		return nil
	case t.Kind == format.Stack && m.stacks != nil:
		return m.stacks.shown(m.search, t.Unit, v.(uint64))
	case t.Kind == format.Tuple && slices.ContainsFunc(elems, func(e event.Type) bool { return e.Kind == format.Stack }):
		values := slices.Clone(v.([]any))
		for i := range values {
			values[i] = m.named(elems[i], nil, values[i])
		}
		return values
	}
	return v
}

// namedTable replaces the numbers of stacks in a table.
func (m *machine) namedTable(t *result.Table) {
	for i := range t.Rows {
		r := &t.Rows[i]
		for n, c := range t.Key {
			if c.Type.Kind == format.Stack {
				r.Key = slices.Clone(r.Key)
				r.Key[n] = m.named(c.Type, nil, r.Key[n])
			}
		}
		r.Value = m.namedResult(r.Value)
	}
}

func (m *machine) namedResult(v result.Value) result.Value {
	switch v := v.(type) {
	case result.Number:
		v.V = m.named(v.Type, nil, v.V)
		return v
	case result.Tuple:
		for i, e := range v.Elems {
			v.Elems[i].V = m.named(e.Type, nil, e.V)
		}
		return v
	}
	return v
}

// printfArgs returns the arguments of printf as they are written. The output may leave texts from outside the program unescaped.
func (sc *scope) printfArgs(args []*ir.Expr, values []any) []any {
	raw := sc.sink.Raw()
	out := values
	for i, a := range args {
		v := values[i]
		switch {
		case v == nil:
		case a.Type.Kind == event.String && (raw || ir.Own(a)):
			v = format.Verbatim(v.(string))
		case a.Type.Kind == format.Stack || a.Type.Kind == format.Tuple || raw:
			v = sc.sink.Presentable(a.Type, a.Elems, format.Shaped(a.Form, sc.machine.named(a.Type, a.Elems, v)))
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
