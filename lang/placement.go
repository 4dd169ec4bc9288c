package lang

import (
	"fmt"
	"slices"

	"trace/probes/event"
)

// forbid finds the bodies that have to run in user space, whatever the kernel can do.
func (p *Plan) forbid() {
	for _, b := range p.parts {
		switch {
		case p.options.NoKernel:
			b.inUser = &obstacle{reason: "--no-kernel"}
		case p.options.Recorded:
			b.inUser = &obstacle{reason: "the events are recorded"}
		case p.options.Rejected[b.probe]:
			b.inUser = &obstacle{reason: "the kernel rejected the generated code"}
		}
	}
}

// divide settles where each body and each map is: the least set in user space that the obstacles allow.
func (p *Plan) divide() {
	p.placeMaps()
	for {
		moved := false
		for _, b := range p.parts {
			b.split(p)
			if b.inUser == nil {
				b.inUser = p.hindrance(b)
			}
			if b.inUser == nil {
				continue
			}
			for _, m := range b.maps() {
				if p.maps[m] != nil {
					delete(p.maps, m)
					p.userMaps[m] = p.name(b.clause) + " runs in user space"
					moved = true
				}
			}
		}
		if stop := p.exitInUserSpace(); stop != nil {
			for _, b := range p.parts {
				if b.inUser == nil {
					b.inUser, moved = stop, true
				}
			}
		}
		if !moved {
			return
		}
	}
}

// findAlone finds the aggregations that the programs of only one probe update, if those cannot overlap.
func (p *Plan) findAlone() {
	for m, k := range p.maps {
		if m.agg == nil || k.code.Shared || p.options.Alone == nil {
			continue
		}
		type source struct {
			probe *event.Probe
			hz    int
		}
		sources := map[source]bool{}
		for _, b := range p.parts {
			if updates(b.stmts, m) {
				sources[source{b.probe, b.clause.hz}] = true
			}
		}
		for s := range sources {
			k.code.Alone = len(sources) == 1 && p.options.Alone(s.probe)
		}
	}
}

// exitInUserSpace says whether exit() is decided there: then nothing may count on in the kernel meanwhile.
func (p *Plan) exitInUserSpace() *obstacle {
	for _, b := range p.parts {
		if b.inUser != nil && exits(b.stmts) {
			return &obstacle{reason: "exit() of " + p.name(b.clause) + " runs in user space, and nothing may be counted after it"}
		}
	}
	return nil
}

func exits(stmts []stmt) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		if call, ok := s.(*callStmt); ok && call.fn == "exit" {
			found = true
		}
	})
	return found
}

// name of the clause in explanations: its number.
func (p *Plan) name(c *Clause) string {
	return fmt.Sprintf("clause %d", slices.Index(p.program.clauses, c)+1)
}

// placeMaps begins with all maps in the kernel that may be there.
func (p *Plan) placeMaps() {
	p.maps, p.userMaps = map[*mapInfo]*kernelMap{}, map[*mapInfo]string{}
	for _, m := range p.program.maps {
		if why := p.keepsOut(m); why != "" {
			p.userMaps[m] = why
			continue
		}
		p.maps[m] = &kernelMap{mapInfo: m, code: p.newMap(m), grows: p.eventUses(m).adds}
	}
}

// keepsOut says why a map has to be in user space, or returns "".
func (p *Plan) keepsOut(m *mapInfo) string {
	if p.options.NoKernel {
		return "--no-kernel"
	}
	if p.options.Recorded {
		return "the events are recorded"
	}
	if m.agg != nil && m.lru && p.isEmptied(m) {
		return "its oldest keys give way, and there is no telling then what was added since it was emptied"
	}
	inEvents := false
	for _, b := range p.parts {
		inEvents = inEvents || slices.Contains(b.maps(), m)
		if why := b.needsExact(m); why != "" {
			return why
		}
		if m.agg != nil && b.removes(m) && p.isEmptied(m) {
			return "events delete its keys, and something empties it meanwhile"
		}
		if m.agg != nil && b.asks(m) && p.isEmptied(m) {
			return "events ask for its keys, and something empties it meanwhile"
		}
	}
	if m.agg == nil && !p.takesTurns(m) && p.showsAndEmpties(m) {
		return "an interval clause reads and empties it, and what events do to it meanwhile would be lost"
	}
	if !inEvents {
		return "only begin, end and interval clauses use it"
	}
	for _, c := range p.program.clauses {
		if c.kind == onEvent {
			continue
		}
		for _, b := range c.bodies {
			if updates(b.stmts, m) {
				return "not only events are aggregated in it"
			}
			if c.kind == onInterval && modifies(b.stmts, m) {
				return "an interval clause changes it, which is not one step there"
			}
		}
	}
	return ""
}

// needsExact says why an event clause has to see the map at that very moment: then it has to be where the clause's output is made.
func (b *part) needsExact(m *mapInfo) string {
	why := ""
	walkStmts(b.stmts, func(s stmt) {
		if call, ok := s.(*callStmt); ok && call.m == m && (call.fn != "delete" || call.key == nil) {
			why = call.fn + "(" + m.name + ") at an event wants the map as it is then"
		}
	})
	b.walkExprs(func(e *expr) {
		switch {
		case e.m != m:
		case e.op == opLen:
			why = "len(" + m.name + ") at an event counts its keys"
		case e.op == opLookup && m.agg != nil:
			why = m.name + " is read at an event, and in the kernel it is in parts, one for each CPU"
		}
	})
	if why == "" && b.readsAndSets(m) {
		why = "a clause reads and sets it, which is not one step in the kernel"
	}
	return why
}

// readsAndSets tells whether the body sets a map that it reads, in more than one step and for a key that another CPU may set
// meanwhile. A key with the thread id is the thread's own.
func (b *part) readsAndSets(m *mapInfo) bool {
	reads, sets := false, false
	b.walkExprs(func(e *expr) {
		if e.m == m && (e.op == opLookup || e.op == opHasKey) && !ownKey(e.args) {
			reads = true
		}
	})
	walkStmts(b.stmts, func(s stmt) {
		if set, ok := s.(*setStmt); ok && set.m == m && set.op == "=" && !ownKey(set.key) {
			sets = true
		}
	})
	return reads && sets
}

func ownKey(key []*expr) bool {
	return slices.ContainsFunc(key, func(e *expr) bool {
		if e.op == opSigned {
			e = e.args[0]
		}
		return e.op == opField && e.field.Common && e.field.Name == "tid"
	})
}

// updates tells whether statements add to an aggregation.
func updates(stmts []stmt, m *mapInfo) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		update, ok := s.(*updateStmt)
		found = found || ok && update.m == m
	})
	return found
}

// modifies tells whether statements change a scalar by what it was.
func modifies(stmts []stmt, m *mapInfo) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		if set, ok := s.(*setStmt); ok && set.m == m {
			found = found || set.op == "+"
			for _, v := range set.value {
				walkExpr(v, func(e *expr) { found = found || e.m == m })
			}
		}
	})
	return found
}

// split divides the conjuncts of the predicate.
func (b *part) split(p *Plan) {
	b.kernel, b.user = nil, nil
	l := p.kernelizer(b, nil)
	for _, e := range conjuncts(b.pred) {
		c := conjunct{e: e}
		if b.tooLarge || p.options.NoKernel || p.options.Rejected[b.probe] {
			c.why = b.inUser
		} else {
			_, c.why = l.expr(e)
		}
		if c.why == nil {
			b.kernel = append(b.kernel, c)
		} else {
			b.user = append(b.user, c)
		}
	}
}

// conjuncts of a predicate: an event passes it if it passes each of them.
func conjuncts(e *expr) []*expr {
	switch {
	case e == nil:
		return nil
	case e.op == "&&":
		return append(conjuncts(e.args[0]), conjuncts(e.args[1])...)
	}
	return []*expr{e}
}

// hindrance says what of a body cannot run in the kernel.
func (p *Plan) hindrance(b *part) *obstacle {
	for _, c := range b.user {
		reads := false
		walkExpr(c.e, func(e *expr) { reads = reads || e.m != nil })
		if reads || len(b.stmts) > 0 {
			return c.why
		}
	}
	_, why := p.kernelizer(b, nil).stmts(b.stmts)
	return why
}
