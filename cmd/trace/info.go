package main

import (
	"github.com/spf13/cobra"

	"trace/lang/run/console"
)

// infoCommand describes recordings.
func infoCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "info FILE…",
		Short: "describe recordings: where and when they were made, their events, and what was lost",
		Args:  usageArgs(cobra.MinimumNArgs(1)),
		RunE:  func(_ *cobra.Command, args []string) error { return console.ShowInfos(s.out, args) },
	}
}
