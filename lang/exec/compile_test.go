package exec

import (
	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// compile parses and checks a program.
func compile(name, text string, catalog []*event.Probe, o check.Options) (*ir.Program, error) {
	tree, err := syntax.Parse(name, text)
	if err != nil {
		return nil, check.NameProbes(err, catalog)
	}
	return check.Program(tree, catalog, o)
}
