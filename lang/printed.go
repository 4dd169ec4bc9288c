package lang

import (
	"fmt"
	"slices"

	"trace/lang/output"
	"trace/probes/event"
)

// CheckColumns returns an error if no event that the program prints has one of the chosen fields.
func (p *Program) CheckColumns(c output.Columns) error {
	if c.Names == nil {
		return nil
	}
	printed := p.printed()
	if len(printed) == 0 {
		return fmt.Errorf("no clause of the program prints events: one without a block does")
	}
	known := append(fieldNames(printed), output.TimeColumn, output.ProbeColumn)
	for i, name := range c.Names {
		switch {
		case !slices.Contains(known, name):
			help := "trace -lv shows the fields of each probe"
			if near := Nearest(name, known); near != "" {
				help = fmt.Sprintf("did you mean %q?", near)
			}
			return fmt.Errorf("no field %s in %s: %s", name, enumerate(printed), help)
		case slices.Contains(c.Names[:i], name):
			return fmt.Errorf("the field %s is named twice", name)
		}
	}
	return nil
}

// printed are the probes whose events the program prints.
func (p *Program) printed() []*event.Probe {
	var all []*event.Probe
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			if c.bodies[probe].prints && !slices.Contains(all, probe) {
				all = append(all, probe)
			}
		}
	}
	return all
}
