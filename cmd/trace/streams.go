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
	keys     *os.File  // what the user types while a program runs; nil if standard input is no terminal
	out, err io.Writer
	// keep takes over the maps of a program that has run; nil: they are closed.
	keep func(*run.Ended) error
}

// note prints a line for the user; data never goes this way.
func (s streams) note(format string, args ...any) { console.Note(s.err, format, args...) }

// usageError says that the command line is wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// programError is the list of errors in a program; it carries their positions and the source lines.
type programError struct{ error }

// isTerminal tells whether a stream is one.
func isTerminal(stream any) bool {
	f := run.FileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}
