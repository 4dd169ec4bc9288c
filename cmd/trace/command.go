package main

import (
	"context"
	"fmt"
	"io"
	"os"

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

// runCommand executes one command line and returns its exit status.
func runCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := streams{in: stdin, out: stdout, err: stderr}
	if isTerminal(stdin) {
		s.keys = stdin.(*os.File)
	}
	out := &sink{}
	if out.file, _ = stdout.(*os.File); out.file != nil {
		s.out = out
	}
	err := execute(ctx, s, args)
	if failure := unlessUnread(out.failure()); err == nil && failure != nil {
		err = fmt.Errorf("cannot write to standard output: %w", failure)
	}
	return exitStatus(s, err)
}

func execute(ctx context.Context, s streams, args []string) error {
	script, err := findScript(args, s.in)
	if err != nil {
		return err
	}
	root := rootCommand(s, script, args)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// usageError says that the command line is wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// programError is the list of errors in a program; it carries their positions and the source lines.
type programError struct{ error }
