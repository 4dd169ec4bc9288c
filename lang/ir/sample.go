package ir

import (
	"errors"
	"fmt"

	"trace/lang/result"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Sample marks the maps of a program that events of some probes update, if only a part of these events is seen. It fails if what such a map
// holds would mean nothing: the sum of ups and downs, numbers of intervals, a value that the program computes from the one before, or numbers
// of events that are all seen among them.
func (p *Program) Sample(sampled func(*event.Probe) bool) error {
	updates := map[*Map]map[bool]syntax.Span{} // by whether a part is seen
	var errs []error
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			part := b.Probe != nil && sampled(b.Probe)
			WalkStmts(b.Stmts, func(s Stmt) {
				m, why := sampledBy(s)
				if m == nil {
					return
				}
				if part && why != "" {
					errs = append(errs, p.Text.Error(s.Pos(), fmt.Sprintf("%s needs each event, and --burst sees a part of them", why), "use count() or sum()"))
				}
				if updates[m] == nil {
					updates[m] = map[bool]syntax.Span{}
				}
				updates[m][part] = s.Pos()
			})
		}
	}
	for _, m := range p.Maps {
		by := updates[m]
		_, m.Sampled = by[true]
		if whole, both := by[false]; m.Sampled && both {
			errs = append(errs, p.Text.Error(whole, fmt.Sprintf("%s counts events that are all seen, and others that --burst sees a part of", m.Name), "use two maps"))
		}
	}
	return errors.Join(errs...)
}

// sampledBy returns the map that a statement adds to, and what of it means nothing if not each event is seen, "" if that is fine.
func sampledBy(s Stmt) (m *Map, why string) {
	switch s := s.(type) {
	case *UpdateStmt:
		switch traits := s.Map.Agg.Traits(); {
		case traits.Timed && traits.Counts:
			return s.Map, "a series of sums"
		case traits.Course == result.Level:
			return s.Map, s.Map.Agg.Name() + "()"
		}
		return s.Map, ""
	case *SetStmt:
		if s.Adds {
			return s.Map, "a value that is changed by ++, --, += or -="
		}
	}
	return nil, ""
}
