package lang

import (
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file finds the types of maps and variables. A clause is checked for the events of each of its probes, and all of them say
// something about the maps: so the whole program is checked again and again, and notes facts, until a pass finds nothing new. Facts
// only become more general, which bounds the number of passes. Then one more pass builds the typed tree and reports what is wrong.

// fact is what is known so far of the type of a variable, or of a column of a map.
type fact struct {
	known bool
	typ   event.Type
	// plain says that all values are literals without a meaning: they take that of the first value that has one.
	plain    bool
	optional bool
	at       syntax.Span // what told it
}

// typeSoFar is pending if nothing is known.
func (f fact) typeSoFar() event.Type {
	if !f.known {
		return event.Type{Kind: pending}
	}
	return f.typ
}

func (f fact) column() column { return column{typ: f.typ, optional: f.optional} }

// join notes that the value e is of this type, too. It returns false if it is of another sort.
func (f *fact) join(e *expr) bool {
	switch {
	case e.typ.Kind == pending:
		return true
	case !f.known:
		*f = fact{known: true, typ: e.typ, plain: plain(e), optional: e.optional, at: e.span}
		return true
	case sortOf(f.typ) != sortOf(e.typ):
		return false
	}
	f.typ = common(f.typ, e.typ, f.plain, plain(e))
	f.plain = f.plain && plain(e)
	f.optional = f.optional || e.optional
	return true
}

// plain tells whether e is a literal that has no meaning of its own: 0 is a number of anything.
func plain(e *expr) bool { return e.op == opLit && e.typ.Unit == event.None && e.typ.Enum == nil }

// common is the type of values of the types a and b, which are of one sort: signed if one of them is, and with the names and the
// unit that both have. A plain value has those of the other.
func common(a, b event.Type, plainA, plainB bool) event.Type {
	t := event.Type{Kind: a.Kind, Size: max(a.Size, b.Size)}
	if a.Kind != b.Kind {
		t.Kind, t.Size = event.Int, 8
	}
	switch {
	case plainA:
		t.Unit, t.Enum = b.Unit, b.Enum
	case plainB, a.Unit == b.Unit && a.Enum == b.Enum:
		t.Unit, t.Enum = a.Unit, a.Enum
	}
	return t
}

// shape is what is known of a key or a value, which has one column or, as a tuple, several.
type shape struct {
	known   bool // how many columns there are
	tuple   bool
	columns []fact
	at      syntax.Span // what told it
}

// clash says that a use contradicts an earlier one.
type clash struct {
	index       int // of the column; -1 if the number of columns differs
	here, there string
	span, at    syntax.Span // of this and of the earlier use
}

// join notes that the values have this shape, too.
func (s *shape) join(values []*expr, isTuple bool, at syntax.Span) *clash {
	if !s.known {
		*s = shape{known: true, tuple: isTuple, columns: make([]fact, len(values)), at: at}
	}
	if s.tuple != isTuple || len(s.columns) != len(values) {
		types := make([]event.Type, len(values))
		for i, v := range values {
			types[i] = v.typ
		}
		return &clash{-1, describeShape(types, isTuple), describeShape(s.types(), s.tuple), at, s.at}
	}
	for i, v := range values {
		if f := &s.columns[i]; !f.join(v) {
			return &clash{i, sortOf(v.typ), sortOf(f.typ), v.span, f.at}
		}
	}
	return nil
}

func describeShape(types []event.Type, isTuple bool) string {
	if isTuple {
		return fmt.Sprintf("a tuple of %d", len(types))
	}
	return sortOf(types[0])
}

func (s *shape) types() []event.Type {
	types := make([]event.Type, len(s.columns))
	for i, f := range s.columns {
		types[i] = f.typeSoFar()
	}
	return types
}

func (s *shape) list() []column {
	columns := make([]column, len(s.columns))
	for i, f := range s.columns {
		columns[i] = f.column()
	}
	return columns
}

// typed tells whether all is known.
func (s *shape) typed() bool {
	return s.known && !slices.ContainsFunc(s.columns, func(f fact) bool { return !f.known })
}

func (s *shape) equal(t shape) bool {
	return s.known == t.known && s.tuple == t.tuple && slices.Equal(s.columns, t.columns)
}

// single is the type of a value that is no tuple, or nil.
func (s *shape) single() *event.Type {
	if !s.known || s.tuple || !s.columns[0].known {
		return nil
	}
	return &s.columns[0].typ
}

// mapUses is what the uses of a map say of it.
type mapUses struct {
	info    *mapInfo
	written bool // somewhere in the program
	// value is also the shape of what is aggregated.
	key, value shape
	// how the map is written: "" if that is not known yet, "a value", or an aggregation like "count()".
	how   string
	howAt syntax.Span
	agg   agg.Func
	// names are those of the elements of the key.
	names []columnName
}

// settled copies what the uses say to the map.
func (m *mapUses) settled() {
	m.info.key, m.info.value, m.info.isTuple = m.key.list(), m.value.list(), m.value.tuple
	m.info.names = m.columnNames()
	if m.agg == nil {
		for i := range m.info.value {
			// A scalar is not set to an absent value; an element of a tuple may be.
			m.info.value[i].optional = m.info.value[i].optional && m.info.isTuple
		}
		return
	}
	a := agg.Agg{Func: m.agg}
	for i := range m.info.value {
		a.Signed = a.Signed || m.info.value[i].typ.Kind == event.Int
		m.info.value[i].optional = false
	}
	m.info.agg = &a
}

// varUses is what the uses of a variable say of it.
type varUses struct {
	*variable
	value shape
	// loop is the map whose entries the variable runs over, or nil.
	loop *mapUses
}

// settled copies what the uses say to the variable.
func (v *varUses) settled() { v.typ, v.elems, v.optional = v.typeSoFar() }

// typeSoFar is the type of the variable, the types of its elements if it is a tuple, and whether it may be absent.
func (v *varUses) typeSoFar() (t event.Type, elems []event.Type, optional bool) {
	switch {
	case v.loop != nil:
		return event.Type{Kind: format.Tuple}, v.loop.entryTypes(), false
	case v.value.tuple:
		return event.Type{Kind: format.Tuple}, v.value.types(), false
	}
	return v.value.typeOf(false), nil, v.value.known && v.value.columns[0].optional
}

// entryTypes are those of an entry's key and value.
func (m *mapUses) entryTypes() []event.Type {
	return []event.Type{m.key.typeOf(len(m.key.columns) > 1), m.value.typeOf(m.value.tuple)}
}

// analysis checks the clauses of a program, or of what might be one.
type analysis struct {
	*resolver
	maps   []*mapUses // in the order of the text
	byName map[string]*mapUses
	vars   map[declaration]*varUses
	// changed says that this pass has found a new fact, final that there are no new ones.
	changed, final bool
	// cgroups are the ids of the paths that were asked for, 0 if there is no such cgroup.
	cgroups map[string]uint64
}

// declaration is where a variable of a clause begins.
type declaration struct {
	clause *Clause
	stmt   syntax.Stmt
}

func newAnalysis(r *resolver, clauses []*Clause) *analysis {
	a := &analysis{resolver: r, byName: map[string]*mapUses{}, vars: map[declaration]*varUses{}, cgroups: map[string]uint64{}}
	for _, c := range clauses {
		a.findMaps(c)
	}
	return a
}

// run checks all clauses for all their probes, and returns the checkers of the last pass.
func (a *analysis) run(clauses []*Clause) []*checker {
	for a.changed = true; a.changed; {
		a.changed = false
		a.pass(clauses)
	}
	for _, m := range a.maps {
		m.settled()
	}
	for _, v := range a.vars {
		v.settled()
	}
	a.final = true
	return a.pass(clauses)
}

func (a *analysis) pass(clauses []*Clause) []*checker {
	var all []*checker
	for _, c := range clauses {
		for _, p := range c.places() {
			ch := a.checker(c, p)
			ch.clauseBody()
			all = append(all, ch)
		}
	}
	return all
}

// findMaps notes the maps of a clause.
func (a *analysis) findMaps(c *Clause) {
	expression := func(n ast.Node) {
		if n != nil {
			syntax.Walk(n, func(n ast.Node) bool {
				if ref, ok := n.(*syntax.MapRef); ok {
					a.addMap(ref)
				}
				return true
			})
		}
	}
	expression(c.tree.Pred)
	syntax.WalkStmts(c.tree.Body, func(s syntax.Stmt) {
		switch s := s.(type) {
		case *syntax.Assign:
			expression(s.Target)
			expression(s.Value)
			if ref, ok := s.Target.(*syntax.MapRef); ok {
				a.mapOf(ref.Name).written = true
			}
		case *syntax.If:
			expression(s.Cond)
		case *syntax.For:
			expression(s.In)
		case *syntax.Call:
			expression(s.Call)
		}
	})
}

func (a *analysis) addMap(ref *syntax.MapRef) {
	if a.mapOf(ref.Name) == nil {
		m := &mapUses{info: &mapInfo{name: ref.Name, span: syntax.SpanOf(ref)}}
		a.maps, a.byName[ref.Name] = append(a.maps, m), m
	}
}

// mapOf returns the map called name, or nil.
func (a *analysis) mapOf(name string) *mapUses { return a.byName[name] }

// variable returns the one that stmt declares.
func (a *analysis) variable(c *Clause, stmt syntax.Stmt, name string) *varUses {
	at := declaration{c, stmt}
	if a.vars[at] == nil {
		v := &variable{name: name, index: len(c.vars)}
		c.vars = append(c.vars, v)
		a.vars[at] = &varUses{variable: v}
	}
	return a.vars[at]
}

// varOf returns what is known of a variable.
func (a *analysis) varOf(v *variable) *varUses {
	for _, known := range a.vars {
		if known.variable == v {
			return known
		}
	}
	return nil
}

// note joins values to what is known.
func (a *analysis) note(s *shape, values []*expr, isTuple bool, at syntax.Span) *clash {
	before := *s
	before.columns = slices.Clone(s.columns)
	found := s.join(values, isTuple, at)
	a.changed = a.changed || !s.equal(before)
	return found
}

// complete reports maps that are never written, and types that nothing tells.
func (a *analysis) complete() {
	for _, m := range a.maps {
		if !m.written {
			a.fail(m.info.span, fmt.Sprintf("%s is never set", m.info.name), a.writtenMaps(m.info.name))
		}
	}
	if len(a.errs) > 0 {
		return
	}
	for _, m := range a.maps {
		if !m.key.typed() || !m.value.typed() {
			a.untold(m.info.span, m.info.name)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(a.vars), func(x, y declaration) int { return x.stmt.Pos().From - y.stmt.Pos().From }) {
		if v := a.vars[at]; v.loop == nil && !v.value.typed() {
			a.untold(at.stmt.Pos(), v.name)
		}
	}
}

func (a *analysis) untold(at syntax.Span, name string) {
	a.fail(at, fmt.Sprintf("nothing tells what %s holds", name), "it is set only to what it holds itself")
}

func (a *analysis) writtenMaps(name string) string {
	var names []string
	for _, m := range a.maps {
		if m.written {
			names = append(names, m.info.name)
		}
	}
	if help := didYouMean(name, names); help != "" {
		return help
	}
	return fmt.Sprintf("set it in some clause: %s = count()", name)
}

// place is the line and column of a span, for a message about another.
func (a *analysis) place(at syntax.Span) string {
	e := a.source.Error(at, "", "")
	return fmt.Sprintf("at %d:%d", e.Line, e.Col)
}

// earlier says where the earlier use is: a field may be of another type in another probe.
func (a *analysis) earlier(found *clash) string {
	if found.span == found.at {
		return "for another probe of the clause"
	}
	return a.place(found.at)
}
