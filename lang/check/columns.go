package check

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file names the elements of keys. Tables use the names in their heads, and programs in JSON and CSV.

// namesOfKey separates the elements of a key from their names. An element without a name has nil.
func namesOfKey(elements []ast.Node) (nodes []ast.Node, given []*syntax.NamedArg) {
	nodes, given = slices.Clone(elements), make([]*syntax.NamedArg, len(elements))
	for i, n := range elements {
		if named, ok := n.(*syntax.NamedArg); ok {
			nodes[i], given[i] = named.Value, named
		}
	}
	return nodes, given
}

// nameColumns notes the names of the elements of a key. All uses of the map must agree on the names that the program gives.
func (c *checker) nameColumns(m *mapUses, nodes []ast.Node, given []*syntax.NamedArg, parts []*ir.Expr, key row) bool {
	if len(m.names) != len(key.values) {
		m.names = make([]columnName, len(key.values))
	}
	at := 0
	for i, part := range parts {
		paths := pathsOf(part)
		switch {
		case len(paths) != 1 && given[i] != nil:
			c.fail(syntax.SpanOf(given[i]), fmt.Sprintf("%s would name %d elements", given[i].Name, len(paths)), "give each element a name: @x[a = 1, b = 2]")
			return false
		case given[i] != nil && !c.giveName(m, at, given[i]):
			return false
		case given[i] == nil:
			c.deriveNames(m, at, nodes[i], part, paths, key)
		}
		at += len(paths)
	}
	return true
}

// pathsOf returns how each value of a part of a key is reached.
func pathsOf(part *ir.Expr) []string {
	if part.Type.Kind != format.Tuple {
		return []string{""}
	}
	return part.Form.Full(len(part.Elems)).Paths()
}

// deriveNames names the values of a part of a key from the place at on.
func (c *checker) deriveNames(m *mapUses, at int, n ast.Node, part *ir.Expr, paths []string, key row) {
	for i, path := range paths {
		switch {
		case isRecord(part):
		case path == "" || len(paths) == 1:
			path = syntax.Print(n)
		default:
			path = syntax.Print(n) + "." + path
		}
		m.derive(at+i, path, key.values[at+i])
	}
}

// derive names an element after its field, or after the text of the expression.
func (m *mapUses) derive(i int, text string, e *ir.Expr) {
	if m.names[i].text != "" {
		return
	}
	if e.Op == ir.OpField {
		text = e.Field.Name
	}
	m.names[i].text = text
}

func (c *checker) giveName(m *mapUses, i int, n *syntax.NamedArg) bool {
	at := syntax.SpanOf(n)
	if before := m.names[i]; before.given && before.text != n.Name {
		c.fail(at, fmt.Sprintf("element %d of the key of %s is called %s here and %s %s", i+1, m.info.Name, n.Name, before.text, c.place(before.at)),
			"give the element the same name at all uses of the map")
		return false
	}
	if other := slices.IndexFunc(m.names, func(o columnName) bool { return o.given && o.text == n.Name }); other >= 0 && other != i {
		c.fail(at, fmt.Sprintf("two elements of the key of %s are called %s", m.info.Name, n.Name), "give each element a name of its own")
		return false
	}
	if !m.names[i].given {
		m.names[i] = columnName{n.Name, true, at}
	}
	return true
}
