package exec

import (
	"fmt"
	"slices"
	"time"

	"trace/lang/ir"
	"trace/probes/event"
)

// Trial is what a test or a benchmark did.
type Trial struct {
	// Returned is the value of its return; 0 without one. It has 32 bits, like the return value of a BPF program.
	Returned uint32
	// Failed reports that it called errorf(), or exit() with a status other than 0: a failed assert does both.
	Failed bool
	// Took is the time of all its runs.
	Took time.Duration
}

// Passed reports whether a test passed.
func (t Trial) Passed() bool { return t.Returned == 0 && !t.Failed }

// Trials returns the tests or the benchmarks of the program.
func (r *Run) Trials(kind ir.ClauseKind) []*ir.Clause {
	return slices.DeleteFunc(slices.Clone(r.plan.Program.Clauses), func(c *ir.Clause) bool { return c.Kind != kind })
}

// Try runs a test or a benchmark so many times. Its output goes to sink, and what it reports to the user to warn.
func (r *Run) Try(c *ir.Clause, times int, sink Sink, warn func(text string)) (t Trial, err error) {
	defer r.lock()()
	m := r.machine
	sc := &scope{setting: m.setting(m.now())}
	sc.sink, sc.warn = sink, func(warning bool, text string) {
		t.Failed = t.Failed || !warning
		warn(text)
	}
	began := time.Now()
	r.busy.Store(c)
	defer r.busy.Store(nil)
	for range times {
		err := m.run(r.moments[c], sc)
		t.Failed = t.Failed || err != nil
		if err := r.unlessCut(c.Heading(), err); err != nil {
			return t, fmt.Errorf("%s: %w", c, err)
		}
	}
	t.Took, t.Returned = time.Since(began), uint32(event.To[uint64](sc.returned))
	t.Failed = t.Failed || m.status != nil && *m.status != 0
	m.stopped, m.status = false, nil // exit() ends the test alone
	return t, nil
}
