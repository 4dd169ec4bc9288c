package lang

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types keys and reads of maps, and tuples, which are keys and values of several elements.

// exprs types several expressions; not ok after a mistake in one of them.
func (c *checker) exprs(nodes []ast.Node, want func(i int) *event.Type) (out []*expr, ok bool) {
	ok = true
	for i, n := range nodes {
		e := c.expr(n, want(i))
		ok = ok && e != nil
		out = append(out, e)
	}
	return out, ok
}

// key types the key of a use of a map, which tells what keys the map has.
func (c *checker) key(m *mapUses, elements []ast.Node, at syntax.Span) (key []*expr, ok bool) {
	nodes, given := namesOfKey(elements)
	key, ok = c.exprs(nodes, func(i int) *event.Type {
		if i < len(m.key.columns) && m.key.columns[i].known {
			return &m.key.columns[i].typ
		}
		return nil
	})
	if !ok {
		return nil, false
	}
	if len(key) == 1 { // @x[(a, b)] is @x[a, b]
		if key[0].typ.Kind == pending {
			return nil, false
		}
		if key, _, ok = c.elements(key[0]); !ok {
			return nil, false
		}
	}
	for _, e := range key {
		if !c.scalar(e, "an element of a key") {
			return nil, false
		}
	}
	if clash := c.note(&m.key, key, true, at); clash != nil {
		c.keyClash(m, len(key), clash, at)
		return nil, false
	}
	if !c.nameColumns(m, nodes, given, key) {
		return nil, false
	}
	return conform(&m.key, key), true
}

func (c *checker) keyClash(m *mapUses, n int, found *clash, at syntax.Span) {
	if found.index < 0 {
		c.fail(at, fmt.Sprintf("%s has %s here and %s %s", m.info.name, keyOf(n), keyOf(len(m.key.columns)), c.earlier(found)),
			"all uses of a map have keys of one type")
		return
	}
	what := "the key of " + m.info.name
	if n > 1 {
		what = fmt.Sprintf("element %d of %s", found.index+1, what)
	}
	c.fail(at, fmt.Sprintf("%s is %s here and %s %s", what, found.here, found.there, c.earlier(found)),
		"all uses of a map have keys of one type")
}

func keyOf(n int) string {
	switch n {
	case 0:
		return "no key"
	case 1:
		return "a key of 1 value"
	}
	return fmt.Sprintf("a key of %d values", n)
}

// conform makes values what the columns are: signed where one use is.
func conform(s *shape, values []*expr) []*expr {
	out := slices.Clone(values)
	for i, f := range s.columns {
		if f.known && f.typ.Kind == event.Int {
			out[i] = signed(out[i])
		}
	}
	return out
}

// scalar makes sure that e is one value.
func (c *checker) scalar(e *expr, what string) bool {
	if e.typ.Kind != format.Tuple && e.typ.Kind != format.Array {
		return true
	}
	c.fail(e.span, fmt.Sprintf("%s is one value, and this is %s", what, describe(e)), elementsHelp(e))
	return false
}

func elementsHelp(e *expr) string {
	if e.typ.Kind == format.Array {
		return "join(list) makes a string of it, and first, last, len … read it"
	}
	return "its elements are .0, .1 …"
}

// elements takes a tuple apart. What is no tuple is its own only element.
func (c *checker) elements(e *expr) (all []*expr, isTuple, ok bool) {
	switch {
	case isEntry(e):
		c.fail(e.span, fmt.Sprintf("%s is an entry, with a key and a value", e.variable.name), fmt.Sprintf("write %s.0 for the key, %[1]s.1 for the value", e.variable.name))
		return nil, false, false
	case e.typ.Kind == format.Array:
		c.scalar(e, "what is kept")
		return nil, false, false
	case e.typ.Kind != format.Tuple:
		return []*expr{e}, false, true
	case e.op == opTuple:
		return e.args, true, true
	}
	for i := range e.elems {
		all = append(all, c.memberOf(e, i))
	}
	return all, true, true
}

// tuple types (a, b).
func (c *checker) tuple(n *syntax.Tuple) *expr {
	elems, ok := c.exprs(n.Elems, func(int) *event.Type { return nil })
	if !ok {
		return nil
	}
	e := operation(opTuple, event.Type{Kind: format.Tuple}, elems...)
	for _, elem := range elems {
		if !c.scalar(elem, "an element of a tuple") {
			return nil
		}
		e.elems = append(e.elems, elem.typ)
	}
	return e
}

// member types $t.0.
func (c *checker) member(n *syntax.Member) *expr {
	of := c.expr(n.Of, nil)
	switch {
	case of == nil:
		return nil
	case of.typ.Kind == pending:
		return &expr{op: opMember, args: []*expr{of}, index: n.Index, typ: of.typ}
	case of.typ.Kind != format.Tuple:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s has no elements", describe(of)), "")
	case n.Index >= len(of.elems):
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("the tuple has %d elements", len(of.elems)), "they are .0, .1 …")
	}
	return c.memberOf(of, n.Index)
}

// memberOf makes the node of an element of a tuple; nil after a mistake.
func (c *checker) memberOf(of *expr, i int) *expr {
	e := &expr{op: opMember, args: []*expr{of}, index: i, typ: of.elems[i], span: of.span}
	switch {
	case of.op == opTuple:
		e.optional = of.args[i].optional
	case !isEntry(of):
		e.optional = c.shapeOf(of).columns[i].optional
	case i == 1 && !c.readable(c.entries(of), of.span):
		return nil
	case e.typ.Kind == format.Tuple:
		e.elems = c.shapeOf(e).types()
	case i == 0 && len(c.shapeOf(e).columns) == 1:
		e.optional = c.shapeOf(e).columns[0].optional
	}
	return e
}

// isEntry tells whether e is the loop variable of a for over a map.
func isEntry(e *expr) bool { return e.op == opVar && e.variable.entryOf != nil }

// entries returns the map over whose entries the loop variable e runs.
func (c *checker) entries(e *expr) *mapUses { return c.mapOf(e.variable.entryOf.name) }

// shapeOf returns what is known of a tuple that a map or a variable holds, or of the key or value of an entry.
func (c *checker) shapeOf(e *expr) *shape {
	switch {
	case e.op == opLookup:
		return &c.mapOf(e.m.name).value
	case e.op == opVar:
		return &c.varOf(e.variable).value
	case e.index == 0:
		return &c.entries(e.args[0]).key
	}
	return &c.entries(e.args[0]).value
}

// typeOf returns the type of a value of this shape.
func (s *shape) typeOf(isTuple bool) event.Type {
	switch {
	case !s.known:
		return event.Type{Kind: pending}
	case isTuple:
		return event.Type{Kind: format.Tuple}
	case len(s.columns) == 0:
		return natural64
	}
	return s.columns[0].typeSoFar()
}

// lookup types @m[key]: a scalar, or the number of an aggregation.
func (c *checker) lookup(n *syntax.MapRef) *expr {
	m := c.mapOf(n.Name)
	key, ok := c.key(m, n.Key, syntax.SpanOf(n))
	if !ok || !c.readable(m, syntax.SpanOf(n)) {
		return nil
	}
	return c.read(m, key)
}

// read makes the node of a read of a map.
func (c *checker) read(m *mapUses, key []*expr) *expr {
	e := operation(opLookup, m.value.typeOf(m.value.tuple), key...)
	e.m = m.info
	if m.value.tuple {
		e.elems = m.value.types()
	}
	return e
}

// readable makes sure that the value of a map is one number, and not many.
func (c *checker) readable(m *mapUses, at syntax.Span) bool {
	if m.agg == nil || !m.agg.Traits().Many {
		return true
	}
	c.fail(at, fmt.Sprintf("%s holds %s, which is no number", m.info.name, m.how), fmt.Sprintf("print(%s) writes it", m.info.name))
	return false
}

// hasKey types has_key(@m, key).
func (c *checker) hasKey(n *ast.CallNode) *expr {
	m, nodes, at := c.mapAndKey(n, "has_key")
	if m == nil {
		return nil
	}
	if len(nodes) == 0 {
		return c.fail(syntax.SpanOf(n), "has_key() wants a key", fmt.Sprintf("write has_key(%s, key)", m.info.name))
	}
	key, ok := c.key(m, nodes, at)
	if !ok {
		return nil
	}
	e := operation(opHasKey, boolean, key...)
	e.m = m.info
	return e
}

// mapAndKey reads the arguments (@m, key…) or (@m[key]). The map is nil after a mistake.
func (c *checker) mapAndKey(n *ast.CallNode, fn string) (m *mapUses, key []ast.Node, at syntax.Span) {
	at = syntax.SpanOf(n)
	if len(n.Arguments) == 0 {
		c.fail(at, fn+"() wants a map", fmt.Sprintf("write %s(@map, key)", fn))
		return nil, nil, at
	}
	ref, ok := n.Arguments[0].(*syntax.MapRef)
	switch {
	case !ok:
		c.fail(syntax.SpanOf(n.Arguments[0]), fn+"() wants a map", fmt.Sprintf("write %s(@map, key)", fn))
		return nil, nil, at
	case ref.Key != nil && len(n.Arguments) > 1:
		c.fail(syntax.SpanOf(n.Arguments[1]), "the map has its key already", fmt.Sprintf("write %s(%s, key)", fn, ref.Name))
		return nil, nil, at
	case ref.Key != nil:
		return c.mapOf(ref.Name), ref.Key, at
	}
	return c.mapOf(ref.Name), n.Arguments[1:], at
}

func (c *checker) mapContext(n *syntax.MapRef) *event.Type { return c.mapOf(n.Name).value.single() }

// memberContext types the member without a trace of its mistakes, which are noted when its turn comes.
func (c *checker) memberContext(n *syntax.Member) *event.Type {
	errs, unknown, fields := c.errs, c.unknown, c.fields
	e := c.expr(n, nil)
	c.errs, c.unknown, c.fields = errs, unknown, fields
	if e == nil || e.typ.Kind == pending {
		return nil
	}
	return &e.typ
}

// comparableTuples tells whether a and b have elements of the same sorts.
func (c *checker) comparableTuples(n ast.Node, a, b *expr) bool {
	same := len(a.elems) == len(b.elems)
	for i := 0; same && i < len(a.elems); i++ {
		x, y := a.elems[i], b.elems[i]
		same = x.Kind == pending || y.Kind == pending || sortOf(x) == sortOf(y)
	}
	if !same {
		c.fail(syntax.SpanOf(n), "these tuples have elements of other types", "")
	}
	return same
}
