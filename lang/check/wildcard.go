package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"trace/lang/ir"
	"trace/probes/event"
)

// This file resolves wildcards: nvme:* stands for the probes of the group whose events have what the clause reads.

// fitted checks the clauses for the probes that they finally use. What a probe lacks may depend on maps, whose types may come from
// other probes. So everything is checked again after probes were dropped.
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

// narrow drops the probes that only wildcards name and that lack something that the clause reads. It reports whether it dropped
// any. If no probe of a wildcard has everything, it keeps the ones that lack the least, so that the mistake is reported for them.
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

// lacks describes which words of the clause are not fields of the probe, or not names of a field's value.
func (c *checker) lacks() string {
	var fields []string
	for _, u := range c.misplaced(c.unknown) {
		if enum := event.EnumOf(u.want); enum != nil && c.having(u.name) == nil {
			return fmt.Sprintf("%s is not a name of %s", u.name, enum.Name)
		}
		if !slices.Contains(fields, u.name) {
			fields = append(fields, u.name)
		}
	}
	return "no field " + strings.Join(fields, ", ")
}

// groups returns the groups of the probes, each once.
func groups(in []*event.Probe) []string {
	var names []string
	for _, p := range in {
		names = append(names, p.Group)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
