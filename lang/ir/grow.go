package ir

import (
	"trace/lang/result"
	"trace/probes/event"
)

// Tables returns what the results of the maps will be, without rows.
func (p *Program) Tables() []result.Table {
	all := make([]result.Table, len(p.Maps))
	for i, m := range p.Maps {
		all[i] = m.Table(nil, MapOptions{})
		all[i].Rows, all[i].Metric = nil, p.Metric(m, all[i])
	}
	return all
}

// Metric returns how the values of a map can be shown over time, whose table is t.
func (p *Program) Metric(m *Map, t result.Table) result.Metric {
	if t.Metric == result.Gauge && p.grows(m) {
		return result.Counter
	}
	return t.Metric
}

// Assigns reports whether the program assigns values to a map.
func (p *Program) Assigns(m *Map) (assigns bool) {
	p.eachSet(m, func(s *SetStmt) { assigns = assigns || !s.Adds })
	return assigns
}

// grows reports whether the program only adds numbers to a map that are not below 0, as ++ does.
func (p *Program) grows(m *Map) bool {
	grows := m.Agg == nil
	p.eachSet(m, func(s *SetStmt) { grows = grows && s.grows() })
	return grows
}

// eachSet calls do for each statement that sets an element of a map.
func (p *Program) eachSet(m *Map, do func(*SetStmt)) {
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			WalkStmts(b.Stmts, func(s Stmt) {
				if set, is := s.(*SetStmt); is && set.Map == m {
					do(set)
				}
			})
		}
	}
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
