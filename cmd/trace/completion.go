package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trace/probes"
	"trace/repl"
)

// completionCommand prints the completion script of a shell.
func completionCommand(s streams) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "print the completion script of a shell",
		Example:               "  source <(trace completion bash)     the same for zsh\n  trace completion fish | source",
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		Args:                  usageArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeCompletion(s.out, cmd.Root(), args[0])
		},
	}
}

// quotes holds what each shell does before cobra's script asks for completions: that cannot complete inside quotes, and in bash needs a
// package that many machines lack. A file ends with the
// beginning of the function of cobra's script that it belongs to.
//
//go:embed quotes
var quotes embed.FS

func writeCompletion(to io.Writer, root *cobra.Command, shell string) error {
	const descriptions = true
	var script bytes.Buffer
	generate := map[string]func() error{
		"bash": func() error { return root.GenBashCompletionV2(&script, descriptions) },
		"zsh":  func() error { return root.GenZshCompletion(&script) },
		"fish": func() error { return root.GenFishCompletion(&script, descriptions) },
	}[shell]
	inQuotes, err := quotes.ReadFile("quotes/" + shell)
	if err := errors.Join(err, generate()); err != nil {
		return err
	}
	_, err = to.Write(bytes.Replace(script.Bytes(), []byte(functionOf[shell]), inQuotes, 1))
	return err
}

// functionOf is how the function begins.
var functionOf = map[string]string{
	"bash": "__start_trace()\n{\n", "zsh": "_trace()\n{\n", "fish": "function __trace_prepare_completions\n",
}

// usageArgs turns the errors of check into usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w (try %s --help)", err, cmd.CommandPath())
		}
		return nil
	}
}

// completeProgram offers beginnings of a program or a script; if none matches, the shell offers files.
func completeProgram(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words, how := completeProbes(cmd, args, begun)
	if len(words) == 0 && !strings.HasPrefix(begun, "'") && !strings.HasPrefix(begun, `"`) {
		how = cobra.ShellCompDirectiveDefault
	}
	return append(words, beginningWith(begun, completeScripts())...), how
}

// completeProbes offers completions of a program in the argument: names of probes, or a glob, and, after the first letter, the fields of an
// expression without probes. A quote begins a program, whose next word is completed as in the interactive mode.
func completeProbes(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	catalog, err := probes.Load()
	if err != nil {
		cobra.CompErrorln(fmt.Sprint(err))
		return nil, cobra.ShellCompDirectiveError
	}
	if program := strings.TrimLeft(begun, `'"`); program != begun {
		return repl.Complete(catalog.Probes(), program), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	var names []cobra.Completion
	listed := cmd.Flags().Changed("list")
	seen := map[string]bool{}
	for _, p := range catalog.Probes() {
		names = append(names, cobra.CompletionWithDesc(p.String(), p.Doc))
		for _, f := range p.AllFields() {
			if begun != "" && !listed && !seen[f.Name] {
				seen[f.Name] = true
				names = append(names, cobra.CompletionWithDesc(f.Name, f.Doc))
			}
		}
	}
	return beginningWith(begun, names), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func beginningWith(begun string, all []cobra.Completion) []cobra.Completion {
	return slices.DeleteFunc(all, func(c cobra.Completion) bool { return !strings.HasPrefix(c, begun) })
}

// completeValues offers the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag does not exist
	}
}
