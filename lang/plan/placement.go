package plan

import (
	"fmt"
	"slices"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
)

// forbid finds the sites that must run in user space whatever the kernel supports.
func (p *Plan) forbid() {
	for _, b := range p.Sites {
		switch {
		case p.Options.NoKernel:
			b.InUser = &Obstacle{Reason: "--no-kernel"}
		case p.Options.Recorded:
			b.InUser = &Obstacle{Reason: "the events are recorded"}
		case p.Options.Rejected[b.Probe]:
			b.InUser = &Obstacle{Reason: "the kernel rejected the generated code"}
		}
	}
}

// divide decides where each site and each map lives: as few as possible in user space.
func (p *Plan) divide() {
	p.placeMaps()
	for {
		moved := false
		for _, b := range p.Sites {
			b.split(p)
			if b.InUser == nil {
				b.InUser = p.hindrance(b)
			}
			if b.InUser == nil {
				continue
			}
			for m := range b.uses.maps {
				if p.Maps[m] != nil {
					delete(p.Maps, m)
					p.userMaps[m] = p.name(b.Clause) + " runs in user space"
					moved = true
				}
			}
		}
		if stop := p.exitInUserSpace(); stop != nil {
			for _, b := range p.Sites {
				if b.InUser == nil {
					b.InUser, moved = stop, true
				}
			}
		}
		if !moved {
			return
		}
	}
}

// findAlone finds the aggregations that BPF programs of only one probe update, if these cannot overlap.
func (p *Plan) findAlone() {
	for m, k := range p.Maps {
		if m.Agg == nil || k.Code.Shared || p.Options.Alone == nil {
			continue
		}
		type source struct {
			probe *event.Probe
			arg   probes.Arg
		}
		sources := map[source]bool{}
		for _, b := range p.Sites {
			if u := b.uses.maps[m]; u != nil && u.aggregates {
				sources[source{b.Probe, argOf(b.Clause)}] = true
			}
		}
		for s := range sources {
			k.Code.Alone = len(sources) == 1 && p.Options.Alone(s.probe)
		}
	}
}

// exitInUserSpace returns the obstacle if user space decides about exit(): the kernel must not count on in the meantime.
func (p *Plan) exitInUserSpace() *Obstacle {
	for _, b := range p.Sites {
		if b.InUser != nil && b.uses.exits {
			return &Obstacle{Reason: "exit() of " + p.name(b.Clause) + " runs in user space, and nothing may be counted after it"}
		}
	}
	return nil
}

// tooLate returns an error if a site runs in user space that sends signals or reads what the CPU has: the event would be over.
func (p *Plan) tooLate() error {
	errs := syntax.ErrorList{}
	for _, b := range p.Sites {
		why := b.InUser
		if why == nil && p.Options.Compare {
			why = &Obstacle{Reason: "--compare runs it there, too"}
		}
		if why == nil {
			continue
		}
		b.WalkExprs(func(e *ir.Expr) {
			if e.Op == ir.OpSelf && e.Fn != "rand" {
				errs = append(errs, p.Program.Text.Error(e.Span, e.Fn+" is read in the kernel, at the event, and this clause runs in user space",
					why.Reason+"; use it in a clause of its own"))
			}
		})
		if b.InUser == nil {
			continue
		}
		ir.WalkStmts(b.Stmts, func(s ir.Stmt) {
			if call, is := s.(*ir.CallStmt); is && (call.Fn == ir.ToProcess || call.Fn == ir.ToThread) {
				errs = append(errs, p.Program.Text.Error(call.Span, call.Fn+"() acts in the kernel, at the event, and this clause runs in user space",
					b.InUser.Reason+"; send the signal in a clause of its own"))
			}
		})
	}
	return errs.Err()
}

// name returns the clause's name in explanations: its number.
func (p *Plan) name(c *ir.Clause) string {
	return fmt.Sprintf("clause %d", slices.Index(p.Program.Clauses, c)+1)
}

// placeMaps puts all maps into the kernel that may be there.
func (p *Plan) placeMaps() {
	p.Maps, p.userMaps = map[*ir.Map]*KernelMap{}, map[*ir.Map]string{}
	for _, m := range p.Program.Maps {
		if why := p.keepsOut(m); why != "" {
			p.userMaps[m] = why
			continue
		}
		p.Maps[m] = &KernelMap{Map: m, Code: p.NewMap(m), Grows: p.eventUses(m).adds}
	}
}

// keepsOut returns why a map must be in user space, or "".
func (p *Plan) keepsOut(m *ir.Map) string {
	if p.Options.NoKernel {
		return "--no-kernel"
	}
	if p.Options.Recorded {
		return "the events are recorded"
	}
	if m.Agg.Timed() {
		return "the kernel keeps no time series"
	}
	if why := p.joins(m); why != "" {
		return why
	}
	if m.Agg != nil && m.Lru && p.isEmptied(m) {
		return "it drops its oldest keys, so what was added since it was emptied is unknown"
	}
	inEvents := false
	for _, b := range p.Sites {
		u := b.uses.maps[m]
		if u == nil {
			continue
		}
		inEvents = true
		switch why := u.needExact(m); {
		case why != "":
			return why
		case m.Agg != nil && u.removes && p.isEmptied(m):
			return "events delete its keys while something empties it"
		case m.Agg != nil && u.asks && p.isEmptied(m):
			return "events look up its keys while something empties it"
		}
	}
	if m.Agg == nil && !p.TakesTurns(m) && p.showsAndEmpties(m) {
		return "an interval clause reads and empties it, and updates in between would be lost"
	}
	if !inEvents {
		return "no clause on events uses it"
	}
	for _, o := range p.moments {
		switch u := o.uses.maps[m]; {
		case u == nil:
		case u.aggregates:
			return "a clause without events aggregates in it"
		case u.modifies && o.clause.Kind.Recurs():
			return "an interval clause changes it, which is not atomic in the kernel"
		}
	}
	return ""
}

// needExact returns why an event clause must see the map exactly as it is at the event, or "". Such a map must be where the
// clause's output is made.
func (u *uses) needExact(m *ir.Map) string {
	switch {
	case u.looksUp && m.Agg != nil:
		return m.Name + " is read at an event, but in the kernel each CPU has its own values"
	case u.counts:
		return "len(" + m.Name + ") at an event counts its keys"
	case u.whole != "":
		return u.whole + "(" + m.Name + ") at an event needs the map as it is then"
	case u.readsOthers && u.setsOthers:
		return "a clause reads and sets it, which is not atomic in the kernel"
	}
	return ""
}

// split divides the conjuncts of the predicate between the kernel and user space.
func (b *Site) split(p *Plan) {
	b.kernel, b.User = nil, nil
	l := p.kernelizer(b, nil)
	for _, e := range conjuncts(b.Pred) {
		c := Conjunct{e: e}
		if b.tooLarge || p.Options.NoKernel || p.Options.Rejected[b.Probe] {
			c.Why = b.InUser
		} else {
			_, c.Why = l.expr(e)
		}
		if c.Why == nil {
			b.kernel = append(b.kernel, c)
		} else {
			b.User = append(b.User, c)
		}
	}
}

// conjuncts splits a predicate. An event passes it if it passes each conjunct.
func conjuncts(e *ir.Expr) []*ir.Expr {
	switch {
	case e == nil:
		return nil
	case e.Op == ir.OpAnd:
		return append(conjuncts(e.Args[0]), conjuncts(e.Args[1])...)
	}
	return []*ir.Expr{e}
}

// hindrance returns why a site cannot run in the kernel, or nil.
func (p *Plan) hindrance(b *Site) *Obstacle {
	for _, c := range b.User {
		reads := false
		ir.WalkExpr(c.e, func(e *ir.Expr) { reads = reads || e.Map != nil })
		if reads || len(b.Stmts) > 0 {
			return c.Why
		}
	}
	_, why := p.kernelizer(b, nil).stmts(b.Stmts)
	return why
}

// joins returns why a map whose key has names of what cgroups run cannot be in the kernel, or "". There it has a value for each cgroup, so
// nothing may depend on the value of a name until all of them are joined.
func (p *Plan) joins(m *ir.Map) string {
	switch {
	case !ir.Joins(m.Key):
		return ""
	case m.Lru:
		return "it drops its oldest keys, and its key names what cgroups run"
	case m.Agg.Ranker() != nil:
		return "it ranks names of what cgroups run"
	}
	for _, b := range p.Sites {
		if u := b.uses.maps[m]; u != nil && (u.keyed || u.sets) {
			return "a clause uses the value of a name of what a cgroup runs"
		}
	}
	for _, o := range p.moments {
		switch u := o.uses.maps[m]; {
		case u == nil:
		case u.keyed || u.sets || u.adds || u.aggregates:
			return "a clause without events uses the value of a name of what a cgroup runs"
		case u.zeros && !p.TakesTurns(m):
			return "zero() would lose its names of what cgroups run"
		}
	}
	return ""
}
