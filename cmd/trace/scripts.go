package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"trace/scripts"
)

// scriptsCommand lists the scripts that come with trace, and shows one.
func scriptsCommand(s streams) *cobra.Command {
	list := &cobra.Command{
		Use:                   "scripts",
		Short:                 "list the scripts that come with trace",
		Example:               "  trace scripts                         list the scripts\n  trace scripts show nvme_latency       print a script, to read or to change\n  trace nvme_latency --help             describe it and its flags\n  trace nvme_latency --ctrl_id 0        run it",
		DisableFlagsInUseLine: true,
		Args:                  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
			for _, script := range scripts.All() {
				fmt.Fprintf(w, "%s\t%s\n", script.Name, script.Summary)
			}
			return w.Flush()
		},
	}
	list.AddCommand(&cobra.Command{
		Use:                   "show NAME",
		Short:                 "print the text of a script",
		DisableFlagsInUseLine: true,
		Args:                  usageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			script, ok := scripts.Find(args[0])
			if !ok {
				return usagef("no script %s: there are %s", args[0], strings.Join(scriptNames(), ", "))
			}
			_, err := fmt.Fprint(s.out, script.Text)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeScripts(), cobra.ShellCompDirectiveNoFileComp
		},
	})
	return list
}

func scriptNames() []string {
	var names []string
	for _, script := range scripts.All() {
		names = append(names, script.Name)
	}
	return names
}

func completeScripts() []cobra.Completion {
	var all []cobra.Completion
	for _, script := range scripts.All() {
		all = append(all, cobra.CompletionWithDesc(script.Name, script.Summary))
	}
	return all
}
