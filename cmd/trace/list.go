package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trace/lang/output"
	"trace/lang/run"
	"trace/probes"
	"trace/probes/event"
)

// runList prints the probes that match a glob. It needs neither root nor a kernel that supports them.
func runList(cmd *cobra.Command, s streams, o options, args []string) error {
	if err := checkOnly(cmd, "-l", "list", "verbose", "read", "program"); err != nil {
		return err
	}
	if len(args) > 1 {
		return usagef("-l takes one glob, not %d: quote it, like trace -l 'nvme:*'", len(args))
	}
	if o.program == "" {
		return listProbes(s, o, args...)
	}
	all, err := catalogOf(o)
	if err != nil {
		return err
	}
	found, err := run.ProbesOf(all, inlineName, o.program)
	return errors.Join(mistaken(err), showProbes(s, o, found))
}

// listProbes prints the probes that match a glob, all without one.
func listProbes(s streams, o options, glob ...string) error {
	found, err := catalogOf(o)
	if err != nil {
		return err
	}
	if len(glob) > 0 {
		enum := run.Enum(found, strings.TrimPrefix(glob[0], "enum "))
		if found, err = run.Listed(found, glob[0]); err != nil {
			return err
		}
		switch {
		case len(found) > 0:
		case enum != nil:
			return output.DescribeEnum(s.out, enum)
		default:
			return usagef("no probe matches %q; trace -l lists all", glob[0])
		}
	}
	return showProbes(s, o, found)
}

// showProbes prints probes, with -v and their fields.
func showProbes(s streams, o options, found []*event.Probe) error {
	if o.verbose && len(found) > 0 {
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
