package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types keys and reads of maps, and tuples, which are keys and values with several elements.

// exprs types several expressions. ok is false after a mistake in one of them.
func (c *checker) exprs(nodes []ast.Node, want func(i int) *event.Type) (out []*ir.Expr, ok bool) {
	ok = true
	for i, n := range c.inOrder(nodes) {
		e := c.expr(n, want(i))
		ok = ok && e != nil
		out = append(out, e)
	}
	return out, ok
}

// key types the key of a use of a map that needs one certain key. A map with ranked keys does not offer that: which keys it keeps
// is not certain.
func (c *checker) key(m *mapUses, elements []ast.Node, at syntax.Span) (key []*ir.Expr, ok bool) {
	if m.ranks() {
		c.fail(at, fmt.Sprintf("%s is ranked by %s, so its keys cannot be looked up", m.info.Name, m.how), fmt.Sprintf("use print(%s) or clear(%[1]s)", m.info.Name))
		return nil, false
	}
	return c.noteKey(m, elements, at)
}

// noteKey types the key of a use of a map, and notes its shape as a key of the map.
func (c *checker) noteKey(m *mapUses, elements []ast.Node, at syntax.Span) (key []*ir.Expr, ok bool) {
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
	if len(key) == 1 && key[0].Type.Kind == ir.Pending {
		return nil, false
	}
	for i, e := range key {
		if key[i] = c.together(e); key[i] == nil {
			return nil, false
		}
	}
	whole, ok := c.flat(at, key, nil, "a key")
	if len(key) == 1 && key[0].Type.Kind == format.Tuple && !isRecord(key[0]) && !isArray(key[0]) { // @x[(a, b)] is @x[a, b]
		whole, ok = c.elements(key[0])
		whole.tuple = true
	}
	whole = m.key.inOrder(whole)
	if !ok {
		return nil, false
	}
	if clash := c.note(&m.key, whole, at); clash != nil {
		c.keyClash(m, len(whole.values), clash, at)
		return nil, false
	}
	if !c.nameColumns(m, nodes, given, key, whole) {
		return nil, false
	}
	return conform(&m.key, whole.values), true
}

// isRecord reports whether a tuple names its elements.
func isRecord(e *ir.Expr) bool { return e.Form != nil && e.Form.Names != nil }

// flat puts the values of tuples among parts of a key or of a tuple, named by what, in a row.
func (c *checker) flat(at syntax.Span, parts []*ir.Expr, names []string, what string) (whole row, ok bool) {
	forms := make([]*format.Form, len(parts))
	for i, e := range parts {
		if e.Type.Kind == format.Array {
			return row{}, c.scalar(e, "an element of "+what)
		}
		part, ok := c.elements(e)
		if !ok {
			return row{}, false
		}
		if part.tuple {
			forms[i] = part.form.Full(len(part.values))
		}
		if whole.values = append(whole.values, part.values...); !c.fitsTuple(at, len(whole.values), what) {
			return row{}, false
		}
	}
	whole.tuple, whole.form = true, format.NewForm(names, forms)
	return whole, true
}

// tupleOf makes the node of a tuple.
func tupleOf(r row, at syntax.Span) *ir.Expr {
	e := ir.Operation(ir.OpTuple, event.Type{Kind: format.Tuple}, r.values...)
	for _, v := range r.values {
		e.Elems = append(e.Elems, v.Type)
	}
	e.Form, e.Span = r.form.Needed(), at
	return e
}

func (c *checker) keyClash(m *mapUses, n int, found *clash, at syntax.Span) {
	if found.index < 0 {
		here, there := keyOf(n), keyOf(len(m.key.columns))
		if here == there {
			here, there = "the key "+found.here, found.there
		}
		c.fail(at, fmt.Sprintf("%s has %s here and %s %s", m.info.Name, here, there, c.earlier(found)),
			"all uses of a map must have keys of the same type")
		return
	}
	what := "the key of " + m.info.Name
	if n > 1 {
		what = fmt.Sprintf("element %d of %s", found.index+1, what)
	}
	c.fail(at, fmt.Sprintf("%s is %s here and %s %s", what, found.here, found.there, c.earlier(found)),
		"all uses of a map must have keys of the same type")
}

func keyOf(n int) string {
	switch n {
	case 0:
		return "no key"
	case 1:
		return "a key of 1 element"
	}
	return fmt.Sprintf("a key of %d elements", n)
}

// scalar checks that e is a single value.
func (c *checker) scalar(e *ir.Expr, what string) bool {
	if e.Type.Kind != format.Tuple && e.Type.Kind != format.Array {
		return true
	}
	c.fail(e.Span, fmt.Sprintf("%s must be a single value, not %s", what, describe(e)), elementsHelp(e))
	return false
}

func elementsHelp(e *ir.Expr) string {
	if e.Type.Kind == format.Array {
		return "join(list) makes a string of it; first, last, len and others read it"
	}
	return "write .0, .1 … for its elements"
}

// elements splits a tuple into its elements. A value that is not a tuple is its own only element.
func (c *checker) elements(e *ir.Expr) (all row, ok bool) {
	switch {
	case isLoopVar(e):
		pair := c.together(e)
		if pair == nil {
			return row{}, false
		}
		return c.elements(pair)
	case e.Type.Kind == format.Array:
		return row{}, c.scalar(e, "the value of an assignment")
	case e.Type.Kind != format.Tuple:
		return row{values: []*ir.Expr{e}}, true
	}
	return row{c.membersOf(e), true, e.Form}, true
}

// membersOf returns the values of a tuple.
func (c *checker) membersOf(e *ir.Expr) (all []*ir.Expr) {
	if e.Op == ir.OpTuple {
		return e.Args
	}
	for i := range e.Elems {
		all = append(all, c.memberOf(e, i))
	}
	return all
}

// partsOf returns the elements of a tuple that is written as one or is in a variable; nil of other values.
func (c *checker) partsOf(e *ir.Expr) []*ir.Expr {
	if e.Op == ir.OpTuple || e.Op == ir.OpVar && e.Type.Kind == format.Tuple && !isLoopVar(e) {
		return c.membersOf(e)
	}
	return nil
}

func (c *checker) partsOfAll(list []*ir.Expr) (all [][]*ir.Expr) {
	for _, e := range list {
		all = append(all, c.partsOf(e))
	}
	return all
}

// together makes a loop variable a tuple of key and value, unless the value is not a single one. Other values stay.
func (c *checker) together(e *ir.Expr) *ir.Expr {
	if !isLoopVar(e) {
		return e
	}
	key, value := c.memberOf(e, 0), c.memberOf(e, 1)
	if value == nil {
		return nil
	}
	pair, ok := c.flat(e.Span, []*ir.Expr{key, value}, nil, "a map")
	if !ok {
		return nil
	}
	return tupleOf(pair, e.Span)
}

// tuple types (a, b) and (x = a, y = b).
func (c *checker) tuple(n *syntax.Tuple) *ir.Expr {
	nodes, given := namesOfKey(n.Elems)
	names, named := c.recordNames(n, given)
	elems, ok := c.exprs(nodes, func(i int) *event.Type { return c.paired[nodes[i]] })
	if !ok || !named {
		return nil
	}
	whole, ok := c.flat(syntax.SpanOf(n), elems, names, "a tuple")
	if !ok {
		return nil
	}
	return tupleOf(whole, syntax.SpanOf(n))
}

// recordNames returns the names of the elements of a record, or nil for a tuple.
func (c *checker) recordNames(n *syntax.Tuple, given []*syntax.NamedArg) (names []string, ok bool) {
	for i, name := range given {
		switch {
		case (name == nil) != (given[0] == nil):
			c.fail(syntax.SpanOf(n.Elems[i]), "some elements have a name, and some have none", "name all elements of a record, or none of a tuple")
			return nil, false
		case name == nil:
		case slices.Contains(names, name.Name):
			c.fail(syntax.SpanOf(name), fmt.Sprintf("two elements of the record are called %s", name.Name), "give each element a name of its own")
			return nil, false
		default:
			names = append(names, name.Name)
		}
	}
	return names, true
}

// member types $t.0 and $r.name.
func (c *checker) member(n *syntax.Member) *ir.Expr {
	of := c.expr(n.Of, nil)
	switch {
	case of == nil:
		return nil
	case of.Type.Kind == ir.Pending:
		return &ir.Expr{Op: ir.OpMember, Args: []*ir.Expr{of}, Index: n.Index, Type: of.Type}
	case of.Type.Kind == event.String && n.Name == "":
		return c.byteOf(n, of)
	case of.Type.Kind != format.Tuple:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s has no elements", describe(of)), "")
	case isLoopVar(of) && n.Name == "" && n.Index < len(of.Elems):
		return c.memberOf(of, n.Index)
	}
	form := of.Form.Full(len(of.Elems))
	part, ok := c.partOf(n, form)
	if !ok {
		return nil
	}
	from := form.From(part)
	if form.Parts[part] == nil {
		return c.memberOf(of, from)
	}
	whole, ok := c.elements(of)
	if !ok {
		return nil
	}
	to := from + form.Parts[part].Width()
	return tupleOf(row{whole.values[from:to], true, form.Parts[part]}, syntax.SpanOf(n))
}

// byteOf types $s[0], a byte of a string. A literal ends with a NUL, as in C.
func (c *checker) byteOf(n *syntax.Member, of *ir.Expr) *ir.Expr {
	size := of.Type.Size
	if c.final && of.Op != ir.OpVar && n.Index >= size {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("the string has room for %d bytes", size), "the first one is [0]")
	}
	e := ir.Operation(ir.OpByte, event.Type{Kind: event.Int, Size: 1}, of)
	e.Index = n.Index
	return e
}

// partOf returns the number of a member.
func (c *checker) partOf(n *syntax.Member, form *format.Form) (part int, ok bool) {
	at := syntax.SpanOf(n)
	switch part = form.Index(n.Name); {
	case n.Name != "" && form.Names == nil:
		c.fail(at, fmt.Sprintf("the elements of the tuple have no names, so there is no .%s", n.Name), "write .0, .1 …")
	case n.Name != "" && part < 0:
		c.fail(at, fmt.Sprintf("the record has no element called %s", n.Name), cmp.Or(syntax.DidYouMean(n.Name, form.Names), "it has "+syntax.Enumerate(form.Names)))
	case n.Name != "":
		return part, true
	case form.Names != nil:
		c.fail(at, "the elements of a record have names", "it has "+syntax.Enumerate(form.Names))
	case n.Index >= len(form.Parts):
		c.fail(at, fmt.Sprintf("the tuple has %d elements", len(form.Parts)), "write .0, .1 …")
	default:
		return n.Index, true
	}
	return 0, false
}

// memberOf makes the node of an element of a tuple. It returns nil after a mistake.
func (c *checker) memberOf(of *ir.Expr, i int) *ir.Expr {
	e := &ir.Expr{Op: ir.OpMember, Args: []*ir.Expr{of}, Index: i, Type: of.Elems[i], Span: of.Span}
	switch {
	case of.Op == ir.OpTuple:
		e.Optional = of.Args[i].Optional
	case !isLoopVar(of):
		e.Optional = c.shapeOf(of).columns[i].optional
	case i == 1 && !c.readable(c.loopMap(of), of.Span):
		return nil
	case e.Type.Kind == format.Tuple:
		e.Elems, e.Form = c.shapeOf(e).types(), c.shapeOf(e).form
	case i == 0 && len(c.shapeOf(e).columns) == 1:
		key := c.shapeOf(e)
		if e.Optional = key.columns[0].optional; key.form != nil {
			e = tupleOf(row{[]*ir.Expr{e}, true, key.form}, of.Span)
		}
	}
	if i == 0 && isLoopVar(of) && e.Form != nil && len(e.Form.Parts) == 1 { // a key that is a record
		e = tupleOf(row{c.membersOf(e), true, e.Form.Parts[0]}, of.Span)
	}
	return e
}

// loopMap returns the map whose elements the loop variable e runs over.
func (c *checker) loopMap(e *ir.Expr) *mapUses { return c.mapOf(e.Variable.LoopOver.Name) }

// shapeOf returns the shape of a tuple that a map or a variable holds, or of the key or the value of a loop variable.
func (c *checker) shapeOf(e *ir.Expr) *shape {
	switch {
	case e.Op == ir.OpLookup:
		return &c.mapOf(e.Map.Name).value
	case e.Op == ir.OpVar:
		return &c.varOf(e.Variable).value
	case e.Index == 0:
		return &c.loopMap(e.Args[0]).key
	}
	return &c.loopMap(e.Args[0]).value
}

// lookup types @m[key]: a scalar, or the number that an aggregation yields.
func (c *checker) lookup(n *syntax.MapRef) *ir.Expr {
	m := c.mapOf(n.Name)
	key, ok := c.key(m, n.Key, syntax.SpanOf(n))
	if !ok || !c.readable(m, syntax.SpanOf(n)) {
		return nil
	}
	return c.read(m, key)
}

// read makes the node of a read of a map.
func (c *checker) read(m *mapUses, key []*ir.Expr) *ir.Expr {
	e := ir.Operation(ir.OpLookup, m.value.typeOf(m.value.tuple), key...)
	e.Map = m.info
	if m.value.tuple {
		e.Elems, e.Form = m.value.types(), m.value.form
	}
	return e
}

// readable checks that the value of a map is a single number.
func (c *checker) readable(m *mapUses, at syntax.Span) bool {
	if !m.many() {
		return true
	}
	c.fail(at, fmt.Sprintf("%s holds %s, which is not a number", m.info.Name, m.how), fmt.Sprintf("write print(%s) to print it", m.info.Name))
	return false
}

// hasKey types has_key(@m, key).
func (c *checker) hasKey(n *ast.CallNode) *ir.Expr {
	m, nodes, at := c.mapAndKey(n, "has_key")
	if m == nil {
		return nil
	}
	if len(nodes) == 0 {
		return c.fail(syntax.SpanOf(n), "has_key() needs a key", fmt.Sprintf("write has_key(%s, key)", m.info.Name))
	}
	key, ok := c.key(m, nodes, at)
	if !ok {
		return nil
	}
	return hasKey(m.info, key, syntax.SpanOf(n))
}

// hasKey makes the node that asks for a key of a map, or for a value of a map without keys.
func hasKey(m *ir.Map, key []*ir.Expr, at syntax.Span) *ir.Expr {
	e := ir.Operation(ir.OpHasKey, ir.Boolean, key...)
	e.Map, e.Span = m, at
	return e
}

// mapAndKey reads the arguments (@m, key…) or (@m[key]). The map is nil after a mistake.
func (c *checker) mapAndKey(n *ast.CallNode, fn string) (m *mapUses, key []ast.Node, at syntax.Span) {
	at = syntax.SpanOf(n)
	if len(n.Arguments) == 0 {
		c.fail(at, fn+"() needs a map", fmt.Sprintf("write %s(@map, key)", fn))
		return nil, nil, at
	}
	ref, ok := n.Arguments[0].(*syntax.MapRef)
	switch {
	case !ok:
		c.fail(syntax.SpanOf(n.Arguments[0]), fn+"() needs a map", fmt.Sprintf("write %s(@map, key)", fn))
		return nil, nil, at
	case ref.Key != nil && len(n.Arguments) > 1:
		c.fail(syntax.SpanOf(n.Arguments[1]), "the map already has a key", fmt.Sprintf("write %s(%s, key)", fn, ref.Name))
		return nil, nil, at
	case ref.Key != nil:
		return c.mapOf(ref.Name), ref.Key, at
	}
	return c.mapOf(ref.Name), n.Arguments[1:], at
}

func (c *checker) mapContext(n *syntax.MapRef) *event.Type { return c.mapOf(n.Name).value.single() }

// memberContext types the member without reporting its mistakes. They are reported when the member itself is typed.
func (c *checker) memberContext(n *syntax.Member) *event.Type {
	errs, unknown, fields := c.errs, c.unknown, c.fields
	e := c.expr(n, nil)
	c.errs, c.unknown, c.fields = errs, unknown, fields
	if e == nil || e.Type.Kind == ir.Pending {
		return nil
	}
	return &e.Type
}

// comparableTuples reports whether the elements of a and b are of the same sorts.
func (c *checker) comparableTuples(n ast.Node, a, b *ir.Expr) bool {
	same := len(a.Elems) == len(b.Elems) && a.Form.Equal(b.Form)
	for i := 0; same && i < len(a.Elems); i++ {
		x, y := a.Elems[i], b.Elems[i]
		same = x.Kind == ir.Pending || y.Kind == ir.Pending || format.SortOf(x) == format.SortOf(y)
	}
	if !same {
		c.fail(syntax.SpanOf(n), "the tuples have different types", "")
	}
	return same
}

// setMap types an assignment to a map.
func (c *checker) setMap(s *syntax.Assign, ref *syntax.MapRef) ir.Stmt {
	m := c.mapOf(ref.Name)
	if call, fn := aggregationCall(s.Value); fn != "" && s.Op == "=" {
		return c.updateMap(s, ref, m, call, fn)
	}
	key, ok := c.key(m, ref.Key, syntax.SpanOf(ref))
	value := c.newValue(s, m, key)
	if value == nil || !ok || !c.kept(m, "a value", nil, s.Span) {
		return nil
	}
	row, ok := c.elements(value)
	row = m.value.inOrder(row)
	if !ok || !c.holds(&m.value, row, m.info.Name, s.Span) {
		return nil
	}
	return &ir.SetStmt{Map: m.info, Key: key, Adds: isDelta(s.Op), Value: conform(&m.value, row.values), Span: s.Span}
}

// updateMap types @m[key] = aggregation. If the aggregation ranks, what it ranks becomes a part of the key.
func (c *checker) updateMap(s *syntax.Assign, ref *syntax.MapRef, m *mapUses, call *ast.CallNode, fn string) ir.Stmt {
	elements := ref.Key
	ranked := rankedBy(call, fn)
	if ranked != nil {
		elements = slices.Concat(elementsOf(ref.Key), ranked)
	}
	key, ok := c.noteKey(m, elements, syntax.SpanOf(ref))
	update := c.aggregate(m, call, fn)
	if !ok || update == nil || !c.ranked(m, len(key), m.ownColumns(elements, ranked), s.Span) {
		return nil
	}
	update.Key, update.Span = key, s.Span
	return update
}
