package lang

import (
	"time"
)

// This file finds the maps that are emptied while events are counted in them.

// takesTurns tells whether there are two of a map in the kernel (see turns). It is so for all that are emptied and that events only add
// to, or only set: what was moved to user space is then neither missing in the kernel nor in the way there. Rates are emptied when
// all probes are attached.
func (p *Plan) takesTurns(m *mapInfo) bool {
	switch {
	case m.lru: // which keys give way depends on those that would not be there
		return false
	case m.agg == nil:
		u := p.eventUses(m)
		return p.isEmptied(m) && !u.reads && !u.removes && u.adds != u.sets
	}
	u := p.eventUses(m)
	return (p.isEmptied(m) || m.agg.Traits().Restarts) && !u.reads && !u.removes
}

// uses are what clauses do with a map.
type uses struct {
	reads         bool // its values, or whether it has a key
	adds, sets    bool // a scalar's += and =
	removes       bool // delete
	clears, zeros bool
}

// find adds what a body does.
func (u *uses) find(b *body, m *mapInfo) {
	b.walkExprs(func(e *expr) { u.reads = u.reads || e.m == m })
	walkStmts(b.stmts, func(s stmt) {
		switch s := s.(type) {
		case *setStmt:
			if s.m == m {
				u.adds = u.adds || s.op == "+"
				u.sets = u.sets || s.op != "+"
			}
		case *forStmt:
			u.reads = u.reads || s.m == m
		case *callStmt:
			if s.m == m {
				u.call(s.fn, m)
			}
		}
	})
}

func (u *uses) call(fn string, m *mapInfo) {
	switch fn {
	case "print":
		u.reads = true
		u.zeros = u.zeros || m.agg != nil && m.agg.Traits().Restarts // which begin again
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
func (p *Plan) eventUses(m *mapInfo) (u uses) {
	for _, b := range p.parts {
		u.find(b.body, m)
	}
	return u
}

// intervalUses are those of the clauses of each interval, which see a map as it is at one moment.
func (p *Plan) intervalUses(m *mapInfo) map[time.Duration]*uses {
	all := map[time.Duration]*uses{}
	for _, c := range p.program.clauses {
		if c.kind != onInterval {
			continue
		}
		if all[c.period] == nil {
			all[c.period] = &uses{}
		}
		for _, b := range c.bodies {
			all[c.period].find(b, m)
		}
	}
	return all
}

// isEmptied tells whether something empties or sets a map while events are counted in it.
func (p *Plan) isEmptied(m *mapInfo) bool {
	if p.options.Cleared {
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
func (p *Plan) showsAndEmpties(m *mapInfo) bool {
	for _, u := range p.intervalUses(m) {
		if u.zeros || u.reads && u.empties() {
			return true
		}
	}
	return false
}

// removes tells whether the body deletes keys of a map.
func (b *part) removes(m *mapInfo) bool {
	var u uses
	u.find(b.body, m)
	return u.removes
}

// asks tells whether the body asks for keys of a map.
func (b *part) asks(m *mapInfo) bool {
	found := false
	b.walkExprs(func(e *expr) { found = found || e.op == opHasKey && e.m == m })
	return found
}
