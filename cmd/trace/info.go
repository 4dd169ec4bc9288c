package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"trace/lang/run/console"
	"trace/probes/recording"
)

// infoCommand describes recordings.
func infoCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "info FILE…",
		Short: "describe recordings: where and when they were made, their events, and what was lost",
		Args:  usageArgs(cobra.MinimumNArgs(1)),
		RunE:  func(_ *cobra.Command, args []string) error { return showInfos(s, args) },
	}
}

func showInfos(s streams, names []string) error {
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := showInfo(s, name); err != nil {
			return err
		}
	}
	return nil
}

// showInfo reads a recording to its end and prints what it found.
func showInfo(s streams, name string) error {
	rec, err := recording.Open(name)
	if err != nil {
		return err
	}
	defer rec.Close()
	for err == nil {
		_, err = rec.Next()
	}
	for _, info := range rec.Info() {
		console.WriteInfo(s.out, info)
	}
	if err != io.EOF {
		return err
	}
	return nil
}
