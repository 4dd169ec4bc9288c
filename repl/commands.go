package repl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"trace/lang/output"
	"trace/lang/syntax"
)

// command is something that the loop does besides running programs.
type command struct {
	name, args, help string
	run              func(l *loop, args string) error
	// complete offers arguments after the words before it.
	complete func(l *loop, before []string) []string
}

// commands returns the commands in the order of the help.
func commands() []command {
	return []command{
		{"help", "[TOPIC]", "show this list, or the help on a topic", (*loop).help, func(l *loop, _ []string) []string { return l.Topics }},
		{"probes", "[GLOB]", "list the probes", (*loop).probes, (*loop).probeNames},
		{"fields", "PROBE", "list the fields of a probe, with type, unit and meaning", (*loop).fields, (*loop).probeNames},
		{"live", "[PROGRAM]", "run a program, or the last one again, and show its maps in place; a recording plays at its own speed; for a script: run SCRIPT --live", (*loop).live, nil},
		{"explain", "[PROGRAM]", "show what runs in the kernel, and why the rest does not", (*loop).explain, nil},
		{"edit", "", "change the last program in $VISUAL or $EDITOR, and run it", (*loop).edit, nil},
		{"history", "[N]", "list what was typed last, 20 by default", (*loop).listHistory, nil},
		{"doctor", "[verbs|PROBE|SCRIPT|PROGRAM]", "show what this machine supports, and why the rest is missing, or whether something runs here", (*loop).doctor, (*loop).probeNames},
		{"run", "SCRIPT [FLAGS]", "run a bundled script or a file", (*loop).script, (*loop).scriptWords},
		{"record", "[--force] FILE PROGRAM", "record the events that a program selects; --force replaces the file", (*loop).record, files},
		{"open", "[FILE…]", "run programs on recordings or, without a file, on this machine again", (*loop).open, files},
		{"save", "FILE", "write the last program as a script", (*loop).save, files},
		{"set", "[format FORMAT [FILE]|limit N|fields NAME…]", "set the format and the file of the data, the number of events after which to stop, or the fields to print", (*loop).set, (*loop).settingWords},
		{"maps", "", "list the maps of the last program", (*loop).maps, nil},
		{"print", "@MAP [N] [by key|value]", "print a map again", (*loop).print, (*loop).mapNames},
		{"quit", "", "leave, like Ctrl-D", func(l *loop, _ string) error { l.quit = true; return nil }, nil},
	}
}

// program returns the program in the arguments of a command, if it takes one.
func (c *command) program(args string) (program string, ok bool) {
	switch c.name {
	case "explain", "live":
		return args, true
	case "record":
		_, _, program, ok = recordArgs(args)
	}
	return program, ok
}

// recordArgs splits the arguments of record. ok reports whether the program has begun.
func recordArgs(args string) (force bool, file, program string, ok bool) {
	if rest, forced := strings.CutPrefix(args, "--force "); forced {
		force, args = true, strings.TrimLeft(rest, " ")
	}
	file, program, ok = strings.Cut(args, " ")
	return force, file, program, ok
}

// findCommand returns the command called name, or nil.
func findCommand(name string) *command {
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name || c.name == "quit" && name == "exit" })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// cutCommand splits a command into its name and the rest. ok is false for a program, which does not begin with the name of a
// command followed by a blank, a bracket after print, or nothing.
func cutCommand(text string) (name, rest string, ok bool) {
	text = strings.TrimSpace(text)
	at := strings.IndexAny(text, " (\n")
	if at < 0 {
		at = len(text)
	}
	name, rest = text[:at], strings.TrimSpace(text[at:])
	if findCommand(name) == nil || strings.HasPrefix(text[at:], "(") && name != "print" {
		return "", "", false
	}
	// A field may have the name of a command, as in: maps == 3.
	word, _, _ := strings.Cut(rest, " ")
	return name, rest, !slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "in", "=", "?", "&&", "||", "and", "or"}, word)
}

// elsewhere is what to type in place of words that are commands of a shell or of other programs.
var elsewhere = map[string]string{
	"list": "probes lists the probes", "ls": "probes lists the probes", "q": "quit leaves", "bye": "quit leaves",
	"scripts": "run and the Tab key list the scripts", "version": "type trace version in a shell", "clear": "Ctrl-L clears the screen",
}

// mistyped returns a hint if a line looks like a misspelt command: a single word, or several that are not an expression.
func mistyped(text string, s Shell) string {
	words := strings.Fields(text)
	if len(words) == 0 || strings.Trim(words[0], "abcdefghijklmnopqrstuvwxyz") != "" || slices.Contains(s.Scripts, words[0]) {
		if len(words) > 0 && slices.Contains(s.Scripts, words[0]) {
			return fmt.Sprintf("%s is a script: run %s", words[0], strings.Join(words, " "))
		}
		return ""
	}
	if _, err := syntax.Parse("line", text); err == nil && len(words) > 1 {
		return ""
	}
	if advice := elsewhere[words[0]]; advice != "" && len(words) == 1 {
		return fmt.Sprintf("%s is not a command here: %s", words[0], advice)
	}
	best := syntax.Nearest(words[0], commandNames())
	if best == "" {
		return ""
	}
	return fmt.Sprintf("%s is not a command: did you mean %q? help lists the commands", words[0], best)
}

func (l *loop) help(topic string) error {
	if topic != "" {
		if c := findCommand(topic); c != nil {
			fmt.Fprintf(l.Out, "%s %s\n  %s\n", c.name, c.args, c.help)
			return nil
		}
		return l.show(func(to io.Writer) { l.Command(to, "help", topic) })
	}
	w := tabwriter.NewWriter(l.Out, 0, 8, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s %s\t%s\n", c.name, c.args, c.help)
	}
	fmt.Fprintln(w, "\nEverything else is a program; the Tab key completes probes, fields, names, functions and maps.")
	return w.Flush()
}

// listHistory lists the newest lines last.
func (l *loop) listHistory(args string) error {
	n := 20
	if args != "" {
		var err error
		if n, err = strconv.Atoi(args); err != nil || n < 1 {
			return fmt.Errorf("%s: expected a number of lines, like: history 50", args)
		}
	}
	return l.show(func(to io.Writer) {
		for _, line := range l.lines[max(0, len(l.lines)-n):] {
			fmt.Fprintln(to, strings.ReplaceAll(line, newline, "\n"))
		}
	})
}

func (l *loop) probes(glob string) error {
	return l.show(func(to io.Writer) { l.List(to, l.recordings, false, strings.Fields(glob)...) })
}

func (l *loop) fields(probe string) error {
	if probe == "" {
		return errors.New("expected a probe, like: fields nvme:complete_rq")
	}
	return l.show(func(to io.Writer) { l.List(to, l.recordings, true, probe) })
}

func (l *loop) explain(program string) error {
	if program == "" {
		program = l.last
	}
	if program == "" {
		return errors.New("expected a program: none has run yet")
	}
	l.Explain(program)
	return nil
}

func (l *loop) live(args string) error {
	if name, _, _ := strings.Cut(args, " "); slices.Contains(l.Scripts, name) {
		return fmt.Errorf("%s is a script: run %s --live", name, args)
	}
	if args != "" {
		l.last = args
	}
	if l.last == "" {
		return errors.New("expected a program: none has run yet")
	}
	p := l.program(l.last)
	p.Live = true
	l.collect(l.Run(p))
	return nil
}

func (l *loop) doctor(about string) error {
	words := []string{"doctor"}
	if about != "" {
		words = append(words, "--", about)
	}
	return l.show(func(to io.Writer) { l.Command(to, words...) })
}

func (l *loop) script(args string) error {
	words := strings.Fields(args)
	if len(words) == 0 {
		return errors.New("expected a script: trace scripts lists the bundled ones")
	}
	l.collect(l.Script(l.program(""), words))
	return nil
}

func (l *loop) record(args string) error {
	force, file, program, _ := recordArgs(args)
	if program == "" {
		return errors.New("expected a file and a program, like: record nvme.rec nvme:*")
	}
	l.Record(file, strings.TrimSpace(program), force)
	return nil
}

func (l *loop) open(args string) error {
	names := strings.Fields(args)
	if _, err := l.Probes(names); err != nil {
		return err
	}
	l.recordings = names
	if len(names) == 0 {
		fmt.Fprintln(l.Out, "programs run on this machine")
		return nil
	}
	l.Info(names)
	return nil
}

func (l *loop) save(file string) error {
	switch {
	case file == "":
		return errors.New("expected a file, like: save mine.trace")
	case l.last == "":
		return errors.New("no program has run yet")
	}
	text := l.last
	if formatted, err := syntax.Format(file, text); err == nil {
		text = formatted
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "#!/usr/bin/env trace\n%s\n", strings.TrimRight(text, "\n"))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "saved; run it with: trace %s\n", runnable(file))
	return nil
}

// runnable returns how to write a file in a shell if its name may mean something else.
func runnable(file string) string {
	if strings.Contains(file, "/") || path.Ext(file) == ".trace" {
		return file
	}
	return "./" + file
}

func (l *loop) set(args string) error {
	name, value, _ := strings.Cut(args, " ")
	value = strings.TrimSpace(value)
	switch name {
	case "":
		limit := "none"
		if l.settings.Limit > 0 {
			limit = strconv.FormatUint(l.settings.Limit, 10)
		}
		fmt.Fprintf(l.Out, "format %s\nlimit  %s\nfields %s\n", strings.TrimSpace(or(string(l.settings.Format), "text")+" "+l.settings.File),
			limit, or(strings.Join(l.settings.Fields, ","), "none: the usual ones"))
	case "format":
		return l.setFormat(value)
	case "limit":
		n, err := strconv.ParseUint(value, 10, 64)
		if value != "none" && (err != nil || n == 0) {
			return fmt.Errorf("limit %q: expected a number of events, or none", value)
		}
		l.settings.Limit = n
	case "fields":
		names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) == 0 {
			return errors.New("expected fields, like: set fields time latency, or none for the usual ones")
		}
		if len(names) == 1 && names[0] == "none" {
			names = nil
		}
		l.settings.Fields = names
	default:
		return fmt.Errorf("there is no setting %q: use format, limit or fields", name)
	}
	return nil
}

var formats = output.Formats()

// setFormat sets the format, and the file for data that is not shown here. A page or a profile always needs a file.
func (l *loop) setFormat(value string) error {
	format, file, _ := strings.Cut(value, " ")
	file = strings.TrimSpace(file)
	switch {
	case !slices.Contains(formats, format):
		return fmt.Errorf("there is no format %q: use one of %s", format, strings.Join(formats, ", "))
	case file == "" && output.Format(format).NeedsFile():
		return fmt.Errorf("%s needs a file, which each program writes anew: set format %[1]s FILE", format)
	}
	l.settings.Format, l.settings.File = output.Format(format), file
	return nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (l *loop) maps(string) error {
	all := l.Maps()
	if len(all) == 0 {
		return errors.New("the last program has no maps")
	}
	fmt.Fprintln(l.Out, strings.Join(all, " "))
	return nil
}

// print also takes the form of the language: print(@x, 10, by = "key").
func (l *loop) print(args string) error {
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ", ",", " ", "=", " ", `"`, " ").Replace(args))
	if len(words) == 0 {
		return errors.New("expected a map: maps lists them")
	}
	name, top, by := words[0], int64(0), ""
	for i := 1; i < len(words); i++ {
		n, err := strconv.ParseInt(words[i], 10, 64)
		switch {
		case err == nil && n > 0:
			top = n
		case words[i] == "by" && i+1 < len(words) && (words[i+1] == "key" || words[i+1] == "value"):
			i++
			by = words[i]
		default:
			return fmt.Errorf("%s: expected a number of rows, by key or by value", words[i])
		}
	}
	return l.Print(name, top, by)
}
