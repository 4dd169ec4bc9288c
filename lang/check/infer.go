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
	a := &analysis{resolver: r, byName: map[string]*mapUses{}, vars: map[declaration]*varUses{}, cgroups: map[string]uint64{}}
	for _, c := range clauses {
		a.findMaps(c)
	}
	return a
}

// run checks all clauses for all their probes. It returns the checkers of the last pass.
func (a *analysis) run(clauses []*ir.Clause) []*checker {
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
	expression(c.Tree.Pred)
	syntax.WalkStmts(c.Tree.Body, func(s syntax.Stmt) {
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
	for _, at := range slices.SortedFunc(maps.Keys(a.vars), func(x, y declaration) int { return x.stmt.Pos().From - y.stmt.Pos().From }) {
		if v := a.vars[at]; v.loop == nil && !v.value.typed() {
			a.untold(at.stmt.Pos(), v.Name)
		}
	}
}

func (a *analysis) untold(at syntax.Span, name string) {
	a.fail(at, fmt.Sprintf("the type of %s is unknown", name), "it is only ever set to its own value")
}
