package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

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
