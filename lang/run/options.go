package run

import (
	"context"
	"io"
	"os"
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
	// PID restricts the program to the events of a process; the run ends with it. 0 is no process.
	PID int
	// Raw says that texts of others are written with their control characters.
	Raw bool
	// Format is how the data is written, and Columns what is printed of events.
	Format  output.Format
	Columns output.Columns
	// Count ends the run after so many printed events, if it is not 0.
	Count uint64
	// MapEntries is how many keys a map has room for; 0 chooses by the size of the values.
	MapEntries uint32
	// Quiet leaves out of the data that probes are attached.
	Quiet bool
	// Cleared says that Outputs.View may empty the maps.
	Cleared bool

	Machine
	// Speed plays recordings so many times as fast as they were made; 0 is as fast as possible.
	Speed float64
}

// Machine are the options that say something about this machine, and nothing about recorded events.
type Machine struct {
	// Command is started once the probes are attached; the run ends with it. Children restricts the program to its process, and to those
	// that it and they start.
	Command  []string
	Children bool
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
	return check.Options{Params: o.Params, PID: o.PID, Command: len(o.Command) > 0, Raw: o.Raw, Words: o.Words}
}
