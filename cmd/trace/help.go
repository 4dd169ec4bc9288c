package main

import (
	"embed"
	"fmt"
	"go/doc/comment"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trace/lang"
	"trace/lang/syntax"
	"trace/probes"
	"trace/scripts"
)

//go:embed help/*.txt
var helpTexts embed.FS

// topic is a part of the manual. Its text is in the syntax of go/doc/comment.
type topic struct {
	name, short string
	text        func() (string, error)
}

// topics of the help, in the order of the manual.
var topics = []topic{
	{"language", "the language of programs", sections(func(title string) bool { return !slices.Contains(functionSections, title) })},
	{"functions", "functions, maps and aggregations", sections(func(title string) bool { return slices.Contains(functionSections, title) })},
	{"probes", "the probes and their events", probesText},
	{"scripts", "the scripts that come with trace", scriptsText},
	{"output", "formats, how a program ends, exit status, lost events", fileText("output")},
	{"recordings", "events in files, and programs that run on them", fileText("recordings")},
	{"privileges", "what it takes to trace", fileText("privileges")},
	{"containers", "tracing from a container", fileText("containers")},
}

// functionSections are those of the language's manual that have a topic of their own.
var functionSections = []string{"Functions", "Variables", "Maps"}

func topicNames() []string {
	var names []string
	for _, t := range topics {
		names = append(names, t.name)
	}
	return names
}

func fileText(name string) func() (string, error) {
	return func() (string, error) {
		text, err := fs.ReadFile(helpTexts, "help/"+name+".txt")
		return string(text), err
	}
}

// sections are those of the language's manual whose titles are wanted.
func sections(wanted func(title string) bool) func() (string, error) {
	return func() (string, error) {
		var b strings.Builder
		for _, section := range strings.Split("\n"+lang.Manual(), "\n# ")[1:] {
			if title, _, _ := strings.Cut(section, "\n"); wanted(title) {
				fmt.Fprintf(&b, "# %s\n", section)
			}
		}
		return b.String(), nil
	}
}

// probesText lists the catalog.
func probesText() (string, error) {
	catalog, err := probes.Load()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintln(&b, "# Probes\n\nEvery host has the same list; trace doctor tells what works on this one, and trace -lv PROBE shows the fields.")
	for _, p := range catalog.Probes() {
		fmt.Fprintf(&b, "\n  - %s: %s\n", p, p.Doc)
	}
	return b.String(), nil
}

// scriptsText lists the scripts that come with trace.
func scriptsText() (string, error) {
	var b strings.Builder
	fmt.Fprintln(&b, "# Scripts\n\ntrace NAME runs a script, trace NAME --help says what it does and which flags it has, trace scripts show NAME prints it.")
	for _, s := range scripts.All() {
		fmt.Fprintf(&b, "\n  - %s: %s\n", s.Name, s.Summary)
	}
	return b.String(), nil
}

// helpCommand explains commands and topics.
func helpCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND|TOPIC]",
		Short: "help on a command, or on a topic: " + strings.Join(topicNames(), ", "),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(topicNames(), subcommands...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if i := slices.IndexFunc(topics, func(t topic) bool { return t.name == args[0] }); i >= 0 {
					return topics[i].print(s.out)
				}
			}
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				if name := syntax.Nearest(args[0], append(topicNames(), subcommands...)); name != "" {
					return usagef("no command or topic %q: did you mean %q?", strings.Join(args, " "), name)
				}
				return usagef("no command or topic %q: %s", strings.Join(args, " "), strings.Join(append(topicNames(), subcommands...), ", "))
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
	}
}

// helpWidth is how many columns the help has.
const helpWidth = 100

// print writes the topic for a terminal.
func (t topic) print(out io.Writer) error {
	text, err := t.text()
	if err != nil {
		return err
	}
	var parser comment.Parser
	printer := comment.Printer{TextWidth: helpWidth}
	_, err = out.Write(printer.Text(parser.Parse(text)))
	return err
}
