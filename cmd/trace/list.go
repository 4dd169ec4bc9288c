package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"trace/lang/output"
	"trace/lang/run"
	"trace/probes"
	"trace/probes/event"
)

// runList prints the probes that match a glob. It needs neither root nor a kernel that supports them.
func runList(cmd *cobra.Command, s streams, o options, args []string) error {
	if err := checkOnly(cmd, "-l", "list", "verbose", "read"); err != nil {
		return err
	}
	if len(args) > 1 {
		return usagef("-l takes one glob, not %d: quote it, like trace -l 'nvme:*'", len(args))
	}
	return listProbes(s, o, args...)
}

// listProbes prints the probes that match a glob, all without one.
func listProbes(s streams, o options, glob ...string) error {
	found, err := catalogOf(o)
	if err != nil {
		return err
	}
	if len(glob) > 0 {
		if found = event.Match(found, glob[0]); found == nil {
			return usagef("no probe matches %q; trace -l lists all", glob[0])
		}
	}
	if o.verbose {
		return output.Describe(s.out, found)
	}
	for _, p := range found {
		fmt.Fprintln(s.out, p)
	}
	return nil
}

// catalogOf returns the probes of the recordings, or without recordings the whole catalog.
func catalogOf(o options) ([]*event.Probe, error) {
	if len(o.recordings) > 0 {
		r, err := run.OpenRecordings(o.recordings...)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.Probes(), nil
	}
	catalog, err := probes.Load()
	if err != nil {
		return nil, err
	}
	return catalog.Probes(), nil
}
