package check

import (
	"fmt"
	"slices"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file holds what is known about the types of maps and variables during inference.

// bound is what is known so far about the type of a variable, or of a column of a map.
type bound struct {
	known bool
	typ   event.Type
	// plain reports that all values are literals without enum and unit. They take the enum and unit of the first other value.
	plain    bool
	optional bool
	at       syntax.Span // the use that set it
}

// typeSoFar returns the type, or pending if nothing is known.
func (f bound) typeSoFar() event.Type {
	if !f.known {
		return event.Type{Kind: ir.Pending}
	}
	return f.typ
}

func (f bound) column() ir.Column { return ir.Column{Type: f.typ, Optional: f.optional} }

// join adds the type of the value e. It returns false if e is of another sort.
func (f *bound) join(e *ir.Expr) bool {
	switch {
	case e.Type.Kind == ir.Pending:
		return true
	case !f.known:
		*f = bound{known: true, typ: e.Type, plain: plain(e), optional: e.Optional, at: e.Span}
		return true
	case format.SortOf(f.typ) != format.SortOf(e.Type):
		return false
	}
	f.typ = common(f.typ, e.Type, f.plain, plain(e))
	f.plain = f.plain && plain(e)
	f.optional = f.optional || e.Optional
	return true
}

// plain reports whether e is a literal without enum and unit: 0 is a number of anything.
func plain(e *ir.Expr) bool {
	return e.Op == ir.OpLit && e.Type.Unit == event.None && e.Type.Enum == nil
}

// common returns the type for values of the types a and b, which are of one sort. It is signed if one of them is, and keeps the
// enum and the unit that both share. A plain value takes the enum and the unit of the other.
func common(a, b event.Type, plainA, plainB bool) event.Type {
	t := event.Type{Kind: a.Kind, Size: max(a.Size, b.Size)}
	if a.Kind != b.Kind {
		t.Kind = event.Int
		if !plainA || !plainB { // literals have room for a sign
			t.Size = 8
		}
	}
	switch {
	case plainA:
		t.Unit, t.Enum = b.Unit, b.Enum
	case plainB, a.Unit == b.Unit && a.Enum == b.Enum:
		t.Unit, t.Enum = a.Unit, a.Enum
	}
	return t
}

// shape is what is known about a key or a value, which has one column or, as a tuple, several.
type shape struct {
	known   bool // the number of columns is known
	tuple   bool
	form    *format.Form // how the columns of a tuple are nested and named
	columns []bound
	at      syntax.Span // the use that set it
}

// row is a value, or the values of a tuple in a row.
type row struct {
	values []*ir.Expr
	tuple  bool
	form   *format.Form
}

// pending reports whether nothing is known about a value.
func (r row) pending() bool {
	return slices.ContainsFunc(r.values, func(e *ir.Expr) bool { return e.Type.Kind == ir.Pending })
}

// inOrder returns a row whose records name their elements in the order of the shape, if the names are the same.
func (s *shape) inOrder(r row) row {
	if !s.known || s.form == nil || r.form == nil || s.form.Equal(r.form) {
		return r
	}
	places, same := s.form.Order(r.form)
	if !same {
		return r
	}
	values := make([]*ir.Expr, len(places))
	for i, from := range places {
		values[i] = r.values[from]
	}
	return row{values, r.tuple, s.form}
}

// clash describes a use that contradicts an earlier one.
type clash struct {
	index       int // of the column; -1 if the numbers of columns differ
	here, there string
	span, at    syntax.Span // of this use and of the earlier one
}

// join adds the shape of a row. A value of unknown type may turn out to be a tuple, which takes more columns.
func (s *shape) join(r row, at syntax.Span) *clash {
	same := s.tuple == r.tuple && len(s.columns) == len(r.values) && s.form.Equal(r.form)
	if !s.known || !same && s.tuple && r.tuple && !s.typed() && !r.pending() {
		*s = shape{known: true, tuple: r.tuple, form: r.form, columns: make([]bound, len(r.values)), at: at}
		same = true
	}
	switch {
	case same:
	case s.tuple && r.tuple && r.pending():
		return nil
	default:
		types := make([]event.Type, len(r.values))
		for i, v := range r.values {
			types[i] = v.Type
		}
		return &clash{-1, describeShape(types, r.tuple, r.form), describeShape(s.types(), s.tuple, s.form), at, s.at}
	}
	for i, v := range r.values {
		if f := &s.columns[i]; !f.join(v) {
			return &clash{i, format.SortOf(v.Type), format.SortOf(f.typ), v.Span, f.at}
		}
	}
	return nil
}

func describeShape(types []event.Type, isTuple bool, form *format.Form) string {
	if form != nil {
		return form.String()
	}
	if isTuple {
		return fmt.Sprintf("a tuple of %d", len(types))
	}
	return format.SortOf(types[0])
}

func (s *shape) types() []event.Type {
	types := make([]event.Type, len(s.columns))
	for i, f := range s.columns {
		types[i] = f.typeSoFar()
	}
	return types
}

func (s *shape) list() []ir.Column {
	columns := make([]ir.Column, len(s.columns))
	for i, f := range s.columns {
		columns[i] = f.column()
	}
	return columns
}

// optionals returns which columns may be absent.
func (s *shape) optionals() []bool {
	optionals := make([]bool, len(s.columns))
	for i, f := range s.columns {
		optionals[i] = f.optional
	}
	return optionals
}

// typed reports whether the types of all columns are known.
func (s *shape) typed() bool {
	return s.known && !slices.ContainsFunc(s.columns, func(f bound) bool { return !f.known })
}

func (s *shape) equal(t shape) bool {
	return s.known == t.known && s.tuple == t.tuple && s.form.Equal(t.form) && slices.Equal(s.columns, t.columns)
}

// single returns the type of a value that is not a tuple, or nil.
func (s *shape) single() *event.Type {
	if !s.known || s.tuple || !s.columns[0].known {
		return nil
	}
	return &s.columns[0].typ
}

// several reports whether a key of this shape is a tuple for programs that read it.
func (s *shape) several() bool { return len(s.columns) > 1 }

// typeOf returns the type of a value of this shape.
func (s *shape) typeOf(isTuple bool) event.Type {
	switch {
	case !s.known:
		return event.Type{Kind: ir.Pending}
	case isTuple:
		return event.Type{Kind: format.Tuple}
	case len(s.columns) == 0:
		return ir.Natural64
	}
	return s.columns[0].typeSoFar()
}

// mapUses is what the uses of a map reveal about it.
type mapUses struct {
	info    *ir.Map
	written bool // anywhere in the program
	// value is also the shape of the aggregated values.
	key, value shape
	// how describes how the map is written: "" if unknown so far, "a value", or an aggregation like "count()".
	how   string
	howAt syntax.Span
	agg   agg.Func
	// ranked is how many elements of the key are ranked: the last ones.
	ranked int
	// names are the names of the elements of the key.
	names []columnName
}

// ranks reports whether a part of the key is ranked.
func (m *mapUses) ranks() bool { return m.agg != nil && m.agg.Traits().Ranks }

// many reports whether a value of the map is more than one number.
func (m *mapUses) many() bool { return m.agg != nil && m.agg.Traits().Many }

// settled copies the results to the map.
func (m *mapUses) settled() {
	m.info.Own = len(m.key.columns) - m.ranked
	m.info.Key, m.info.Value, m.info.IsTuple = m.key.list(), m.value.list(), m.value.tuple
	m.info.KeyForm, m.info.ValueForm = m.key.form, m.value.form
	m.info.Names = m.columnNames()
	if m.agg == nil {
		for i := range m.info.Value {
			// A scalar is never set to an absent value. An element of a tuple may be absent.
			m.info.Value[i].Optional = m.info.Value[i].Optional && m.info.IsTuple
		}
		return
	}
	a := agg.Agg{Func: m.agg}
	for i := range m.info.Value {
		a.Signed = a.Signed || m.info.Value[i].Type.Kind == event.Int
		m.info.Value[i].Optional = false
	}
	m.info.Agg = &a
}

// varUses is what the uses of a variable reveal about it.
type varUses struct {
	*ir.Variable
	value shape
	// loop is the map that the loop variable runs over, or nil.
	loop *mapUses
	// declared is the type of let $x: type, or "".
	declared string
	// unassigned reports that nothing has set a variable that was declared without a value.
	unassigned bool
	span       syntax.Span // of its declaration
}

// settled copies the results to the variable.
func (v *varUses) settled() {
	v.Type, v.Elems, v.Optional = v.typeSoFar()
	if v.loop == nil && v.value.tuple {
		v.MayLack = v.value.optionals()
	}
}

// form returns how the elements of the variable's tuple are nested.
func (v *varUses) form() *format.Form {
	if v.loop != nil {
		return nil
	}
	return v.value.form
}

// typeSoFar returns the type of the variable, the types of its elements if it is a tuple, and whether it may be absent.
func (v *varUses) typeSoFar() (t event.Type, elems []event.Type, optional bool) {
	switch {
	case v.loop != nil:
		return event.Type{Kind: format.Tuple}, v.loop.elementTypes(), false
	case v.value.tuple:
		return event.Type{Kind: format.Tuple}, v.value.types(), false
	}
	return v.value.typeOf(false), nil, v.value.known && v.value.columns[0].optional
}

// elementTypes returns the types of the key and of the value of an element of the map.
func (m *mapUses) elementTypes() []event.Type {
	return []event.Type{m.key.typeOf(m.key.several()), m.value.typeOf(m.value.tuple)}
}

// columnName is the name of an element of a key.
type columnName struct {
	text string
	// given reports that the program chose the name, at that place. Otherwise it is derived from the first use.
	given bool
	at    syntax.Span
}

// columnNames returns the names of the elements. A name that occurs again gets a number.
func (m *mapUses) columnNames() []string {
	var names []string
	for _, n := range m.names {
		name := n.text
		for i := 2; slices.Contains(names, name); i++ {
			name = fmt.Sprintf("%s_%d", n.text, i)
		}
		names = append(names, name)
	}
	return names
}

// isLoopVar reports whether e is the loop variable of a for over a map.
func isLoopVar(e *ir.Expr) bool { return e.Op == ir.OpVar && e.Variable.LoopOver != nil }

// conform converts values to the types of the columns, which are signed if one use is.
func conform(s *shape, values []*ir.Expr) []*ir.Expr {
	out := slices.Clone(values)
	for i, f := range s.columns[:min(len(s.columns), len(values))] { // there may be fewer while types are unknown
		if f.known && f.typ.Kind == event.Int {
			out[i] = ir.Signed(out[i])
		}
	}
	return out
}
