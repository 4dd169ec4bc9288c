package ir

import (
	"time"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file makes results from the contents of maps.

// MapOptions describe how to print a map.
type MapOptions struct {
	// Top is how many elements to print, those with the largest values; 0 means all.
	Top int64
	// Div divides what is printed, as in bpftrace. 0 means 1. Numbers lose their unit. It divides the average of stats but not the
	// other numbers, of rate not the total, of hist the counts, and of lhist nothing.
	Div int64
	// By is the order of the lines.
	By result.Order
	// Elapsed is the time in which the values were collected, for rate.
	Elapsed time.Duration
	// Share is which part of the values of a Sampled map was seen; 0: none.
	Share float64
	// Unseen means that no event could be seen, so a number of a map without a key is unknown.
	Unseen bool
	// Zeroed reports that zero() set the values to 0.
	Zeroed bool
	// Rest is the most that a key without an element may have, in a map of an aggregation that ranks; nil: nothing.
	Rest []uint64
	// Clock returns the time of day of nsecs, for exemplars; nil: they are not shown.
	Clock func(nsecs uint64) time.Time
}

// FuncName returns the name of the aggregation as written, or "" for a scalar.
func (m *Map) FuncName() string {
	if m.Agg == nil {
		return ""
	}
	return m.Agg.Name()
}

// Type returns the type of the value, or of the numbers that an aggregation prints.
func (m *Map) Type() event.Type {
	if m.IsTuple {
		return event.Type{Kind: format.Tuple}
	}
	return m.Value[0].Type
}

// show returns how states of the map are shown.
func (m *Map) show(o MapOptions) agg.Show {
	show := agg.Show{Type: m.Type(), Signed: m.Agg.Signed, Div: o.Div, Elapsed: o.Elapsed, Zeroed: o.Zeroed, Clock: o.Clock}
	if m.Sampled {
		show.Share = o.Share
	}
	return show
}

// Table returns what the map holds. The options choose the order, the number of rows and the divisor. A map without a key whose
// value was never set is zero.
func (m *Map) Table(elements []Element, o MapOptions) result.Table {
	if len(m.Key) == 0 && len(elements) == 0 {
		elements = []Element{m.NewElement(nil)}
	}
	t := result.Table{Name: m.Name, Func: m.FuncName(), Type: m.Type(), Unit: m.Unit(o), Zero: m.Result(m.NewElement(nil), o), Form: m.KeyForm}
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
		t.Estimate = m.Sampled && traits.Counts
		t.Metric, t.Instead = traits.Metric, traits.Instead
		if t.Metric == result.Counter && m.Agg.Signed {
			t.Metric = result.Gauge // a sum of values below 0 falls
		}
	} else if !m.IsTuple && event.IsNumber(m.Type()) && m.Type().Enum == nil {
		t.Adds = result.Sums
		t.Metric = result.Gauge
	}
	t.Rows = make([]result.Row, len(elements))
	for i, e := range elements {
		t.Rows[i] = result.Row{Key: e.Key, Value: m.Result(e, MapOptions{Elapsed: o.Elapsed, Share: o.Share, Zeroed: o.Zeroed, Clock: o.Clock}), State: e.State}
	}
	if o.Unseen && len(m.Key) == 0 {
		t.Rows[0].Value = m.unknown(t.Rows[0].Value)
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

// unknown returns a value without its number, if it is one.
func (m *Map) unknown(v result.Value) result.Value {
	switch v := v.(type) {
	case result.Number:
		v.V = nil
		return v
	case result.Rate:
		v.Timed = false
		return v
	}
	return v
}

// Result returns the result of an element.
func (m *Map) Result(e Element, o MapOptions) result.Value {
	if m.Agg != nil {
		return m.Agg.Result(e.State, m.show(o))
	}
	if !m.IsTuple {
		return agg.Divided(m.Value[0].Type, e.Value[0], o.Div)
	}
	t := result.Tuple{Elems: make([]result.Number, len(m.Value)), Form: m.ValueForm}
	for i, c := range m.Value {
		t.Elems[i] = agg.Divided(c.Type, e.Value[i], o.Div)
	}
	return t
}

// Sorted returns the elements in the given order.
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

// divided returns the value of a row, divided as the options require.
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

// number returns the number that the state of an aggregation yields, or nil if it has no value.
func (m *Map) number(state []uint64) any {
	return m.Agg.Result(state, m.show(MapOptions{})).Rank()[0]
}

// Unit returns the unit of the numbers that are shown.
func (m *Map) Unit(o MapOptions) event.Unit {
	if m.Agg != nil && m.Agg.Traits().Course == result.Spread {
		return m.Type().Unit
	}
	return agg.Divided(m.Type(), nil, o.Div).Type.Unit
}

// ValueOf returns the value of an element as one value: a scalar, a tuple, or the number of an aggregation, which is 0 if it has no
// value.
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

// NewElement makes an element of zeros. It copies the key.
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

// OfColumns copies values and converts numbers to the types of their columns.
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
