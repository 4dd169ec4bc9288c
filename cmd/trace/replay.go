package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trace/lang/run"
)

// liveFlags apply to this machine, and not to recorded events.
var liveFlags = []string{"record", "cmd", "timeout", "btf", "buffer-size", "explain", "no-kernel", "compare", "burst"}

// checkReplay refuses flags that a replay does not use.
func checkReplay(cmd *cobra.Command) error {
	for _, name := range liveFlags {
		if cmd.Flags().Changed(name) {
			return usagef("-r does not use --%s", name)
		}
	}
	return nil
}

// runReplay runs a program on recordings.
func runReplay(ctx context.Context, s streams, o options, src programText) error {
	rec, err := run.OpenRecordings(o.recordings...)
	if err != nil {
		return fmt.Errorf("-r: %w", err)
	}
	defer rec.Close()
	if err := rec.CheckOutput(o.output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	replay, err := run.NewReplay(o.run(src), rec)
	if err != nil {
		return compileError(src, err)
	}
	if err := checkProgram(s, o, replay.Program()); err != nil || o.debug == "ast" {
		return err
	}
	return follow(ctx, s, o, src, replay)
}
