package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"trace/lang/check"
	"trace/lang/output"
)

// Options say what runs, and how.
type Options struct {
	// Name of the program for errors, its Text, and the values of its Params.
	Name, Text string
	Params     map[string]string
	// Words are what may stand in the place of a program, for advice about a mistyped one.
	Words []string
	// Filter restricts the program to the events of some tasks.
	Filter Filter
	// Raw says that texts of others are written with their control characters.
	Raw bool
	// Format is how the data is written, and Columns what is printed of events.
	Format  output.Format
	Columns output.Columns
	// Count ends the run after so many printed events, if it is not 0.
	Count uint64
	// MapKeys is how many keys a map has room for; 0 chooses by the size of the values.
	MapKeys uint32
	// Quiet leaves out of the data that probes are attached.
	Quiet bool
	// Cleared says that Outputs.View may empty the maps.
	Cleared bool

	Machine
	// Speed plays recordings so many times as fast as they were made; 0 is as fast as possible.
	Speed float64
}

// Filter says whose events a program gets: those that all of its parts let pass. What is zero lets all pass.
type Filter struct {
	// PID is a process; the run ends with it. With Children it is that process, or the one of the command if there is none, with all that
	// they have started and start.
	PID      int
	Children bool
	// Comm is the name of threads, Cgroup the path of a cgroup, with those below it, PGID a process group, and PIDNS the number of a pid
	// namespace.
	Comm   string
	Cgroup string
	PGID   int
	PIDNS  uint32
}

// Machine are the options that say something about this machine, and nothing about recorded events.
type Machine struct {
	// Command is started once the probes are attached; the run ends with it.
	Command []string
	// Timeout ends the run, if it is not 0.
	Timeout time.Duration
	// BTF are files and folders with the types of modules that carry none.
	BTF []string
	// RingBytes is the size of the buffer from the kernel.
	RingBytes int
	// NoKernel evaluates everything in user space, Compare in both.
	NoKernel, Compare bool
	// Counted counts the events that the kernel rejected.
	Counted bool
	// Record keeps the events in a file; nil: they are not kept.
	Record *Record
}

// Record says which events a file keeps.
type Record struct {
	// File is its name, and Program what it says of the program.
	File, Program string
	// Only keeps the events that the program would print, which are not printed then. Otherwise the file has those that the program wants.
	Only bool
	// MaxBytes bounds a ring of files, if it is not 0.
	MaxBytes int64
	// Replace lets it take the place of a file that exists.
	Replace bool
	// Stacks keeps the stacks of each event.
	Stacks bool
}

// Outputs are where a run writes, and what shows its maps. What is nil takes nothing.
type Outputs struct {
	// Data is what the program prints. User is for what it prints where Data is made at the end.
	Data *Stream
	User io.Writer
	// Document is made at the end, and View shows the maps meanwhile.
	Document *output.Document
	View     *output.Live
	// Show prints the maps whenever it has something.
	Show <-chan os.Signal
	// Note is called for what happens, from any goroutine.
	Note func(Note)
	// Stdin, Stdout and Stderr are those of the command.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// orDiscard has writers in the place of what is nil.
func (o Outputs) orDiscard(ctx context.Context) Outputs {
	if o.Data == nil {
		o.Data = NewStream(ctx, nil, io.Discard)
	}
	if o.User == nil {
		o.User = io.Discard
	}
	if o.Note == nil {
		o.Note = func(Note) {}
	}
	return o
}

// printer prints what the program does, in its place.
func (o Outputs) printer(f output.Format, boot time.Time) *output.Printer {
	return output.NewPrinter(o.Document.Through(o.Data, o.User, o.View), f, boot)
}

// compile are the options of the compiler.
func (o Options) compile() check.Options {
	f := o.Filter
	filter := check.Filter{PID: f.PID, Comm: f.Comm, PGID: f.PGID, PIDNS: f.PIDNS, Cgroup: f.Cgroup}
	return check.Options{Params: o.Params, Filter: filter, Command: len(o.Command) > 0, Raw: o.Raw, Words: o.Words}
}

// maxComm is the longest name of a thread: TASK_COMM_LEN without the NUL.
const maxComm = 15

// check returns what is wrong with a filter anywhere.
func (f Filter) check() error {
	below, mounted := strings.CutPrefix(f.Cgroup, "/sys/fs/cgroup/")
	switch {
	case len(f.Comm) > maxComm:
		return fmt.Errorf("--comm %s: names of threads have at most %d bytes: write %s, as ps -o comm shows it", f.Comm, maxComm, f.Comm[:maxComm])
	case mounted:
		return fmt.Errorf("--cgroup %s: the path of a cgroup begins where cgroups are mounted: write /%s, as in /proc/PID/cgroup", f.Cgroup, below)
	case f.Cgroup != "" && f.Cgroup[0] != '/':
		return fmt.Errorf("--cgroup %s: this is no path of a cgroup, which is as in /proc/PID/cgroup, like /system.slice/ssh.service", f.Cgroup)
	}
	return nil
}
