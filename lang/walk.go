package lang

import (
	"maps"
	"slices"

	"trace/lang/output"
	"trace/probes/event"
)

// fields that the body reads; those that are printed of the event included.
func (b *part) fields(printed output.Columns) []*event.Field {
	found := map[*event.Field]bool{}
	if b.prints {
		for _, f := range printed.Fields(b.probe) {
			found[f] = true
		}
	}
	b.walkExprs(func(e *expr) {
		if e.field != nil {
			found[e.field] = true
		}
	})
	return slices.Collect(maps.Keys(found))
}

// maps that the body uses, each once.
func (b *part) maps() []*mapInfo {
	var found []*mapInfo
	add := func(m *mapInfo) {
		if m != nil && !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	b.walkExprs(func(e *expr) { add(e.m) })
	walkStmts(b.stmts, func(s stmt) {
		switch s := s.(type) {
		case *setStmt:
			add(s.m)
		case *updateStmt:
			add(s.m)
		case *callStmt:
			add(s.m)
		}
	})
	return found
}

// walkExprs visits every node of the predicate and the statements.
func (b *body) walkExprs(visit func(*expr)) {
	walkExpr(b.pred, visit)
	walkStmts(b.stmts, func(s stmt) {
		for _, e := range exprsOf(s) {
			walkExpr(e, visit)
		}
	})
}

// exprsOf returns the expressions of a statement, without those of statements in it.
func exprsOf(s stmt) []*expr {
	switch s := s.(type) {
	case *setStmt:
		return append(slices.Clone(s.key), s.value...)
	case *updateStmt:
		if s.arg == nil {
			return s.key
		}
		return append(slices.Clone(s.key), s.arg)
	case *letStmt:
		return []*expr{s.value}
	case *ifStmt:
		return []*expr{s.cond}
	case *forStmt:
		if s.m == nil {
			return []*expr{s.lo, s.hi}
		}
	case *callStmt:
		return append(slices.Clone(s.key), s.args...)
	}
	return nil
}

func walkExpr(e *expr, visit func(*expr)) {
	if e == nil {
		return
	}
	visit(e)
	for _, a := range e.args {
		walkExpr(a, visit)
	}
}

// walkStmts visits statements and those in them.
func walkStmts(stmts []stmt, visit func(stmt)) {
	for _, s := range stmts {
		visit(s)
		switch s := s.(type) {
		case *ifStmt:
			walkStmts(s.then, visit)
			walkStmts(s.els, visit)
		case *forStmt:
			walkStmts(s.body, visit)
		}
	}
}
