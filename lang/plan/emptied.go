package plan

import (
	"time"

	"trace/lang/ir"
)

// This file finds the maps that are emptied while events are counted in them.

// TakesTurns reports whether the kernel has two instances of a map (see turns in package exec). It has two if the map is emptied
// and events only add to it or only set it. What was moved to user space is then neither missing in the kernel nor in the way
// there. Maps of rates are emptied when all probes are attached. Maps that rank can be read only while no BPF program changes them.
func (p *Plan) TakesTurns(m *ir.Map) bool {
	switch {
	case m.Lru: // which keys are dropped depends on keys that would be in the other instance
		return false
	case m.Agg == nil:
		u := p.eventUses(m)
		return p.isEmptied(m) && !u.reads && !u.removes && u.adds != u.sets
	}
	u := p.eventUses(m)
	traits := m.Agg.Traits()
	return (p.isEmptied(m) || traits.Restarts || traits.Ranks) && !u.reads && !u.removes
}

// eventUses returns the uses by clauses on events.
func (p *Plan) eventUses(m *ir.Map) (u uses) {
	for _, b := range p.Sites {
		u.join(b.uses.maps[m])
	}
	return u
}

// intervalUses returns the uses by the clauses of each interval, and under 0 by the clauses of the signal. They see a map as it is
// at one moment.
func (p *Plan) intervalUses(m *ir.Map) map[time.Duration]*uses {
	all := map[time.Duration]*uses{}
	for _, o := range p.moments {
		if !o.clause.Kind.Recurs() {
			continue
		}
		if all[o.clause.Period] == nil {
			all[o.clause.Period] = &uses{}
		}
		all[o.clause.Period].join(o.uses.maps[m])
	}
	return all
}

// isEmptied reports whether a map is emptied or set while events are counted in it.
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

// showsAndEmpties reports whether an interval reads a map and then empties it. What events do in between must not be lost.
func (p *Plan) showsAndEmpties(m *ir.Map) bool {
	for _, u := range p.intervalUses(m) {
		if u.zeros || u.reads && u.empties() {
			return true
		}
	}
	return false
}
