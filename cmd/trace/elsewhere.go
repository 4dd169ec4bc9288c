//go:build !linux

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

// errElsewhere is the error of commands that trace this machine, on systems other than Linux.
var errElsewhere = errors.New(runtime.GOOS + " cannot be traced, only Linux: read a recording from Linux, trace -r FILE PROGRAM")

func runProgram(context.Context, streams, options, programText) error { return errElsewhere }

func runRecord(context.Context, streams, options, programText, int64) error { return errElsewhere }

func doctorCommand(streams) *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "show what this machine offers, if it runs Linux", DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error { return errElsewhere }}
}
