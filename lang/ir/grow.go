package ir

import "trace/probes/event"

// Grows reports whether the program only adds numbers to a map that are not below 0, as ++ does.
func (p *Program) Grows(m *Map) bool {
	grows := m.Agg == nil
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			WalkStmts(b.Stmts, func(s Stmt) {
				set, is := s.(*SetStmt)
				grows = grows && (!is || set.Map != m || set.grows())
			})
		}
	}
	return grows
}

// grows reports whether a number that is not below 0 is added.
func (s *SetStmt) grows() bool {
	if !s.Adds {
		return false
	}
	v := s.Value[0]
	if v.Op == OpLit {
		return event.Compare(v.Val, int64(0)) >= 0
	}
	return v.Type.Kind == event.Uint && v.Op != OpNegate
}
