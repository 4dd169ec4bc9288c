//go:build !linux

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

// errElsewhere is the outcome of what traces this machine, where it cannot be.
var errElsewhere = errors.New(runtime.GOOS + " cannot be traced, only Linux: read a recording that was made there, trace -r FILE PROGRAM")

func runProgram(context.Context, streams, options, source) error { return errElsewhere }

func runRecord(context.Context, streams, options, source, int64) error { return errElsewhere }

func doctorCommand(streams) *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "say what this machine offers, if it runs Linux", DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error { return errElsewhere }}
}
