package main

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang/output"
	"trace/lang/run"
	"trace/lang/run/console"
	"trace/lang/syntax"
)

// flagError translates errors of pflag into our words.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if word := cmd.Flags().Arg(0); !cmd.HasParent() && instead(word) != "" {
			return usagef("%s is not a command: %s", word, instead(word))
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if name := syntax.Nearest(unknown.GetSpecifiedName(), names); name != "" && len(unknown.GetSpecifiedName()) > 1 {
			return usagef("%w: did you mean --%s?", err, name)
		}
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usagef("%w (%s --help lists the flags)", err, calledAs(cmd))
	}
	cause := invalid.Unwrap()
	var number *strconv.NumError
	switch kind := invalid.GetFlag().Value.Type(); {
	case errors.As(cause, &number):
		cause = errors.New("expected " + numberWanted(kind, errors.Is(number, strconv.ErrRange)))
	}
	return usagef("--%s %s: %w", invalid.GetFlag().Name, invalid.GetValue(), cause)
}

// foreignFlags are flags of bpftrace that change nothing here.
var foreignFlags = []struct{ name, short, answer string }{
	{"mode", "", "write --test, --bench or --fmt FILE; -d bpf shows the code"},
	{"probe-filter", "", "write a predicate, or name the tests in the program: all of its probes run"},
	{"verify-llvm-ir", "", "nothing is compiled by LLVM; the kernel verifies the code"},
	{"emit-elf", "", "-d bpf shows the code"},
	{"emit-llvm", "", "nothing is compiled by LLVM; -d bpf shows the code"},
	{"traceable-functions", "", "the probes are those that trace -l lists; trace doctor shows which of them this host has"},
	{"usdt-file-activation", "", "there are no USDT probes; verbs: probes find a library in every process that uses it"},
	{"debuginfo", "", "names of functions come from the files themselves"},
	{"dwarf-pid", "", "user stacks follow frame pointers"},
	{"buffering", "B", "output is written when there is a pause, at the latest after 50 ms"},
	{"include-dir", "I", "there are no headers: trace -lv shows the fields of probes"},
	{"include", "", "there are no headers: trace -lv shows the fields of probes"},
	{"no-feature", "", "trace doctor shows what this host has; --no-kernel uses nothing of it"},
	{"info", "", "trace doctor shows what this host has"},
}

// addForeignFlags declares the flags of bpftrace, without showing them.
func addForeignFlags(f *pflag.FlagSet) {
	for _, flag := range foreignFlags {
		f.StringP(flag.name, flag.short, "", flag.answer)
		if slices.Contains([]string{"info", "verify-llvm-ir", "usdt-file-activation"}, flag.name) {
			f.Lookup(flag.name).NoOptDefVal = "true"
		}
		f.Lookup(flag.name).Hidden = true
	}
}

// answerForeign answers each given flag of bpftrace with a line. done reports that no program runs.
func answerForeign(f *pflag.FlagSet, s streams) (done bool) {
	for _, flag := range foreignFlags {
		if f.Changed(flag.name) {
			console.Note(s.err, "%s: %s", cmp.Or(strings.TrimSuffix("-"+flag.short, "-"), "--"+flag.name), flag.answer)
			done = done || flag.name == "info"
		}
	}
	return done
}

// calledAs returns a command without its flags; a script has its name.
func calledAs(cmd *cobra.Command) string {
	if cmd.HasParent() {
		return cmd.CommandPath()
	}
	return strings.TrimSuffix(strings.Replace(cmd.Use, " [flags]", "", 1), " PROGRAM|SCRIPT")
}

// numberWanted describes the values of a numeric flag.
func numberWanted(kind string, tooLarge bool) string {
	switch {
	case tooLarge:
		return "a smaller number"
	case strings.HasPrefix(kind, "float"):
		return "a number, like 1 or 0.5"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number that is not negative"
	}
	return "a whole number"
}

// formatFlag is the format of the data, as a flag.
type formatFlag struct{ output.Format }

func (f *formatFlag) String() string { return string(f.Format) }
func (*formatFlag) Type() string     { return "FORMAT" }

func (f *formatFlag) Set(s string) (err error) {
	f.Format, err = output.ParseFormat(s)
	return err
}

// commandFlag is a command, as its words.
type commandFlag []string

func (*commandFlag) Type() string     { return "COMMAND" }
func (c *commandFlag) String() string { return strings.Join(*c, " ") }

func (c *commandFlag) Set(s string) (err error) {
	*c, err = run.SplitWords(s)
	return err
}
