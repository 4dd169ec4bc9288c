package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"trace/lang/run"
	"trace/lang/run/console"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader // for the command of -c, or of the program itself; nil if there is none
	keys     *os.File  // what the user types while a program runs; nil if standard input is not a terminal
	out, err io.Writer
	// keep takes over the maps of a program after its run; nil: they are closed.
	keep func(*run.Ended) error
}

// writing returns the streams with another place for data.
func (s streams) writing(to io.Writer) streams {
	s.out = to
	return s
}

// note prints a line for the user; data never uses it.
func (s streams) note(format string, args ...any) { console.Note(s.err, format, args...) }

// usageError means that the command line is wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// programError is the list of errors in a program, with their positions and lines.
type programError struct{ error }

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f := run.FileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}
