package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"trace/docs"
	"trace/lang/words"
)

// helpCommand explains commands, topics, and whatever has a name.
func helpCommand(s streams) *cobra.Command {
	known := append(docs.Names(), subcommands...)
	return &cobra.Command{
		Use:   "help [COMMAND|TOPIC|WORD]",
		Short: "help on a command, a topic, or any function, field, probe, enum, script or message",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if topic, err := docs.Find(args[0]); err == nil {
					_, err := io.WriteString(s.out, topic.Plain())
					return err
				}
			}
			if found, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				found.InitDefaultHelpFlag()
				found.InitDefaultVersionFlag()
				return found.Help()
			}
			if err := words.Explain(s.out, strings.Join(args, " "), known); err != nil {
				return usageError{err}
			}
			return nil
		},
	}
}

// topicLines lists the topics, in the columns of the help.
func topicLines() string {
	lines := docs.Wrap(strings.Join(docs.Names(), " "), docs.Width-2)
	return "  " + strings.Join(lines, "\n  ")
}
