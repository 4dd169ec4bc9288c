package plan

import (
	"time"

	"trace/lang/ir"
)

// This file finds the maps that are emptied while events are counted in them.

// TakesTurns tells whether there are two of a map in the kernel (see turns). It is so for all that are emptied and that events only add
// to, or only set: what was moved to user space is then neither missing in the kernel nor in the way there. Rates are emptied when
// all probes are attached.
func (p *Plan) TakesTurns(m *ir.Map) bool {
	switch {
	case m.Lru: // which keys give way depends on those that would not be there
		return false
	case m.Agg == nil:
		u := p.eventUses(m)
		return p.isEmptied(m) && !u.reads && !u.removes && u.adds != u.sets
	}
	u := p.eventUses(m)
	return (p.isEmptied(m) || m.Agg.Traits().Restarts) && !u.reads && !u.removes
}

// uses are what clauses do with a map.
type uses struct {
	reads         bool // its values, or whether it has a key
	adds, sets    bool // a scalar's += and =
	removes       bool // delete
	clears, zeros bool
}

// find adds what a body does.
func (u *uses) find(b *ir.Body, m *ir.Map) {
	b.WalkExprs(func(e *ir.Expr) { u.reads = u.reads || e.Map == m })
	ir.WalkStmts(b.Stmts, func(s ir.Stmt) {
		switch s := s.(type) {
		case *ir.SetStmt:
			if s.Map == m {
				u.adds = u.adds || s.Adds
				u.sets = u.sets || !s.Adds
			}
		case *ir.ForStmt:
			u.reads = u.reads || s.Map == m
		case *ir.CallStmt:
			if s.Map == m {
				u.call(s.Fn, m)
			}
		}
	})
}

func (u *uses) call(fn string, m *ir.Map) {
	switch fn {
	case "print":
		u.reads = true
		u.zeros = u.zeros || m.Agg != nil && m.Agg.Traits().Restarts // which begin again
	case "delete":
		u.removes = true
	case "clear":
		u.clears = true
	case "zero":
		u.zeros = true
	}
}

// empties tells whether a part of what was counted goes.
func (u *uses) empties() bool { return u.removes || u.clears || u.zeros }

// eventUses are those of the clauses on events.
func (p *Plan) eventUses(m *ir.Map) (u uses) {
	for _, b := range p.Parts {
		u.find(b.Body, m)
	}
	return u
}

// intervalUses are those of the clauses of each interval, which see a map as it is at one moment.
func (p *Plan) intervalUses(m *ir.Map) map[time.Duration]*uses {
	all := map[time.Duration]*uses{}
	for _, c := range p.Program.Clauses {
		if c.Kind != ir.OnInterval {
			continue
		}
		if all[c.Period] == nil {
			all[c.Period] = &uses{}
		}
		for _, b := range c.Bodies {
			all[c.Period].find(b, m)
		}
	}
	return all
}

// isEmptied tells whether something empties or sets a map while events are counted in it.
func (p *Plan) isEmptied(m *ir.Map) bool {
	if p.Options.Cleared {
		return true
	}
	for _, u := range p.intervalUses(m) {
		if u.empties() || u.sets {
			return true
		}
	}
	return false
}

// showsAndEmpties tells whether an interval reads a map and then empties it: what events do in between must not get lost.
func (p *Plan) showsAndEmpties(m *ir.Map) bool {
	for _, u := range p.intervalUses(m) {
		if u.zeros || u.reads && u.empties() {
			return true
		}
	}
	return false
}

// removes tells whether the body deletes keys of a map.
func (b *Part) removes(m *ir.Map) bool {
	var u uses
	u.find(b.Body, m)
	return u.removes
}

// asks tells whether the body asks for keys of a map.
func (b *Part) asks(m *ir.Map) bool {
	found := false
	b.WalkExprs(func(e *ir.Expr) { found = found || e.Op == ir.OpHasKey && e.Map == m })
	return found
}
