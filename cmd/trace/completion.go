package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"trace/probes"
)

// completionCommand prints the completion script of a shell.
func completionCommand(s streams) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "print the completion script of a shell",
		Example:               "  source <(trace completion bash)",
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		Args:                  usageArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			const descriptions = true
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.out, descriptions)
			case "zsh":
				return root.GenZshCompletion(s.out)
			default:
				return root.GenFishCompletion(s.out, descriptions)
			}
		},
	}
}

// usageArgs makes what check finds a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w (try %s --help)", err, cmd.CommandPath())
		}
		return nil
	}
}

// completeProgram offers the scripts that come with trace, and the names of probes.
func completeProgram(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, how := completeProbes(cmd, args, begun)
	if len(args) > 0 {
		return names, how
	}
	return append(names, completeScripts()...), how
}

// completeProbes offers the names of probes for the argument, which is a program that begins with one, or a glob.
func completeProbes(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	catalog, err := probes.Load()
	if err != nil {
		cobra.CompErrorln(fmt.Sprint(err))
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, p := range catalog.Probes() {
		names = append(names, cobra.CompletionWithDesc(p.String(), p.Doc))
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
