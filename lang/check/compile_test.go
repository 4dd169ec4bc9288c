package check

import (
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// compile parses and checks a program.
func compile(name, text string, catalog []*event.Probe, o Options) (*ir.Program, error) {
	tree, err := syntax.Parse(name, text)
	if err != nil {
		return nil, NameProbes(err, catalog)
	}
	return Program(tree, catalog, o)
}
