package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"trace/lang/check"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/probes/event"
	"trace/probes/symbols"
)

// Options configure a run.
type Options struct {
	// Name of the program for errors, its Text, and the values of its Params.
	Name, Text string
	Params     map[string]string
	// Arguments of the program, $1, $2 …
	Arguments []string
	// Environ is the environment, as [os.Environ] returns it. It has settings of the program.
	Environ []string
	// Meant returns advice about a program that is a single unknown word, [check.Options.Meant]; nil: it has none.
	Meant func(word string) (exact, near string)
	// Filter restricts the program to the events of some tasks.
	Filter Filter
	// WithoutSelf leaves out the system calls of this process, and the command's before its execve.
	WithoutSelf bool
	// Raw writes texts from outside the program with their control characters.
	Raw bool
	// Unsafe allows the program to act.
	Unsafe bool
	// Format is the format of the data, and Columns choose what is printed of events.
	Format  output.Format
	Columns output.Columns
	// Count ends the run after so many printed events; 0 does not.
	Count uint64
	// MapKeys is how many keys a map has room for; 0 chooses by the size of the values.
	MapKeys uint32
	// Quiet omits from the data that probes are attached.
	Quiet bool
	// Cleared reports that Outputs.View may empty the maps.
	Cleared bool
	// Exemplars makes histograms keep which events their largest values came from.
	Exemplars bool
	// Missing is what to do about named probes that are not available, if the program does not choose.
	Missing ir.Missing
	// Names are shared with other runs; nil: the run has its own. Hurry means that nobody waits for names of functions.
	Names *symbols.Names
	Hurry bool

	Machine
	// Speed plays recordings so many times as fast as they were made; 0 plays them at full speed.
	Speed float64
}

// Filter restricts whose events a program gets. An event must pass all fields; a zero field passes everything.
type Filter struct {
	// PID is a process; the run ends with it. Children adds the descendants of PID or, if PID is 0, of the command.
	PID      int
	Children bool
	// Comm is the name of threads; Cgroup is the path of a cgroup and includes cgroups below it; PGID is a process group, and PIDNS
	// the inode number of a pid namespace.
	Comm   string
	Cgroup string
	PGID   int
	PIDNS  uint32
}

// Machine has the options for events of this machine, which recordings do not have.
type Machine struct {
	// Command is started once the probes are attached. The run ends with it.
	Command []string
	// Timeout ends the run; 0 does not.
	Timeout time.Duration
	// BTF are files and folders with the types of modules that have none.
	BTF []string
	// RingBytes is the size of the ring buffer.
	RingBytes int
	// NoKernel evaluates everything in user space, Compare on both sides.
	NoKernel, Compare bool
	// Burst attaches programs that are traps in the traced program a part of the time.
	Burst Burst
	// Counted counts the events that the kernel rejected.
	Counted bool
	// CountsFailures counts the reads of a process's memory that fail.
	CountsFailures bool
	// DryRun ends the run once the probes are attached.
	DryRun bool
	// Record keeps the events in a file; nil: it does not.
	Record *Record
}

// Record describes which events go to a recording.
type Record struct {
	// File is its name, and Program the program's text in it.
	File, Program string
	// Only keeps the events that the program would print, and does not print them. Otherwise the file gets the events that the
	// program may want.
	Only bool
	// MaxBytes limits a ring of files; 0: no ring.
	MaxBytes int64
	// Replace allows it to replace an existing file.
	Replace bool
	// Stacks keeps the stacks of each event.
	Stacks bool
}

// Outputs are where a run writes, and what shows its maps. A nil field takes nothing.
type Outputs struct {
	// Data is the program's output. User is for printed text if Data is made at the end.
	Data *Stream
	User io.Writer
	// Document is made at the end. View shows the maps meanwhile.
	Document *output.Document
	View     *output.Live
	// Coloured means that Data goes to a terminal with colours.
	Coloured bool
	// Cut ends when nobody waits longer for what came before the end of a run: it is left out, and counted. Unnamed ends when nobody waits for
	// names of functions. nil: never.
	Cut, Unnamed context.Context
	// Show prints the maps whenever it receives.
	Show <-chan os.Signal
	// Sink returns what takes the program's output in place of the printer of Data.
	Sink func(printer exec.Sink) exec.Sink
	// Unshown keeps the maps from being printed at the end. A Document does so, too.
	Unshown bool
	// Started is called once the program runs.
	Started func(Running)
	// Note is called for each note, from any goroutine.
	Note func(Note)
	// Stdin, Stdout and Stderr are for the command.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// orDiscard replaces nil writers with ones that discard.
func (o Outputs) orDiscard(ctx context.Context) Outputs {
	if o.Data == nil {
		o.Data = NewStream(ctx, nil, io.Discard)
	}
	if o.User == nil {
		o.User = io.Discard
	}
	if o.Cut == nil {
		o.Cut = context.Background()
	}
	if o.Unnamed == nil {
		o.Unnamed = context.Background()
	}
	if o.Note == nil {
		o.Note = func(Note) {}
	}
	if o.Sink == nil {
		o.Sink = func(printer exec.Sink) exec.Sink { return printer }
	}
	if o.Started == nil {
		o.Started = func(Running) {}
	}
	return o
}

// unshown reports whether the maps are not printed at the end.
func (o Outputs) unshown() bool { return o.Unshown || o.Document != nil }

// message passes on what the program reports to the user.
func (o Outputs) message(warning bool, text string) { o.Note(Message{text, warning}) }

// printer returns a printer of the program's output.
func (o Outputs) printer(f output.Format, wall *event.WallClock) *output.Printer {
	p := output.NewPrinter(o.Document.Through(o.Data, o.User, o.View), f, wall)
	p.Colour(o.Coloured)
	return p
}

// compile returns the options of the compiler.
func (o Options) compile() check.Options {
	f := o.Filter
	filter := check.Filter{PID: f.PID, Comm: f.Comm, PGID: f.PGID, PIDNS: f.PIDNS, Cgroup: f.Cgroup}
	return check.Options{Params: o.Params, Arguments: o.Arguments, Environ: o.Environ, Filter: filter, Command: len(o.Command) > 0, Raw: o.Raw, Unsafe: o.Unsafe, Meant: o.Meant, Exemplars: o.Exemplars, Missing: o.Missing}
}

// maxComm is the length of the longest name of a thread: TASK_COMM_LEN without the NUL.
const maxComm = 15

// check returns an error if a filter is wrong on any machine.
func (f Filter) check() error {
	below, mounted := strings.CutPrefix(f.Cgroup, "/sys/fs/cgroup/")
	switch {
	case len(f.Comm) > maxComm:
		return fmt.Errorf("--comm %s: names of threads have at most %d bytes: write %s, as ps -o comm shows it", f.Comm, maxComm, f.Comm[:maxComm])
	case mounted:
		return fmt.Errorf("--cgroup %s: the path of a cgroup starts below the mount point: write /%s, like in /proc/PID/cgroup", f.Cgroup, below)
	case f.Cgroup != "" && f.Cgroup[0] != '/':
		return fmt.Errorf("--cgroup %s: not the path of a cgroup: write it like in /proc/PID/cgroup, for example /system.slice/ssh.service", f.Cgroup)
	}
	return nil
}

// checkProbes returns an error if the program names a probe whose events no filter lets pass.
func (f Filter) checkProbes(p *ir.Program) error {
	if f == (Filter{}) {
		return nil
	}
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if probe.Period != 0 && probe.Field("pid").Optional && c.Named[probe] {
				return fmt.Errorf("%s has no process, and the filter (-p, --children, --comm, --cgroup, --pgid or --pidns) leaves only events of some: leave out one of them", probe)
			}
		}
	}
	return nil
}
