package check

import (
	"fmt"
	"slices"

	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/syntax"
)

// CheckColumns returns an error if no event that the program prints has one of the chosen fields.
func CheckColumns(p *ir.Program, c output.Columns) error {
	if c.Names == nil {
		return nil
	}
	printed := p.Printed()
	if len(printed) == 0 {
		return fmt.Errorf("no clause of the program prints events: one without a block does")
	}
	known := append(fieldNames(printed), output.TimeColumn, output.ProbeColumn)
	for i, name := range c.Names {
		switch {
		case !slices.Contains(known, name):
			help := "trace -lv shows the fields of each probe"
			if near := syntax.Nearest(name, known); near != "" {
				help = fmt.Sprintf("did you mean %q?", near)
			}
			return fmt.Errorf("no field %s in %s: %s", name, syntax.Enumerate(printed), help)
		case slices.Contains(c.Names[:i], name):
			return fmt.Errorf("the field %s is named twice", name)
		}
	}
	return nil
}
