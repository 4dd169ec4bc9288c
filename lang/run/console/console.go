package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"trace/lang/ir"
	"trace/lang/run"
	"trace/lang/syntax"
)

// Console is where a user reads what happens in a run besides its data.
type Console struct {
	// Err is where it is written to.
	Err io.Writer
	// Quiet leaves out all but errors and losses, Verbose nothing. Strict also says that the command has failed. Live says that maps are
	// shown in place.
	Quiet, Verbose, Strict, Live bool
	// Progress is shown in place, if it is not nil.
	Progress *Progress

	// lost and corrected are what the user knows, by the name of the probe.
	lost, corrected map[string]uint64
}

// Note prints a line for the user; data never goes this way.
func (c *Console) Note(format string, args ...any) { Note(c.Err, format, args...) }

// Note prints a line for the user. Errors may have several lines, and names of files that others chose.
func Note(w io.Writer, format string, args ...any) {
	text := syntax.Visible(fmt.Sprintf(format, args...))
	fmt.Fprintf(w, "trace: %s\n", strings.ReplaceAll(text, "\n", "\ntrace: "))
}

// Tell prints what happens while a program runs.
func (c *Console) Tell(n run.Note) {
	switch n := n.(type) {
	case run.Attaching:
		c.Progress.Tell(func(time.Duration) string { return fmt.Sprintf("attached %d of %d probes", n.Done, n.All) })
	case run.Playing:
		c.Progress.Tell(func(took time.Duration) string {
			return fmt.Sprintf("%d%%, %d events, %.0f events/s", 100*n.Read/max(n.All, 1), n.Events, float64(n.Events)/took.Seconds())
		})
	case run.Attached:
		c.Progress.Clear()
		c.tellAttached(n)
	case run.Rejected:
		c.Progress.Clear()
		c.tellRejected(n)
	case run.Counts:
		c.tellMissing(n.Missing)
		c.tellLosses(n.Probes)
	case run.CommandEnded:
		if c.Verbose || n.Failed && (!c.Quiet || c.Strict) {
			c.Note("%s ended: %v", n.Name, n.State)
		}
	case run.CgroupsUnwatched:
		c.Note("%v: cgroups that end before they are printed may show as numbers", n.Err)
	case run.Trouble:
		c.Note("%v", n.Err)
	}
}

// TellCgroups says which cgroups of the program are not there yet: with a mistake in a path nothing would ever match.
func (c *Console) TellCgroups(program *ir.Program) {
	for _, path := range program.CgroupPaths() {
		if _, ok := program.CgroupID(path); !ok && !c.Quiet {
			c.Note("there is no cgroup %s now: events are compared with it by path, in user space", path)
		}
	}
}

// tellAttached says what is attached, and what is not.
func (c *Console) tellAttached(a run.Attached) {
	for _, l := range a.LeftOut {
		c.Note("leaving out %s: %s", l.Probes, l.Why)
	}
	if err := a.StacksUnwatched; err != nil {
		c.Note("stacks of processes that have ended by then are printed without names: %v (it needs CAP_PERFMON, on Debian CAP_SYS_ADMIN)", err)
	}
	c.tellMissing(a.Missing)
	if c.Quiet || c.Live {
		return
	}
	if len(a.Probes) > 0 {
		var names []string
		for _, p := range a.Probes {
			names = append(names, p.Name+" "+p.Variant)
		}
		fmt.Fprintf(c.Err, "Attached %s (%s). Hit Ctrl-C to end.\n", plural(len(a.Probes), "probe"), strings.Join(names, ", "))
	}
	if c.Verbose {
		c.Note("attaching took %d ms", a.Took.Milliseconds())
		for _, err := range a.Refused {
			c.Note("not used: %v", err)
		}
	}
}

// tellRejected says that a clause runs in user space, and whose mistake that is.
func (c *Console) tellRejected(r run.Rejected) {
	why := "which is a bug in trace"
	if r.Large {
		why = "which has too many paths for it to follow"
	}
	c.Note("%s: the kernel rejected the code for %s, %s: it runs in user space instead (-v shows more)", r.Probe, strings.Join(r.Clauses, ", "), why)
	if c.Verbose {
		c.Note("%+v", r.Err)
	}
}

func (c *Console) tellMissing(lines []string) {
	for _, line := range lines {
		c.Note("%s", line)
	}
}
