//go:build linux

package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"trace/lang/run"
	"trace/probes"
)

// doctorCommand shows what can be traced on this machine.
func doctorCommand(s streams) *cobra.Command {
	var o options
	var types, quick bool
	doctor := &cobra.Command{
		Use:   "doctor [verbs | PROBE | SCRIPT | PROGRAM]",
		Short: "show what this machine offers, by trying it: each probe, its variant, and why not the others; what keeps a script or a program from running here; verbs: the programs that use RDMA devices",
		ValidArgsFunction: func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			words, how := completeProgram(c, args, begun)
			if len(args) == 0 {
				words = append(words, beginningWith(begun, []cobra.Completion{"verbs"})...)
			}
			return words, how
		},
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if types {
				catalog, err := probes.Load()
				if err != nil {
					return err
				}
				return catalog.WriteTypes(s.out)
			}
			found, err := run.Examine(c.Context(), run.Question{About: strings.Join(args, ""), BTF: o.btf, Quick: quick})
			if err != nil {
				return mistaken(err)
			}
			return errors.Join(show(s, o, "doctor", func() (printer, error) { return found, nil }), found.Failed())
		},
	}
	addHostFlags(doctor, &o)
	doctor.Flags().BoolVar(&quick, "quick", false, "attach nothing: what the kernel would refuse is not found out")
	doctor.Flags().BoolVar(&types, "types", false, "print a C file with the types of modules that the probes read; compiled, it is good for --btf (trace help kernels)")
	return doctor
}
