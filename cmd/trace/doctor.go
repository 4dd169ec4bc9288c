//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"trace/lang/run"
	"trace/probes"
)

// doctorCommand shows what can be traced on this machine.
func doctorCommand(s streams) *cobra.Command {
	var o options
	var types bool
	doctor := &cobra.Command{
		Use:       "doctor [verbs]",
		Short:     "show what this machine offers: each probe, its variant, and why not the others; verbs: the programs that use RDMA devices",
		ValidArgs: []string{"verbs"},
		Args:      usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		RunE: func(c *cobra.Command, args []string) error {
			if types {
				catalog, err := probes.Load()
				if err != nil {
					return err
				}
				return catalog.WriteTypes(s.out)
			}
			return show(s, o, "doctor", func() (printer, error) { return run.Examine(c.Context(), args, o.btf) })
		},
	}
	addHostFlags(doctor, &o)
	doctor.Flags().BoolVar(&types, "types", false, "print a C file with the types of modules that the probes read; compiled, it is good for --btf (trace help kernels)")
	return doctor
}
