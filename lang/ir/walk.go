package ir

import (
	"maps"
	"slices"

	"trace/probes/event"
)

// Columns are the fields that printing an event needs. [trace/lang/output.Columns] implements it.
type Columns interface {
	// Fields returns the fields that printing an event of a probe may need.
	Fields(p *event.Probe) []*event.Field
	// Moment returns the field that gives other output at an event of a probe its time, or nil if none is needed.
	Moment(p *event.Probe) *event.Field
}

// Fields returns the fields that the site reads, and the fields that its output needs.
func (b *Site) Fields(printed Columns) []*event.Field {
	found := map[*event.Field]bool{}
	if b.Prints {
		for _, f := range printed.Fields(b.Probe) {
			found[f] = true
		}
	}
	if f := printed.Moment(b.Probe); f != nil && b.prints() {
		found[f] = true
	}
	b.WalkExprs(func(e *Expr) {
		if e.Field != nil {
			found[e.Field] = true
		}
	})
	for f := range found {
		if f.Of != nil { // its name is made of the cgroup
			delete(found, f)
			found[f.Of] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// WalkExprs visits every node of the predicate and the statements.
func (b *Site) WalkExprs(visit func(*Expr)) {
	WalkExpr(b.Pred, visit)
	WalkStmts(b.Stmts, func(s Stmt) {
		for _, e := range exprsOf(s) {
			WalkExpr(e, visit)
		}
	})
}

// exprsOf returns the expressions of a statement, without expressions of nested statements.
func exprsOf(s Stmt) []*Expr {
	switch s := s.(type) {
	case *SetStmt:
		return append(slices.Clone(s.Key), s.Value...)
	case *UpdateStmt:
		all := slices.Clone(s.Key)
		for _, e := range []*Expr{s.Arg, s.At, s.Thread} {
			if e != nil {
				all = append(all, e)
			}
		}
		return all
	case *LetStmt:
		return []*Expr{s.Value}
	case *ReturnStmt:
		if s.Value != nil {
			return []*Expr{s.Value}
		}
	case *IfStmt:
		return []*Expr{s.Cond}
	case *WhileStmt:
		return []*Expr{s.Cond}
	case *ForStmt:
		if s.Map == nil {
			return []*Expr{s.Lo, s.Hi}
		}
	case *CallStmt:
		return append(slices.Clone(s.Key), s.Args...)
	}
	return nil
}

// WalkExpr visits a node and all nodes below it. e may be nil.
func WalkExpr(e *Expr, visit func(*Expr)) {
	if e == nil {
		return
	}
	visit(e)
	for _, a := range e.Args {
		WalkExpr(a, visit)
	}
}

// WalkStmts visits statements and the statements nested in them.
func WalkStmts(stmts []Stmt, visit func(Stmt)) {
	for _, s := range stmts {
		visit(s)
		switch s := s.(type) {
		case *IfStmt:
			WalkStmts(s.Then, visit)
			WalkStmts(s.Else, visit)
		case *ForStmt:
			WalkStmts(s.Body, visit)
		case *WhileStmt:
			WalkStmts(s.Before, visit)
			WalkStmts(s.Body, visit)
		}
	}
}
