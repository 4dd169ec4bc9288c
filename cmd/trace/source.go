package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/run"
	"trace/lang/run/console"
	"trace/lang/syntax"
	"trace/lang/words"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// programText is the text of a program and where it comes from.
type programText struct {
	name, text string
	// params of a script, as set by flags.
	params map[string]string
	// arguments are the words after the program that are not flags.
	arguments []string
}

// recorded returns the program's name or text for a recording: a script that comes with trace goes by its name.
func (s programText) recorded() string {
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
var subcommands = []string{"help", "record", "info", "repl", "scripts", "doctor", "elf", "serve", "completion", "man", "version"}

// meant and instead return advice about a word that is no program, see [words.Meant] and [words.Instead].
func meant(word string) (exact, near string) { return words.Meant(word, subcommands, flagNames()) }
func instead(word string) string             { return words.Instead(word, subcommands, flagNames()) }

func flagNames() (names []string) {
	ownFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// inlineName and stdinName are the names in errors for programs that are in no file.
const (
	inlineName = run.InlineName
	stdinName  = "stdin"
)

// script is the program of a command line, found before its flags are parsed: its params are flags.
type script struct {
	programText
	declared []ir.Param
}

// findScript returns the program of a command line, or nil if there is none.
func findScript(args []string, stdin io.Reader) (*script, error) {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		s, err := findScript(args[1:], nil) // so that its flags complete
		if err != nil {
			return nil, nil // the command line is unfinished
		}
		return s, nil
	}
	flags := lookAhead(args)
	if flags == nil || flags.Changed("list") || flags.Changed("fmt") {
		return nil, nil
	}
	src, err := findText(flags, stdin)
	if err != nil || src == nil {
		return nil, err
	}
	s, err := newScript(*src)
	if given := flags.Args(); s == nil && src.name == inlineName && len(given) > 1 && !strings.HasPrefix(given[1], "-") {
		return nil, nil // the error is that it is not a single argument
	}
	return s, err
}

// newScript reads the params of a program. The script is nil if the text is wrong.
func newScript(src programText) (*script, error) {
	s := &script{programText: src}
	var err error
	if s.declared, err = lang.Params(s.name, s.text); err != nil {
		return nil, s.mistakes(err)
	}
	return s, s.clash()
}

// lookAhead parses the flags of trace before the program, or returns nil if they are wrong. Other flags may be params of the program, which
// is not known yet; they need a = before their value.
func lookAhead(args []string) *pflag.FlagSet {
	var long, short []string
	for {
		flags := ownFlags()
		for _, name := range long {
			flags.String(name, "", "")
			flags.Lookup(name).NoOptDefVal = "true"
		}
		for _, letter := range short {
			flags.StringP("-"+letter, letter, "", "")
			flags.Lookup("-" + letter).NoOptDefVal = "true"
		}
		err := flags.Parse(args)
		var unknown *pflag.NotExistError
		switch {
		case err == nil:
			return flags
		case !errors.As(err, &unknown):
			return nil
		case unknown.GetSpecifiedShortnames() != "":
			short = append(short, unknown.GetSpecifiedName())
		default:
			long = append(long, unknown.GetSpecifiedName())
		}
	}
}

// ownFlags returns the flags that every command line has, whatever its program.
func ownFlags() *pflag.FlagSet {
	var o options
	var cmd cobra.Command
	addFlags(&cmd, &o)
	flags := cmd.Flags()
	flags.BoolP("help", "h", false, "")
	flags.SetOutput(io.Discard)
	flags.SetInterspersed(false)
	return flags
}

// findText returns the text of the program: from -e, from the argument or the file that it names, or from standard input, for - or without
// an argument if it is not a terminal. It returns nil if there is none.
func findText(flags *pflag.FlagSet, stdin io.Reader) (*programText, error) {
	switch {
	case flags.Changed("program"):
		return &programText{name: inlineName, text: flags.Lookup("program").Value.String()}, nil
	case flags.NArg() == 0 && (flags.Changed("help") || flags.Changed("version")):
		return nil, nil
	case flags.NArg() == 0:
		return stdinText(stdin, false)
	case flags.Arg(0) == "-":
		return stdinText(stdin, true)
	case slices.Contains(subcommands, flags.Arg(0)):
		return nil, nil
	}
	return textNamed(flags.Arg(0))
}

// stdinText reads a program from standard input. It returns nil if none was asked for and there is none: on a terminal, a closed stream, or
// an empty one, as under cron.
func stdinText(stdin io.Reader, asked bool) (*programText, error) {
	switch {
	case stdin == nil && asked:
		return nil, usagef("-: there is no standard input here")
	case stdin == nil, !asked && isTerminal(stdin):
		return nil, nil
	}
	text, err := run.ReadProgram(stdin)
	switch {
	case !asked && (errors.Is(err, syscall.EBADF) || err == nil && strings.TrimSpace(text) == ""):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return &programText{name: stdinName, text: text}, nil
}

// clash returns an error if a param has the name of a flag of trace.
func (s *script) clash() error {
	flags := ownFlags()
	for _, p := range s.declared {
		if flags.Lookup(p.Name) != nil || p.Short != "" && flags.ShorthandLookup(p.Short) != nil {
			return programError{p.In.Error(p.Span, fmt.Sprintf("param %s has the name of a flag of trace", cmp.Or(p.Short, p.Name)), "give it another name")}
		}
	}
	return nil
}

// mistakes compiles the program again to find more mistakes than those that were found without the probes.
func (s *script) mistakes(found error) error {
	catalog, err := probes.Load()
	if err == nil {
		_, err = lang.Compile(s.name, s.text, catalog.Probes(), check.Options{})
	}
	return programError{cmp.Or(err, found)}
}

// textNamed returns the script called name, or the program that it is.
func textNamed(name string) (*programText, error) {
	as, text, err := run.TextNamed(name)
	if err != nil {
		return nil, mistaken(err)
	}
	return &programText{name: as, text: text}, nil
}

// addFlags declares the params of the script as flags of cmd, whose help becomes the script's.
func (s *script) addFlags(cmd *cobra.Command) {
	params := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	params.SortFlags = false
	for _, p := range s.declared {
		kind := map[event.Kind]string{event.Bool: "bool", event.String: "TEXT"}[p.Type.Kind]
		switch p.Type.Unit {
		case event.Nanoseconds:
			kind = "DURATION"
		case event.Bytes:
			kind = "SIZE"
		}
		params.VarP(&paramFlag{programText: &s.programText, param: p, kind: cmp.Or(kind, "NUMBER")}, p.Name, p.Short, syntax.Visible(p.Help))
		if p.Type.Kind == event.Bool {
			params.Lookup(p.Name).NoOptDefVal = "true"
		}
	}
	cmd.Flags().AddFlagSet(params)
	what, name, long := "script", s.name, cmp.Or(s.header(), s.name)
	switch {
	case s.name == inlineName && !params.HasFlags():
		return
	case s.name == inlineName:
		what, name, long = "program", "PROGRAM", s.header()
	case s.name == stdinName:
		what, name, long = "program", "-", s.header()
	}
	cmd.Use, cmd.Long, cmd.Example = "trace [flags] "+syntax.Visible(name), syntax.Visible(long), ""
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if params.HasFlags() {
			fmt.Fprintf(out, "\nFlags of the %s:\n%s", what, params.FlagUsages())
		}
		fmt.Fprintln(out, "\nFlags of trace, like -o, -f and -c, work, too: trace --help")
		return nil
	})
}

// paramFlag is a param of a script as a flag. The language checks its value.
type paramFlag struct {
	*programText
	param ir.Param
	kind  string
}

func (f *paramFlag) String() string {
	if f.programText == nil {
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

// header returns the comment at the beginning of a script, without comment signs.
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

// formatScript prints a script in the canonical form.
func formatScript(s streams, name string) error {
	var text string
	var err error
	if name == "-" {
		name = stdinName
		text, err = run.ReadProgram(s.in)
	} else {
		text, err = run.ReadFile(name)
	}
	if err != nil {
		return fmt.Errorf("--fmt: %w", err)
	}
	formatted, err := syntax.Format(name, text)
	if err != nil {
		return programError{err}
	}
	return console.Script(s.out, formatted)
}
