package ir

import (
	"time"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file makes results of what maps hold.

// MapOptions say how to print a map.
type MapOptions struct {
	// Top is how many elements to print, those with the largest values; 0 is all.
	Top int64
	// Div divides what is printed, as in bpftrace: numbers, which lose their unit by it, but of stats the average alone and of
	// rate not the total; of hist how many values there are; nothing of lhist. 0 is 1.
	Div int64
	// By is what orders the lines.
	By result.Order
	// Elapsed is the time in which the values came, for rate.
	Elapsed time.Duration
	// Rest is what any key without an entry has at most, of an aggregation that ranks; nil: nothing.
	Rest []uint64
}

// FuncName is the name of the aggregation as it is written, "" of a scalar.
func (m *Map) FuncName() string {
	if m.Agg == nil {
		return ""
	}
	return m.Agg.Name()
}

// Type is the type of the value, or of the numbers that an aggregation prints.
func (m *Map) Type() event.Type {
	if m.IsTuple {
		return event.Type{Kind: format.Tuple}
	}
	return m.Value[0].Type
}

// show says how states of the map are shown.
func (m *Map) show(o MapOptions) agg.Show {
	return agg.Show{Type: m.Type(), Signed: m.Agg.Signed, Div: o.Div, Elapsed: o.Elapsed}
}

// Table is what the map holds: in the order, as much and divided as the options say. A map without a key that has no entry is zero.
func (m *Map) Table(elements []Element, o MapOptions) result.Table {
	if len(m.Key) == 0 && len(elements) == 0 {
		elements = []Element{m.NewElement(nil)}
	}
	t := result.Table{Name: m.Name, Func: m.FuncName(), Type: m.Type(), Unit: m.Unit(o), Zero: m.Result(m.NewElement(nil), o)}
	for i, c := range m.Key {
		name := ""
		if i < len(m.Names) {
			name = m.Names[i]
		}
		t.Key = append(t.Key, result.Column{Name: name, Type: c.Type})
	}
	if m.Agg != nil {
		traits := m.Agg.Traits()
		t.Many, t.Course, t.Adds, t.Merger = traits.Many, traits.Course, traits.Adds, m.Agg.Merger(m.Type())
	} else if !m.IsTuple && event.IsNumber(m.Type()) && m.Type().Enum == nil {
		t.Adds = result.Sums
	}
	t.Rows = make([]result.Row, len(elements))
	for i, e := range elements {
		t.Rows[i] = result.Row{Key: e.Key, Value: m.Result(e, MapOptions{Elapsed: o.Elapsed}), State: e.State}
	}
	if ranker := m.Agg.Ranker(); ranker != nil {
		t.Ranking = &result.Ranking{Own: m.Own, Top: ranker.Top()}
		if o.Rest != nil {
			t.Ranking.Rest = map[string][]uint64{"": o.Rest}
		}
		t.Cut()
	}
	t.Sort(o.By, o.Top)
	if o.Div > 1 {
		for i := range t.Rows {
			t.Rows[i].Value = m.divided(t.Rows[i], o)
		}
	}
	return t
}

// Result is what an entry comes to.
func (m *Map) Result(e Element, o MapOptions) result.Value {
	if m.Agg != nil {
		return m.Agg.Result(e.State, m.show(o))
	}
	if !m.IsTuple {
		return agg.Divided(m.Value[0].Type, e.Value[0], o.Div)
	}
	t := result.Tuple{Elems: make([]result.Number, len(m.Value))}
	for i, c := range m.Value {
		t.Elems[i] = agg.Divided(c.Type, e.Value[i], o.Div)
	}
	return t
}

// Sorted are elements in an order.
func (m *Map) Sorted(elements []Element, by result.Order) []Element {
	if len(elements) == 0 {
		return nil
	}
	t := m.Table(elements, MapOptions{By: by})
	elements = make([]Element, len(t.Rows))
	for i, r := range t.Rows {
		elements[i] = Element{Key: r.Key, State: r.State}
		switch v := r.Value.(type) {
		case result.Tuple:
			elements[i].Value = v.Values()
		case result.Number:
			if m.Agg == nil {
				elements[i].Value = []any{v.V}
			}
		}
	}
	return elements
}

// divided is the value of a row, as the options divide it.
func (m *Map) divided(r result.Row, o MapOptions) result.Value {
	switch v := r.Value.(type) {
	case result.Tuple:
		for i, e := range v.Elems {
			v.Elems[i] = agg.Divided(e.Type, e.V, o.Div)
		}
		return v
	case result.Number:
		if m.Agg == nil {
			return agg.Divided(v.Type, v.V, o.Div)
		}
	}
	return m.Agg.Result(r.State, m.show(o))
}

// number is the one number that the state of an aggregation comes to, nil where there is no value.
func (m *Map) number(state []uint64) any {
	return m.Agg.Result(state, m.show(MapOptions{})).Rank()[0]
}

// Unit is that of the numbers that are shown.
func (m *Map) Unit(o MapOptions) event.Unit {
	if m.Agg != nil && m.Agg.Traits().Course == result.Spread {
		return m.Type().Unit
	}
	return agg.Divided(m.Type(), nil, o.Div).Type.Unit
}

// ValueOf returns the value of an entry of m as one value: a tuple, or the number of an aggregation, 0 if it has none.
func (m *Map) ValueOf(e Element) any {
	switch {
	case m.Agg != nil:
		if n := m.number(e.State); n != nil {
			return n
		}
		return m.show(MapOptions{}).Number(0)
	case m.IsTuple:
		return e.Value
	}
	return e.Value[0]
}

// NewElement makes an entry of zeros. It copies the key.
func (m *Map) NewElement(key []any) Element {
	e := Element{Key: OfColumns(m.Key, key)}
	if m.Agg != nil {
		e.State = make([]uint64, m.Agg.Words())
		return e
	}
	for _, c := range m.Value {
		e.Value = append(e.Value, ZeroOf(c.Type, nil))
	}
	return e
}

// OfColumns copies values, numbers being made what their column has.
func OfColumns(columns []Column, values []any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = As(columns[i].Type.Kind, v)
	}
	return out
}

// Element of a map: a key with its value.
type Element struct {
	Key   []any
	Value []any    // of a scalar
	State []uint64 // of an aggregation
}
