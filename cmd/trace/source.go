package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
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

// inlineName and stdinName are what errors call programs that are in no file.
const (
	inlineName = "program"
	stdinName  = "stdin"
)

// script is the program of a command line, found before its flags are parsed: its params are flags.
type script struct {
	source
	declared []ir.Param
}

// findScript returns the program of a command line, or nil if it has none.
func findScript(args []string, stdin io.Reader) (*script, error) {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		s, err := findScript(args[1:], nil) // so that its flags complete
		if err != nil {
			return nil, nil // it is not finished
		}
		return s, nil
	}
	flags := lookAhead(args)
	if flags == nil || flags.Changed("list") || flags.Changed("fmt") {
		return nil, nil
	}
	src, err := findSource(flags, stdin)
	if err != nil || src == nil {
		return nil, err
	}
	s, err := newScript(*src)
	if words := flags.Args(); s == nil && src.name == inlineName && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		return nil, nil // what is wrong is that it is no single argument
	}
	return s, err
}

// newScript finds the params of a program. Without a script its text is wrong.
func newScript(src source) (*script, error) {
	s := &script{source: src}
	var err error
	if s.declared, err = lang.Params(s.name, s.text); err != nil {
		return nil, s.mistakes(err)
	}
	return s, s.clash()
}

// lookAhead parses the flags of trace that stand before the program, or nil if they are wrong. Others may be params of the program,
// which is not known yet: they have values only with a =.
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

// ownFlags are those that a command line has whatever its program is.
func ownFlags() *pflag.FlagSet {
	var o options
	var cmd cobra.Command
	addFlags(&cmd, &o)
	flags := cmd.Flags()
	flags.BoolP("help", "h", false, "")
	flags.Bool("version", false, "")
	flags.SetOutput(io.Discard)
	flags.SetInterspersed(false)
	return flags
}

// findSource returns the text of the program: that of -e, of the argument or of the file that it names, or what comes from standard input,
// for - and where there is no argument and no terminal. It returns nil if there is none.
func findSource(flags *pflag.FlagSet, stdin io.Reader) (*source, error) {
	switch {
	case flags.Changed("program"):
		return &source{name: inlineName, text: flags.Lookup("program").Value.String()}, nil
	case flags.NArg() == 0 && (flags.Changed("help") || flags.Changed("version")):
		return nil, nil
	case flags.NArg() == 0:
		return stdinSource(stdin, false)
	case flags.Arg(0) == "-":
		return stdinSource(stdin, true)
	case slices.Contains(subcommands, flags.Arg(0)):
		return nil, nil
	}
	name := flags.Arg(0)
	text, found, err := scriptText(name)
	if err != nil {
		return nil, err
	}
	if !found {
		return &source{name: inlineName, text: name}, nil
	}
	return &source{name: name, text: text}, nil
}

// stdinSource is the program that comes from standard input. It returns nil if it was not asked for and there is none: a terminal, a
// closed stream, or an empty one, as under cron.
func stdinSource(stdin io.Reader, asked bool) (*source, error) {
	switch {
	case stdin == nil && asked:
		return nil, usagef("-: there is no standard input here")
	case stdin == nil, !asked && isTerminal(stdin):
		return nil, nil
	}
	text, err := readProgram(stdin)
	switch {
	case !asked && (errors.Is(err, syscall.EBADF) || err == nil && strings.TrimSpace(text) == ""):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return &source{name: stdinName, text: text}, nil
}

// clash reports a param that has the name of a flag of trace.
func (s *script) clash() error {
	flags := ownFlags()
	for _, p := range s.declared {
		if flags.Lookup(p.Name) != nil || p.Short != "" && flags.ShorthandLookup(p.Short) != nil {
			text := syntax.Text{Name: s.name, Content: s.text}
			return programError{text.Error(p.Span, fmt.Sprintf("param %s has the name of a flag of trace", cmp.Or(p.Short, p.Name)), "give it another name")}
		}
	}
	return nil
}

// mistakes tells more of those that were found without the probes.
func (s *script) mistakes(found error) error {
	catalog, err := probes.Load()
	if err == nil {
		_, err = lang.Compile(s.name, s.text, catalog.Probes(), check.Options{})
	}
	return programError{cmp.Or(err, found)}
}

// scriptText returns the text of the script called name, if it is one. One that comes with trace is called by its bare name, whatever
// files there are; one of the user's is the name of a file, with a slash or .trace at its end. All else is a program.
func scriptText(name string) (text string, found bool, err error) {
	if bundled, ok := scripts.Find(name); ok {
		return bundled.Text, true, nil
	}
	isPath := slices.ContainsFunc([]string{"/", "./", "../"}, func(p string) bool { return strings.HasPrefix(name, p) })
	if !isPath && (strings.ContainsAny(name, " \t\n{") || !strings.Contains(name, "/") && !strings.HasSuffix(name, ".trace")) {
		return "", false, nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.IsDir():
		if text, err = readFile(name); err != nil {
			return "", false, fmt.Errorf("script: %w", err)
		}
		return text, true, nil
	case !isPath && !strings.HasSuffix(name, ".trace"):
		return "", false, nil // a slash divides, too
	case err == nil:
		return "", false, usagef("no script %s: it is a directory", name)
	}
	return "", false, usagef("no script %s: %w", name, errors.Unwrap(err))
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := readProgram(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// maxProgram bounds what is read of an endless file.
const maxProgram = 16 << 20

func readProgram(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxProgram+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxProgram:
		return "", fmt.Errorf("a program of more than %s", formatSize(maxProgram))
	}
	return string(text), nil
}

// addFlags declares the params of the script as flags of cmd, whose help becomes that of the script.
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
		params.VarP(&paramFlag{source: &s.source, param: p, kind: cmp.Or(kind, "NUMBER")}, p.Name, p.Short, p.Help)
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
	cmd.Use, cmd.Long, cmd.Example = "trace [flags] "+name, long, ""
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if params.HasFlags() {
			fmt.Fprintf(out, "\nFlags of the %s:\n%s", what, params.FlagUsages())
		}
		fmt.Fprintln(out, "\nThose of trace, like -o, -f and -c, are there, too: trace --help")
		return nil
	})
}

// paramFlag is a param of a script as a flag. The language checks its value.
type paramFlag struct {
	*source
	param ir.Param
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

// formatScript prints a script in the canonical form.
func formatScript(s streams, name string) error {
	var text string
	var err error
	if name == "-" {
		name = stdinName
		text, err = readProgram(s.in)
	} else {
		text, err = readFile(name)
	}
	if err != nil {
		return fmt.Errorf("--fmt: %w", err)
	}
	formatted, err := syntax.Format(name, text)
	if err != nil {
		return programError{err}
	}
	_, err = fmt.Fprint(s.out, formatted)
	return err
}
