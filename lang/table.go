package lang

import (
	"time"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file makes results of what maps hold.

// mapOptions say how to print a map.
type mapOptions struct {
	// top is how many entries to print, those with the largest values; 0 is all.
	top int64
	// div divides what is printed, as in bpftrace: numbers, which lose their unit by it, but of stats the average alone and of
	// rate not the total; of hist how many values there are; nothing of lhist. 0 is 1.
	div int64
	// by is what orders the lines.
	by result.Order
	// elapsed is the time in which the values came, for rate.
	elapsed time.Duration
}

// funcName is the name of the aggregation as it is written, "" of a scalar.
func (m *mapInfo) funcName() string {
	if m.agg == nil {
		return ""
	}
	return m.agg.Name()
}

// typ is the type of the value, or of the numbers that an aggregation prints.
func (m *mapInfo) typ() event.Type {
	if m.isTuple {
		return event.Type{Kind: format.Tuple}
	}
	return m.value[0].typ
}

// show says how states of the map are shown.
func (m *mapInfo) show(o mapOptions) agg.Show {
	return agg.Show{Type: m.typ(), Signed: m.agg.Signed, Div: o.div, Elapsed: o.elapsed}
}

// table is what the map holds: in the order, as much and divided as the options say. A map without a key that has no entry is zero.
func (m *mapInfo) table(entries []entry, o mapOptions) result.Table {
	if len(m.key) == 0 && len(entries) == 0 {
		entries = []entry{m.newEntry(nil)}
	}
	t := result.Table{Name: m.name, Func: m.funcName(), Type: m.typ(), Unit: m.unit(o), Zero: m.result(m.newEntry(nil), o)}
	for i, c := range m.key {
		name := ""
		if i < len(m.names) {
			name = m.names[i]
		}
		t.Key = append(t.Key, result.Column{Name: name, Type: c.typ})
	}
	if m.agg != nil {
		traits := m.agg.Traits()
		t.Many, t.Course, t.Adds, t.Merger = traits.Many, traits.Course, traits.Adds, m.agg.Merger(m.typ())
	} else if !m.isTuple && event.IsNumber(m.typ()) && m.typ().Enum == nil {
		t.Adds = result.Sums
	}
	t.Rows = make([]result.Row, len(entries))
	for i, e := range entries {
		t.Rows[i] = result.Row{Key: e.key, Value: m.result(e, mapOptions{elapsed: o.elapsed}), State: e.state}
	}
	t.Sort(o.by, o.top)
	if o.div > 1 {
		for i := range t.Rows {
			t.Rows[i].Value = m.divided(t.Rows[i], o)
		}
	}
	return t
}

// result is what an entry comes to.
func (m *mapInfo) result(e entry, o mapOptions) result.Value {
	if m.agg != nil {
		return m.agg.Result(e.state, m.show(o))
	}
	if !m.isTuple {
		return agg.Divided(m.value[0].typ, e.value[0], o.div)
	}
	t := result.Tuple{Elems: make([]result.Number, len(m.value))}
	for i, c := range m.value {
		t.Elems[i] = agg.Divided(c.typ, e.value[i], o.div)
	}
	return t
}

// sorted are entries in an order.
func (m *mapInfo) sorted(entries []entry, by result.Order) []entry {
	if len(entries) == 0 {
		return nil
	}
	t := m.table(entries, mapOptions{by: by})
	entries = make([]entry, len(t.Rows))
	for i, r := range t.Rows {
		entries[i] = entry{key: r.Key, state: r.State}
		switch v := r.Value.(type) {
		case result.Tuple:
			entries[i].value = v.Values()
		case result.Number:
			if m.agg == nil {
				entries[i].value = []any{v.V}
			}
		}
	}
	return entries
}

// divided is the value of a row, as the options divide it.
func (m *mapInfo) divided(r result.Row, o mapOptions) result.Value {
	switch v := r.Value.(type) {
	case result.Tuple:
		for i, e := range v.Elems {
			v.Elems[i] = agg.Divided(e.Type, e.V, o.div)
		}
		return v
	case result.Number:
		if m.agg == nil {
			return agg.Divided(v.Type, v.V, o.div)
		}
	}
	return m.agg.Result(r.State, m.show(o))
}

// number is the one number that the state of an aggregation comes to, nil where there is no value.
func (m *mapInfo) number(state []uint64) any {
	return m.agg.Result(state, m.show(mapOptions{})).Rank()[0]
}

// unit is that of the numbers that are shown.
func (m *mapInfo) unit(o mapOptions) event.Unit {
	if m.agg != nil && m.agg.Traits().Course == result.Spread {
		return m.typ().Unit
	}
	return agg.Divided(m.typ(), nil, o.div).Type.Unit
}
