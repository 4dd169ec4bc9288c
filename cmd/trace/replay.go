package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trace/lang/ir"
	"trace/lang/run"
)

// liveFlags apply to this machine, and not to recorded events.
var liveFlags = []string{"record", "cmd", "timeout", "btf", "buffer-size", "explain", "no-kernel", "compare", "burst"}

// refuse refuses flags that the chosen action does not use.
func refuse(cmd *cobra.Command, action string, unused ...string) error {
	for _, name := range unused {
		if cmd.Flags().Changed(name) {
			return usagef("%s does not use --%s", action, name)
		}
	}
	return nil
}

// runTrials runs the tests of a program, or its benchmarks.
func runTrials(cmd *cobra.Command, s streams, o options, src programText) error {
	kind, action := ir.OnTest, "--test"
	if o.bench {
		kind, action = ir.OnBench, "--bench"
	}
	if err := refuse(cmd, action, append([]string{"read", "speed", "live", "count", "fields", "pid", "comm"}, liveFlags...)...); err != nil {
		return err
	}
	trials, err := run.NewTrials(o.run(src), kind)
	if err != nil {
		return compileError(src, err)
	}
	if err := checkProgram(s, o, trials.Program()); err != nil || o.debug == "ast" {
		return err
	}
	return follow(cmd.Context(), s, o, src, trials)
}

// runReplay runs a program on recordings.
func runReplay(ctx context.Context, s streams, o options, src programText) error {
	rec, err := run.OpenRecordings(o.recordings...)
	if err != nil {
		return fmt.Errorf("-r: %w", err)
	}
	defer rec.Close()
	if o.live && o.speed == 0 {
		o.speed = 1
	}
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
