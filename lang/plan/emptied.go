package plan

import (
	"time"

	"trace/lang/ir"
)

// This file finds the maps that are emptied while events are counted in them.

// TakesTurns tells whether there are two of a map in the kernel (see turns). It is so for all that are emptied and that events only add
// to, or only set: what was moved to user space is then neither missing in the kernel nor in the way there. Rates are emptied when
// all probes are attached, and what ranks can be read only while no program changes it.
func (p *Plan) TakesTurns(m *ir.Map) bool {
	switch {
	case m.Lru: // which keys give way depends on those that would not be there
		return false
	case m.Agg == nil:
		u := p.eventUses(m)
		return p.isEmptied(m) && !u.reads && !u.removes && u.adds != u.sets
	}
	u := p.eventUses(m)
	traits := m.Agg.Traits()
	return (p.isEmptied(m) || traits.Restarts || traits.Ranks) && !u.reads && !u.removes
}

// eventUses are those of the clauses on events.
func (p *Plan) eventUses(m *ir.Map) (u uses) {
	for _, b := range p.Sites {
		u.join(b.uses.maps[m])
	}
	return u
}

// intervalUses are those of the clauses of each interval, which see a map as it is at one moment.
func (p *Plan) intervalUses(m *ir.Map) map[time.Duration]*uses {
	all := map[time.Duration]*uses{}
	for _, o := range p.moments {
		if o.clause.Kind != ir.OnInterval {
			continue
		}
		if all[o.clause.Period] == nil {
			all[o.clause.Period] = &uses{}
		}
		all[o.clause.Period].join(o.uses.maps[m])
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
