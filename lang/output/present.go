package output

import (
	"slices"

	"trace/lang/format"
	"trace/lang/result"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file stands between values and a terminal or a file. Whoever runs a process chooses its name, and the names of its cgroup
// and functions, and a recording may come from anywhere. So control characters in such texts are escaped, like \x1b, unless the
// user wants them raw. Texts of the program itself are not escaped.

// Presentable returns a value as it is written.
func (p *pen) Presentable(t event.Type, elems []event.Type, v any) any {
	switch all := v.(type) {
	case nil:
		return nil
	case format.Frames:
		return p.shownFrames(all)
	case format.Formed:
		return format.Formed{Form: all.Form, Values: p.Presentable(t, elems, all.Values).([]any)}
	case []any:
		if t.Kind != format.Tuple {
			return v
		}
		values := slices.Clone(all)
		for i := range values {
			values[i] = p.Presentable(elems[i], nil, values[i])
		}
		return values
	}
	if p.raw && !p.escapes {
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

// shownFrames returns frames as they are printed. A format may have escapes of its own.
func (p *pen) shownFrames(all format.Frames) format.Frames {
	if p.raw || p.escapes || !slices.ContainsFunc(all, func(f string) bool { return !syntax.IsVisible(f) }) {
		return all
	}
	shown := make(format.Frames, len(all))
	for i, f := range all {
		shown[i] = format.VisibleLine(f)
	}
	return shown
}

// PresentableTable makes a table presentable.
func (p *pen) PresentableTable(t result.Table) result.Table {
	t.Rows = slices.Clone(t.Rows)
	p.alignSeries(t.Rows)
	for i := range t.Rows {
		r := &t.Rows[i]
		r.Key = slices.Clone(r.Key)
		for n, v := range r.Key {
			r.Key[n] = p.Presentable(t.Key[n].Type, nil, v)
		}
		r.Value = p.presentableResult(r.Value)
	}
	return t
}

// alignSeries lets the time series of all keys end with the last interval of any of them.
func (p *pen) alignSeries(rows []result.Row) {
	var last uint64
	for _, r := range rows {
		if s, is := r.Value.(result.Series); is {
			last = max(last, s.Last)
		}
	}
	for i := range rows {
		if s, is := rows[i].Value.(result.Series); is {
			s.Last, s.Zone = last, p.Clock(uint64(0)).Location()
			rows[i].Value = s
		}
	}
}

func (p *pen) presentableResult(v result.Value) result.Value {
	switch v := v.(type) {
	case result.Number:
		v.V = p.Presentable(v.Type, nil, v.V)
		return v
	case result.Tuple:
		elems := slices.Clone(v.Elems)
		for i, e := range elems {
			elems[i].V = p.Presentable(e.Type, nil, e.V)
		}
		return result.Tuple{Elems: elems, Form: v.Form}
	}
	return v
}
