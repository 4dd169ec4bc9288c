package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/docs"
)

// manCommand prints the manual in Markdown. make install turns it into the manual page.
func manCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Hidden: true,
		Short:  "print the whole manual in Markdown; go-md2man turns it into a manual page",
		Args:   usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeManual(s.out, cmd.Root())
		},
	}
}

// writeManual writes what the commands report about themselves, and then all documents.
func writeManual(out io.Writer, root *cobra.Command) error {
	var m strings.Builder
	fmt.Fprintf(&m, "%% TRACE 1\n# NAME\ntrace - filter, aggregate and print RDMA and NVMe events, in the kernel\n\n# SYNOPSIS\n```\ntrace [flags] PROGRAM|SCRIPT\n")
	for _, c := range root.Commands() {
		if isListed(c) {
			fmt.Fprintf(&m, "trace %s\n", c.Use)
		}
	}
	fmt.Fprintf(&m, "```\n\n# DESCRIPTION\n%s\n\n# EXAMPLES\n```\n%s\n```\n\n# OPTIONS\n```\n%s```\n\n# COMMANDS\n", root.Long, root.Example, flagUsages(root.Flags()))
	for _, c := range root.Commands() {
		if !isListed(c) {
			continue
		}
		fmt.Fprintf(&m, "## trace %s\n%s\n\n", c.Use, c.Short)
		if own := flagsBesides(c, root); own.HasFlags() {
			fmt.Fprintf(&m, "```\n%s```\n\n", flagUsages(own))
		}
	}
	for _, t := range docs.Topics() {
		fmt.Fprintf(&m, "# %s\n%s\n", strings.ToUpper(t.Name), deeper(t.Text))
	}
	_, err := io.WriteString(out, m.String())
	return err
}

func flagUsages(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(docs.Width) }

// flagsBesides returns the flags of a command that the root does not have, or that mean something else there.
func flagsBesides(c, root *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if there := root.Flags().Lookup(f.Name); there == nil || there.Usage != f.Usage {
			own.AddFlag(f)
		}
	})
	return own
}

// isListed reports whether the help lists a command.
func isListed(c *cobra.Command) bool { return c.IsAvailableCommand() || c.Name() == "help" }

// deeper returns a document without its title, for which the manual page has a section. A manual page shows no pictures, and its tables would
// be wider than a terminal: each row is an item of a list.
func deeper(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	var b strings.Builder
	fenced, heads := false, true
	for line := range strings.Lines(text) {
		row, isRow := strings.CutPrefix(line, "| ")
		isRow = isRow && !fenced
		switch {
		case strings.HasPrefix(line, "!["):
		case isRow && heads: // the head of the table
		case isRow:
			first, rest, _ := strings.Cut(strings.Trim(row, " |\n"), " | ")
			fmt.Fprintf(&b, "- %s: %s\n", first, strings.ReplaceAll(rest, " | ", ", "))
		case strings.HasPrefix(line, "|--"):
			b.WriteString("\n")
		default:
			b.WriteString(line)
		}
		fenced = fenced != strings.HasPrefix(line, "```")
		heads = !isRow && !strings.HasPrefix(line, "|--")
	}
	return b.String()
}
