package ir

import (
	"errors"
	"slices"
	"strings"
)

// This file has what is particular about tests and benchmarks: clauses that run only if the user asks for them, in place of the
// program.

// Tried reports whether clauses of the kind are tests or benchmarks.
func (k ClauseKind) Tried() bool { return k == OnTest || k == OnBench }

// Trial returns the name of a test or a benchmark.
func (c *Clause) Trial() string { return c.Name[strings.IndexByte(c.Name, ':')+1:] }

// Untried removes the tests and the benchmarks of the program. It returns an error if nothing else is there.
func (p *Program) Untried() error {
	return p.keep(func(k ClauseKind) bool { return !k.Tried() })
}

// Only removes all clauses but tests or benchmarks, and what comes before and after them.
func (p *Program) Only(tried ClauseKind) error {
	return p.keep(func(k ClauseKind) bool { return k == tried || k == OnBegin || k == OnEnd })
}

// keep removes clauses, and the maps that only they use.
func (p *Program) keep(wanted func(ClauseKind) bool) error {
	kept := slices.DeleteFunc(slices.Clone(p.Clauses), func(c *Clause) bool { return !wanted(c.Kind) })
	if len(kept) == 0 && len(p.Clauses) > 0 {
		return errors.New("no probe is attached: --test runs the probes test:NAME, --bench the probes bench:NAME, and none of them the others")
	}
	if len(kept) < len(p.Clauses) {
		p.Clauses = kept
		p.Maps = slices.DeleteFunc(slices.Clone(p.Maps), func(m *Map) bool { return !p.uses(m) })
	}
	return nil
}

// uses reports whether a clause uses the map.
func (p *Program) uses(m *Map) (used bool) {
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			b.WalkExprs(func(e *Expr) { used = used || e.Map == m })
			WalkStmts(b.Stmts, func(s Stmt) { used = used || mapOf(s) == m })
		}
	}
	return used
}

// mapOf returns the map that a statement itself is about, or nil.
func mapOf(s Stmt) *Map {
	switch s := s.(type) {
	case *SetStmt:
		return s.Map
	case *UpdateStmt:
		return s.Map
	case *ForStmt:
		return s.Map
	case *CallStmt:
		return s.Map
	}
	return nil
}
