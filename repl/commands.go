package repl

import (
	"errors"
	"fmt"
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
	// complete offers what may stand as an argument, after the words before it.
	complete func(l *loop, before []string) []string
}

// commands in the order of the help.
func commands() []command {
	return []command{
		{"help", "[TOPIC]", "this list, or the help on a topic", (*loop).help, func(l *loop, _ []string) []string { return l.Topics }},
		{"probes", "[GLOB]", "the probes that there are", (*loop).probes, (*loop).probeNames},
		{"fields", "PROBE", "the fields of a probe, with type, unit and meaning", (*loop).fields, (*loop).probeNames},
		{"live", "[PROGRAM]", "run it, or the program that ran last, with its maps in place, a recording at its own speed; a script: run SCRIPT --live", (*loop).live, nil},
		{"explain", "[PROGRAM]", "what of a program runs in the kernel, and why not the rest", (*loop).explain, nil},
		{"doctor", "", "what this machine offers, and why not the rest", (*loop).doctor, nil},
		{"run", "SCRIPT [FLAGS]", "run a bundled script or a file", (*loop).script, (*loop).scriptWords},
		{"record", "[--force] FILE PROGRAM", "keep the events that a program selects in a file; --force: in place of one that exists", (*loop).record, files},
		{"open", "[FILE…]", "run programs on recordings; without one, on this machine again", (*loop).open, files},
		{"save", "FILE", "write the program that ran last as a script", (*loop).save, files},
		{"set", "[format FORMAT [FILE]|limit N|fields NAME…]", "the format of the data, where it is written to, after how many events to stop, and which of their fields to print", (*loop).set, (*loop).settingWords},
		{"maps", "", "the maps of the program that ran last", (*loop).maps, nil},
		{"print", "@MAP [N] [by key|value]", "print one of them again", (*loop).print, (*loop).mapNames},
		{"quit", "", "leave; Ctrl-D does, too", func(l *loop, _ string) error { l.quit = true; return nil }, nil},
	}
}

// program returns the program among the arguments of a command, if it takes one.
func (c *command) program(args string) (program string, ok bool) {
	switch c.name {
	case "explain", "live":
		return args, true
	case "record":
		_, _, program, ok = recordArgs(args)
	}
	return program, ok
}

// recordArgs parts the arguments of record; ok tells whether the program has begun.
func recordArgs(args string) (force bool, file, program string, ok bool) {
	if rest, forced := strings.CutPrefix(args, "--force "); forced {
		force, args = true, strings.TrimLeft(rest, " ")
	}
	file, program, ok = strings.Cut(args, " ")
	return force, file, program, ok
}

// findCommand returns the command of that name, or nil.
func findCommand(name string) *command {
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name || c.name == "quit" && name == "exit" })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// cutCommand parts a command into its name and the rest. A program is none: it does not begin with a name and then a blank, a bracket
// after print, or nothing.
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
	// A field may be called like a command, as in: maps == 3.
	word, _, _ := strings.Cut(rest, " ")
	return name, rest, !slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "in", "=", "?", "&&", "||", "and", "or"}, word)
}

// mistyped returns a hint if a line looks like a command and is none: a lone word, or several that are no expression.
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
	best := syntax.Nearest(words[0], commandNames())
	if best == "" {
		return ""
	}
	return fmt.Sprintf("%s is no command: did you mean %q? help lists them", words[0], best)
}

func (l *loop) help(topic string) error {
	if topic != "" {
		if c := findCommand(topic); c != nil {
			fmt.Fprintf(l.Out, "%s %s\n  %s\n", c.name, c.args, c.help)
			return nil
		}
		l.Command("help", topic)
		return nil
	}
	w := tabwriter.NewWriter(l.Out, 0, 8, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s %s\t%s\n", c.name, c.args, c.help)
	}
	fmt.Fprintln(w, "\nEverything else is a program; the Tab key completes probes, fields, names, functions and maps.")
	return w.Flush()
}

func (l *loop) probes(glob string) error {
	if glob == "" {
		l.List(l.recordings, false)
	} else {
		l.List(l.recordings, false, glob)
	}
	return nil
}

func (l *loop) fields(probe string) error {
	if probe == "" {
		return errors.New("of which probe? for example: fields nvme:complete_rq")
	}
	l.List(l.recordings, true, probe)
	return nil
}

func (l *loop) explain(program string) error {
	if program == "" {
		program = l.last
	}
	if program == "" {
		return errors.New("which program? none ran yet")
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
		return errors.New("which program? none ran yet")
	}
	p := l.program(l.last)
	p.Live = true
	l.collect(l.Run(p))
	return nil
}

func (l *loop) doctor(string) error {
	l.Command("doctor")
	return nil
}

func (l *loop) script(args string) error {
	words := strings.Fields(args)
	if len(words) == 0 {
		return errors.New("which script? trace scripts lists those that are bundled")
	}
	l.collect(l.Script(l.program(""), words))
	return nil
}

func (l *loop) record(args string) error {
	force, file, program, _ := recordArgs(args)
	if program == "" {
		return errors.New("needs a file and a program, like: record nvme.rec nvme:*")
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
		return errors.New("to which file?")
	case l.last == "":
		return errors.New("no program ran yet")
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

// runnable is how the shell names a file that may be taken for something else.
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
			return fmt.Errorf("no limit %q: a number of events, or none", value)
		}
		l.settings.Limit = n
	case "fields":
		names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) == 0 {
			return errors.New("which fields? for example: set fields time latency, or none for the usual ones")
		}
		if len(names) == 1 && names[0] == "none" {
			names = nil
		}
		l.settings.Fields = names
	default:
		return fmt.Errorf("nothing is called %q: format, limit, fields", name)
	}
	return nil
}

var formats = output.Formats()

// setFormat takes a format, and a file for what is not to be shown here; a page or a profile always goes to one.
func (l *loop) setFormat(value string) error {
	format, file, _ := strings.Cut(value, " ")
	file = strings.TrimSpace(file)
	switch {
	case !slices.Contains(formats, format):
		return fmt.Errorf("no format %q: %s", format, strings.Join(formats, ", "))
	case file == "" && output.Format(format).NeedsFile():
		return fmt.Errorf("%s is written to a file, by each program anew: set format %[1]s FILE", format)
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
		return errors.New("the program that ran last has none")
	}
	fmt.Fprintln(l.Out, strings.Join(all, " "))
	return nil
}

// print takes the form of the language, too: print(@x, 10, by = "key").
func (l *loop) print(args string) error {
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ", ",", " ", "=", " ", `"`, " ").Replace(args))
	if len(words) == 0 {
		return errors.New("which map? maps lists them")
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
			return fmt.Errorf("%s: expected a number of entries, or: by key, by value", words[i])
		}
	}
	return l.Print(name, top, by)
}
