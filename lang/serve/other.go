//go:build !linux

// Package serve runs programs as a service, on Linux.
package serve

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

// Command returns the command `trace serve`, which needs Linux.
func Command(string) *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "run programs as a service, on Linux", DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
		return errors.New(runtime.GOOS + " cannot be traced, only Linux")
	}}
}
