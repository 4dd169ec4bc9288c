package main

import (
	"fmt"
	"strings"
	"time"

	"trace/lang"
	"trace/lang/run"
)

// console is the user of a run, who is told what happens besides its data.
type console struct {
	streams
	o        options
	progress *progress
	// lost and corrected are what the user knows, by the name of the probe.
	lost, corrected map[string]uint64
}

// tell prints what happens while a program runs.
func (c *console) tell(n run.Note) {
	switch n := n.(type) {
	case run.Attaching:
		c.progress.tell(func(time.Duration) string { return fmt.Sprintf("attached %d of %d probes", n.Done, n.All) })
	case run.Playing:
		c.progress.tell(func(took time.Duration) string {
			return fmt.Sprintf("%d%%, %d events, %.0f events/s", 100*n.Read/max(n.All, 1), n.Events, float64(n.Events)/took.Seconds())
		})
	case run.Attached:
		c.progress.clear()
		c.tellAttached(n)
	case run.Rejected:
		c.progress.clear()
		c.tellRejected(n)
	case run.Counts:
		c.tellMissing(n.Missing)
		c.tellLosses(n.Probes)
	case run.CommandEnded:
		if c.o.verbose || n.Failed && (!c.o.quiet || c.o.strict) {
			c.note("%s ended: %v", n.Name, n.State)
		}
	case run.CgroupsUnwatched:
		c.note("%v: cgroups that end before they are printed may show as numbers", n.Err)
	case run.Trouble:
		c.note("%v", n.Err)
	}
}

// tellCgroups says which cgroups of the program are not there yet: with a mistake in a path nothing would ever match. A recording has its
// own.
func (c *console) tellCgroups(program *lang.Program) {
	if c.o.quiet || c.o.recordsOnly || len(c.o.recordings) > 0 {
		return
	}
	for _, path := range program.Cgroups() {
		if _, ok := program.CgroupID(path); !ok {
			c.note("there is no cgroup %s now: events are compared with it by path, in user space", path)
		}
	}
}

// tellAttached says what is attached, and what is not.
func (c *console) tellAttached(a run.Attached) {
	for _, l := range a.LeftOut {
		c.note("leaving out %s: %s", l.Probes, l.Why)
	}
	if err := a.StacksUnwatched; err != nil {
		c.note("stacks of processes that have ended by then are printed without names: %v (it needs CAP_PERFMON, on Debian CAP_SYS_ADMIN)", err)
	}
	c.tellMissing(a.Missing)
	if c.o.quiet || c.o.live {
		return
	}
	if len(a.Variants) > 0 {
		fmt.Fprintf(c.err, "Attached %s (%s). Hit Ctrl-C to end.\n", plural(len(a.Variants), "probe"), strings.Join(a.Variants, ", "))
	}
	if c.o.verbose {
		c.note("attaching took %d ms", a.Took.Milliseconds())
		for _, err := range a.Refused {
			c.note("not used: %v", err)
		}
	}
}

// tellRejected says that a clause runs in user space, and whose mistake that is.
func (c *console) tellRejected(r run.Rejected) {
	why := "which is a bug in trace"
	if r.Large {
		why = "which has too many paths for it to follow"
	}
	c.note("%s: the kernel rejected the code for %s, %s: it runs in user space instead (-v shows more)", r.Probe, strings.Join(r.Clauses, ", "), why)
	if c.o.verbose {
		c.note("%+v", r.Err)
	}
}

func (c *console) tellMissing(lines []string) {
	for _, line := range lines {
		c.note("%s", line)
	}
}
