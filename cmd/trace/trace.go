//go:build linux

package main

import (
	"context"

	"trace/lang/run"
	"trace/lang/run/console"
)

// runProgram runs a program on this machine.
func runProgram(ctx context.Context, s streams, o options, src programText) error {
	if o.record != "" {
		o.recorder = &run.Record{File: o.record, Program: src.recorded(), Replace: o.force}
	}
	live, err := run.NewLive(o.run(src))
	if err != nil {
		return compileError(src, err)
	}
	program := live.Program()
	if err := checkProgram(s, o, program); err != nil || o.debug == "ast" {
		return err
	}
	if o.record != "" {
		if err := program.Recordable(); err != nil {
			return programError{err}
		}
	}
	switch {
	case o.debug == "bpf":
		return console.Text(s.out, live.DumpCode)
	case o.explain || o.debug != "":
		return console.Text(s.out, live.Explain)
	}
	return follow(ctx, s, o, src, live)
}

// runRecord writes the events of a program to a file.
func runRecord(ctx context.Context, s streams, o options, src programText, maxSize int64) error {
	o.recorder = &run.Record{File: o.output, Program: src.text, Only: true, MaxBytes: maxSize, Replace: o.force, Stacks: o.stacks}
	o.output = "" // only the recording goes there
	live, err := run.NewLive(o.run(src))
	if err != nil {
		return compileError(src, err)
	}
	if err := checkProgram(s, o, live.Program()); err != nil {
		return err
	}
	if err := live.Program().Selects(); err != nil {
		return programError{err}
	}
	return follow(ctx, s, o, src, live)
}
