//go:build linux

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"trace/lang/output"
	"trace/lang/run"
)

// doctorCommand tells what can be traced on this machine.
func doctorCommand(s streams) *cobra.Command {
	var o options
	doctor := &cobra.Command{
		Use:   "doctor",
		Short: "say what this machine offers: each probe, which variant of it, and why not the others",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if f := o.format.Format; f != output.Text && f != output.JSON {
				return usagef("doctor writes text or json, not %s", f)
			}
			d, err := run.Diagnose(o.btf)
			if err != nil {
				return err
			}
			if o.format.Format == output.JSON {
				return json.NewEncoder(s.out).Encode(d)
			}
			return d.Print(s.out)
		},
	}
	addHostFlags(doctor, &o)
	return doctor
}
