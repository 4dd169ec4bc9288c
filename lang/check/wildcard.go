package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"trace/lang/ir"
	"trace/probes/event"
)

// This file is about wildcards: nvme:* is those of the group whose events have what the clause reads.

// fitted checks the clauses for the probes that they take in the end. What a probe lacks may depend on the maps, of which other
// probes tell something: so whenever some are left out, all is checked again.
func (r *resolver) fitted(clauses []*ir.Clause) (*analysis, []*checker) {
	for {
		for _, c := range clauses {
			c.Vars = nil
		}
		a := newAnalysis(r, clauses)
		checkers := a.run(clauses)
		rest, narrowed := checkers, false
		for _, c := range clauses {
			n := len(c.Places())
			narrowed = narrow(c, rest[:n]) || narrowed
			rest = rest[n:]
		}
		if !narrowed {
			return a, checkers
		}
	}
}

// narrow leaves out the probes that only wildcards name and that lack what the clause reads. It tells whether there were any. Of a
// wildcard of which no probe has everything, those that lack the least stay, so that the mistake is reported about them.
func narrow(c *ir.Clause, checks []*checker) bool {
	if c.Inferred || c.Kind != ir.OnEvent {
		return false
	}
	taken := maps.Clone(c.Named)
	for _, ref := range c.Tree.Probes {
		least := -1
		of := func(ch *checker) bool { return len(matching([]*event.Probe{ch.probe}, ref)) > 0 }
		for _, ch := range checks {
			if of(ch) && (least < 0 || len(ch.unknown) < least) {
				least = len(ch.unknown)
			}
		}
		for _, ch := range checks {
			if of(ch) && len(ch.unknown) == least {
				taken[ch.probe] = true
			}
		}
	}
	narrowed := false
	for _, ch := range checks {
		if taken[ch.probe] {
			continue
		}
		narrowed = true
		c.LeftOut = append(c.LeftOut, ir.LeftOut{Probe: ch.probe, Why: ch.lacks()})
		c.Probes = slices.DeleteFunc(c.Probes, func(p *event.Probe) bool { return p == ch.probe })
	}
	return narrowed
}

// lacks says which words of the clause are none of the probe's fields, or no name of a field's value.
func (c *checker) lacks() string {
	var fields []string
	for _, u := range c.misplaced(c.unknown) {
		if enum := event.EnumOf(u.want); enum != nil && c.having(u.name) == nil {
			return fmt.Sprintf("%s is no name of %s", u.name, enum.Name)
		}
		if !slices.Contains(fields, u.name) {
			fields = append(fields, u.name)
		}
	}
	return "no field " + strings.Join(fields, ", ")
}

// groups of the probes, each once.
func groups(in []*event.Probe) []string {
	var names []string
	for _, p := range in {
		names = append(names, p.Group)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
