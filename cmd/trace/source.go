package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang"
	"trace/lang/syntax"
	"trace/probes"
	"trace/scripts"
)

// source is the text of a program and where it is from.
type source struct {
	name, text string
	// params of a script as flags have set them.
	params map[string]string
}

// recorded is what a recording says of the program: a script that comes with trace goes by its name.
func (s source) recorded() string {
	if _, bundled := scripts.Find(s.name); !bundled {
		return s.text
	}
	words := []string{s.name}
	for _, param := range slices.Sorted(maps.Keys(s.params)) {
		words = append(words, fmt.Sprintf("--%s=%s", param, s.params[param]))
	}
	return strings.Join(words, " ")
}

// subcommands are never scripts.
var subcommands = []string{"help", "record", "info", "repl", "scripts", "doctor", "completion", "man"}

// script is what a command line runs by its name, found before its flags are parsed: its params are flags.
type script struct {
	source
	declared []lang.Param
}

// findScript returns the script that the first argument names, or nil if there is none. One that comes with trace is called by its bare
// name, whatever files there are; all else is the name of a file. An argument with a blank or a bracket is a program.
func findScript(args []string) (*script, error) {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		args = args[1:] // so that its flags complete
	}
	var o options
	var cmd cobra.Command
	addFlags(&cmd, &o)
	flags := cmd.Flags()
	flags.BoolP("help", "h", false, "")
	flags.SetOutput(io.Discard)
	flags.SetInterspersed(false)
	if flags.Parse(args) != nil || flags.NArg() == 0 || flags.Changed("program") || flags.Changed("list") {
		return nil, nil
	}
	name := flags.Arg(0)
	if strings.ContainsAny(name, " \t\n{") || slices.Contains(subcommands, name) {
		return nil, nil
	}
	text, err := scriptText(name)
	if err != nil || text == "" {
		return nil, err
	}
	s := &script{source: source{name: name, text: text}}
	if s.declared, err = lang.Params(s.name, s.text); err != nil {
		return nil, s.mistakes(err)
	}
	for _, p := range s.declared {
		if flags.Lookup(p.Name) != nil || p.Short != "" && flags.ShorthandLookup(p.Short) != nil {
			return nil, fmt.Errorf("%s: param %s has the name of a flag of trace: rename it", name, cmp.Or(p.Short, p.Name))
		}
	}
	return s, nil
}

// mistakes tells more of those that were found without the probes.
func (s *script) mistakes(found error) error {
	catalog, err := probes.Load()
	if err == nil {
		_, err = lang.Compile(s.name, s.text, catalog.Probes(), lang.Options{})
	}
	return programError{cmp.Or(err, found)}
}

// scriptText returns the text of the script called name, or "" if there is none.
func scriptText(name string) (string, error) {
	if bundled, ok := scripts.Find(name); ok {
		return bundled.Text, nil
	}
	text, err := readScript(name)
	return string(text), err
}

// readScript returns the text of a file, or nil if name is none.
func readScript(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(name, ".trace"):
		return nil, usagef("no script %s", name)
	case err != nil || info.IsDir():
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return text, nil
}

// addFlags declares the params of the script as flags of cmd, whose help becomes that of the script.
func (s *script) addFlags(cmd *cobra.Command) {
	params := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	params.SortFlags = false
	for _, p := range s.declared {
		kind := map[probes.Kind]string{probes.Bool: "bool", probes.String: "TEXT"}[p.Type.Kind]
		switch p.Type.Unit {
		case probes.Nanoseconds:
			kind = "DURATION"
		case probes.Bytes:
			kind = "SIZE"
		}
		params.VarP(&paramFlag{source: &s.source, param: p, kind: cmp.Or(kind, "NUMBER")}, p.Name, p.Short, p.Help)
		if p.Type.Kind == probes.Bool {
			params.Lookup(p.Name).NoOptDefVal = "true"
		}
	}
	cmd.Flags().AddFlagSet(params)
	cmd.Use, cmd.Long, cmd.Example = "trace [flags] "+s.name, cmp.Or(s.header(), s.name), ""
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if params.HasFlags() {
			fmt.Fprintf(out, "\nFlags of the script:\n%s", params.FlagUsages())
		}
		fmt.Fprintln(out, "\nThose of trace, like -o, -f and -c, are there, too: trace --help")
		return nil
	})
}

// paramFlag is a param of a script as a flag. The language checks its value.
type paramFlag struct {
	*source
	param lang.Param
	kind  string
}

func (f *paramFlag) String() string {
	if f.source == nil {
		return ""
	}
	return cmp.Or(f.params[f.param.Name], strings.Trim(f.param.Default, `"'`))
}
func (f *paramFlag) Type() string { return f.kind }

func (f *paramFlag) Set(value string) error {
	if f.params == nil {
		f.params = map[string]string{}
	}
	f.params[f.param.Name] = value
	return nil
}

// header of a script: the comment at its beginning, without its signs.
func (s *script) header() string {
	var lines []string
	for line := range strings.Lines(s.text) {
		line = strings.TrimSpace(line)
		comment, ok := strings.CutPrefix(line, "//")
		if !ok {
			comment, ok = strings.CutPrefix(line, "#")
		}
		if strings.HasPrefix(line, "#!") {
			continue
		}
		if !ok {
			break
		}
		lines = append(lines, strings.TrimPrefix(comment, " "))
	}
	return strings.Join(lines, "\n")
}

// format prints a script in the canonical form.
func formatScript(s streams, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("--fmt: %w", err)
	}
	formatted, err := syntax.Format(name, string(text))
	if err != nil {
		return programError{err}
	}
	_, err = fmt.Fprint(s.out, formatted)
	return err
}
