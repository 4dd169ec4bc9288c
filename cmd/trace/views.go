package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"trace/lang"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/run"
	"trace/lang/run/console"
)

// This file opens the outputs that show the maps of a program: the live view, and documents at the end.

// openDocument returns the document for the format, nil if the format has none. It fails if the program does not suit the format.
func openDocument(s streams, o options, src programText, program *ir.Program) (*output.Document, error) {
	format := o.format.Format
	switch {
	case o.compare && format.AtEnd():
		return nil, usagef("--compare compares what is printed while the program runs, but -f %s is made at its end", format)
	case format.NeedsStacks() && len(program.Profiled()) == 0:
		return nil, usagef("-f %s needs a map whose key holds a stack and whose values add up, like trace -f %[1]s 'profile:99hz { @[kstack] = count() }'", format)
	case format.NeedsFile() && o.output == "" && isTerminal(s.out):
		return nil, usagef("-f %s is not text for a terminal: write it to a file with -o FILE", format)
	}
	return output.NewDocument(format, src.about(o.args)), nil
}

// about describes the program for a page.
func (s programText) about(args []string) output.About {
	a := output.About{Version: version(), Command: commandLine(args), Params: s.values()}
	if !s.typed(args) {
		a.Name, a.Program = strings.TrimSuffix(filepath.Base(s.name), ".trace"), strings.TrimSpace(s.text)
	}
	return a
}

// typed reports whether the text of the program is on the command line.
func (s programText) typed(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, s.text) })
}

// values returns the values of the program's params.
func (s programText) values() []output.Param {
	declared, err := lang.Params(s.name, s.text)
	if err != nil {
		panic(err) // the program was compiled
	}
	var all []output.Param
	for _, p := range declared {
		value, set := s.params[p.Name]
		if !set {
			value = strings.Trim(p.Default, `"'`)
		}
		all = append(all, output.Param{Name: p.Name, Value: cmp.Or(value, `""`), Set: set})
	}
	return all
}

// commandLine quotes arguments for a shell.
func commandLine(args []string) string {
	words := []string{"trace"}
	for _, arg := range args {
		if !plainWord.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// plainWord matches words that no shell changes.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// openLive takes over the terminal for --live; otherwise it returns nil.
func openLive(s streams, o options, src programText, program *ir.Program) (*output.Live, error) {
	switch {
	case !o.live:
		return nil, nil
	case len(program.MapNames()) == 0:
		return nil, usagef("--live shows maps, but this program has none")
	case !isTerminal(s.out):
		return nil, usagef("--live shows the maps on standard output, which is not a terminal: write the data to a file with -o FILE")
	case s.keys == nil:
		return nil, usagef("--live takes keys from standard input, which is not a terminal")
	case os.Getenv("TERM") == "dumb":
		return nil, usagef("--live needs a terminal that can move its cursor, but TERM is dumb")
	}
	return output.NewLive(output.LiveOptions{
		Program: src.text, Screen: run.FileOf(s.out), Colour: console.HasColours(s.out),
		Key: func(ctx context.Context) (byte, bool) { return readKey(ctx, s.keys) },
	})
}

// readKey reads a byte from the keyboard. It waits in short steps, so that it ends with ctx.
func readKey(ctx context.Context, keys *os.File) (byte, bool) {
	if !run.WaitReadable(ctx, keys) {
		return 0, false
	}
	typed := make([]byte, 1)
	n, err := keys.Read(typed)
	return typed[0], err == nil && n == 1
}
