package check

import (
	"fmt"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file resolves tests and benchmarks.

// tried are the groups of tests and benchmarks.
var tried = map[string]ir.ClauseKind{"test": ir.OnTest, "bench": ir.OnBench}

// tried notes in c the kind and the name of a test or a benchmark, which is there once.
func (r *resolver) tried(c *ir.Clause, ref syntax.ProbeRef) bool {
	c.Kind, c.Name = tried[ref.Group], ref.String()
	if first, known := r.trials[c.Name]; known {
		r.fail(ref.Span, fmt.Sprintf("there are two probes %s", ref), "give one of them another name; the other is "+r.place(first))
		return false
	}
	if r.trials == nil {
		r.trials = map[string]syntax.Span{}
	}
	r.trials[c.Name] = ref.Span
	return true
}
