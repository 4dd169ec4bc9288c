package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"

	"trace/lang/ir"
	"trace/lang/run"
	"trace/lang/syntax"
)

// Console shows a user what happens in a run besides its data.
type Console struct {
	// Err is where it writes.
	Err io.Writer
	// Quiet shows only errors and losses, Verbose everything. Strict also reports that the command has failed. Live means that the
	// maps are shown in place.
	Quiet, Verbose, Strict, Live bool
	// NoWarnings leaves out warnings about the program and of it.
	NoWarnings bool
	// Progress, if not nil, is shown in place.
	Progress *Progress

	// lost and corrected are the counts that were shown, by the name of the probe.
	lost, corrected map[string]uint64
}

// Note prints a line for the user. Data never goes this way.
func (c *Console) Note(format string, args ...any) { Note(c.Err, format, args...) }

// Note prints a line for the user. An error may have several lines, and names of files from outside the program.
func Note(w io.Writer, format string, args ...any) {
	text := syntax.Visible(fmt.Sprintf(format, args...))
	fmt.Fprintf(w, "trace: %s\n", strings.ReplaceAll(text, "\n", "\ntrace: "))
}

// Text prints what write writes about a program or a file. They may come from anywhere, so control characters are escaped.
func Text(w io.Writer, write func(io.Writer) error) error {
	var text strings.Builder
	if err := write(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, syntax.Visible(text.String()))
	return err
}

// Script prints a script. On a terminal its control characters are escaped, too; a file gets it as it is.
func Script(w io.Writer, text string) error {
	if f := run.FileOf(w); f != nil && term.IsTerminal(int(f.Fd())) {
		text = syntax.Visible(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Show prints what happens while a program runs.
func (c *Console) Show(n run.Note) {
	switch n := n.(type) {
	case run.Attaching:
		c.Progress.Show(func(time.Duration) string { return fmt.Sprintf("attached %d of %d probes", n.Done, n.All) })
	case run.Playing:
		c.Progress.Show(func(took time.Duration) string {
			return fmt.Sprintf("%d%%, %d events, %.0f events/s", 100*n.Read/max(n.All, 1), n.Events, float64(n.Events)/took.Seconds())
		})
	case run.Attached:
		c.Progress.Clear()
		c.showAttached(n)
	case run.Rejected:
		c.Progress.Clear()
		c.showRejected(n)
	case run.Counts:
		c.showMissing(n.Missing)
		c.showLosses(n.Probes)
	case run.CommandEnded:
		if c.Verbose || n.Failed && (!c.Quiet || c.Strict) {
			c.Note("%s ended: %v", n.Name, n.State)
		}
	case run.Left:
		if n.Asked || !c.Quiet && (n.Events > 0 || n.Clause != "") {
			c.Progress.Clear()
			c.Note("%s", leftLine(n))
		}
	case run.CgroupsUnwatched:
		c.Note("%v: cgroups that are removed before they are printed may show as numbers, and what new ones run may be unknown", n.Err)
	case run.Message:
		if n.Warning && c.NoWarnings {
			return
		}
		c.Progress.Clear()
		fmt.Fprintln(c.Err, syntax.Visible(n.Text))
	case run.Trouble:
		c.Note("%v", n.Err)
	}
}

// Warn prints the warnings about a program.
func (c *Console) Warn(program *ir.Program) {
	if !c.Quiet && !c.NoWarnings && len(program.Warnings) > 0 {
		Mistakes(c.Err, program.Warnings)
	}
}

// ShowCgroups prints which cgroups of the program do not exist. Otherwise a typo in a path would silently match nothing.
func (c *Console) ShowCgroups(program *ir.Program) {
	for _, path := range program.CgroupPaths() {
		if _, ok := program.CgroupID(path); !ok && !c.Quiet {
			c.Note("cgroup %s does not exist: events are compared with its path, in user space", path)
		}
	}
}

// showAttached prints what is attached and what is not.
func (c *Console) showAttached(a run.Attached) {
	for _, l := range a.LeftOut {
		c.Note("leaving out %s", l)
	}
	if err := a.StacksUnwatched; err != nil {
		c.Note("stacks of ended processes are printed without names: %v (names need CAP_PERFMON, on Debian CAP_SYS_ADMIN)", err)
	}
	c.showMissing(a.Missing)
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
	if a.Clauses > 0 {
		fmt.Fprintf(c.Err, "Attached %s\n", plural(a.Clauses, "probe"))
	}
	if c.Verbose {
		c.Note("attaching took %d ms", a.Took.Milliseconds())
		if a.Read > 0 {
			c.Note("%d KiB of processes were read to find what they call", (a.Read+1023)/1024)
		}
		for _, err := range a.Refused {
			c.Note("not used: %v", err)
		}
	}
}

// showRejected prints that a clause runs in user space, and why the kernel rejected it.
func (c *Console) showRejected(r run.Rejected) {
	why := "which is a bug in trace"
	if r.Large {
		why = "which has too many paths for the verifier"
	}
	c.Note("%s: the kernel rejected the code for %s, %s: it runs in user space instead (-v shows more)", r.Probe, strings.Join(r.Clauses, ", "), why)
	if c.Verbose {
		c.Note("%+v", r.Err)
	}
}

// leftLine describes what the end of a run still has to do.
func leftLine(l run.Left) string {
	what := "the end of the run takes its time"
	switch {
	case l.Clause != "":
		what = l.Clause + " still runs"
	case l.Events > 0:
		what = plural(l.Events, "event") + " that came before the end " + areLeft(l.Events)
	}
	if l.Asked {
		what += "; Ctrl-C again cuts it short, and counts what is left as lost"
	}
	return what
}

func areLeft(n int) string {
	if n == 1 {
		return "is left"
	}
	return "are left"
}

func (c *Console) showMissing(lines []string) {
	for _, line := range lines {
		c.Note("%s", line)
	}
}
