package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file infers the types of maps and variables. A clause is checked for the events of each of its probes, and each check may
// learn something about the maps. So the whole program is checked again until a pass learns nothing new. Bounds only become more
// general, which limits the number of passes. One more pass then builds the typed tree and reports mistakes.

func newAnalysis(r *resolver, clauses []*ir.Clause) *analysis {
	a := &analysis{resolver: r, byName: map[string]*mapUses{}, vars: map[declaration]*varUses{}, uses: map[*ir.Variable]*varUses{}, assignments: map[ast.Node]*syntax.Assign{}, cgroups: map[string]uint64{}}
	for _, c := range clauses {
		a.findMaps(c)
	}
	return a
}

// run checks all clauses for all their probes. It returns the checkers of the last pass.
func (a *analysis) run(clauses []*ir.Clause) []*checker {
	for a.first, a.changed = true, true; a.changed; a.first = false {
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

func (a *analysis) pass(clauses []*ir.Clause) []*checker {
	var all []*checker
	for _, c := range clauses {
		for _, p := range c.Places() {
			ch := a.checker(c, p)
			ch.clauseBody()
			all = append(all, ch)
		}
	}
	return all
}

// findMaps notes the maps that a clause uses.
func (a *analysis) findMaps(c *ir.Clause) {
	var written []string
	block := func(b *syntax.Block) {}
	expression := func(n ast.Node) bool {
		switch n := n.(type) {
		case *syntax.MapRef:
			a.addMap(n)
		case *syntax.Step:
			written = appendMap(written, n.Target)
		case *syntax.BlockExpr:
			block(n.Body)
		}
		return true
	}
	block = func(b *syntax.Block) {
		syntax.WalkStmts(b, func(s syntax.Stmt) {
			for _, n := range syntax.Exprs(s) {
				syntax.Walk(n, expression)
			}
			if s, ok := s.(*syntax.Assign); ok {
				written = appendMap(written, s.Target)
			}
		})
	}
	if c.Tree.Pred != nil {
		syntax.Walk(c.Tree.Pred, expression)
	}
	block(c.Tree.Body)
	for _, name := range written {
		a.mapOf(name).written = true
	}
}

// appendMap appends the name of the map that n is, if it is one.
func appendMap(names []string, n ast.Node) []string {
	if ref, ok := n.(*syntax.MapRef); ok {
		return append(names, ref.Name)
	}
	return names
}

func (a *analysis) addMap(ref *syntax.MapRef) {
	if a.mapOf(ref.Name) == nil {
		m := &mapUses{info: &ir.Map{Name: ref.Name, Span: syntax.SpanOf(ref)}}
		a.maps, a.byName[ref.Name] = append(a.maps, m), m
	}
}

// complete reports maps that are never written, and types that cannot be inferred.
func (a *analysis) complete() {
	for _, m := range a.maps {
		if !m.written {
			a.fail(m.info.Span, fmt.Sprintf("%s is never set", m.info.Name), a.writtenMaps(m.info.Name))
		}
	}
	if len(a.errs) > 0 {
		return
	}
	for _, m := range a.maps {
		if !m.key.typed() || !m.value.typed() {
			a.untold(m.info.Span, m.info.Name)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(a.vars), func(x, y declaration) int { return a.vars[x].span.From - a.vars[y].span.From }) {
		if v := a.vars[at]; v.loop == nil && !v.value.typed() {
			a.untold(v.span, v.Name)
		}
	}
}

func (a *analysis) untold(at syntax.Span, name string) {
	a.fail(at, fmt.Sprintf("the type of %s is unknown", name), "it is only ever set to its own value")
}
