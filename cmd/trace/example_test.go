package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"trace/lang"
	"trace/lang/check"
	"trace/probes/event"
)

// example is a command of a document.
type example struct {
	line   string
	args   []string // without trace itself
	output string
	live   bool   // its numbers are of another run
	repl   string // the recordings of a session of the REPL: line is one of its lines then
}

// fence is a block of code in a document, with what stands behind its opening marks.
type fence struct{ info, text string }

var fences = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

func fencesOf(text string) []fence {
	var found []fence
	for _, m := range fences.FindAllStringSubmatch(text, -1) {
		found = append(found, fence{m[1], m[2]})
	}
	return found
}

// examples returns the commands that a document shows with their output.
func examples(t *testing.T, text string) []example {
	t.Helper()
	var found []example
	for _, f := range fencesOf(text) {
		kind, rest, _ := strings.Cut(f.info, " ")
		if kind != "console" {
			continue
		}
		recording, isREPL := strings.CutPrefix(rest, "repl ")
		prompt := "$ trace "
		if isREPL {
			prompt = "trace> "
		}
		if !strings.HasPrefix(f.text, prompt) {
			t.Fatalf("no command begins this:\n%s", f.text)
		}
		for line := range strings.Lines(f.text) {
			if command, ok := strings.CutPrefix(line, prompt); ok {
				e := example{line: strings.TrimSuffix(command, "\n"), live: rest == "live", repl: recording}
				if !isREPL {
					e.args = shellWords(t, e.line)
				}
				found = append(found, e)
				continue
			}
			found[len(found)-1].output += line
		}
	}
	return found
}

// shellWords splits a command as a shell does that knows quotes; " #" begins a remark, and ">" ends it.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	var found []string
	for command = strings.TrimLeft(command, " "); command != "" && command[0] != '#'; command = strings.TrimLeft(command, " ") {
		word := ""
		for command != "" && command[0] != ' ' {
			if q := command[0]; q == '\'' || q == '"' {
				inner, rest, closed := strings.Cut(command[1:], string(q))
				if !closed {
					t.Fatalf("a quote is not closed in %s", command)
				}
				word, command = word+inner, rest
				continue
			}
			word, command = word+command[:1], command[1:]
		}
		if word == ">" {
			break
		}
		found = append(found, word)
	}
	return found
}

// TestDocExamples runs each command that a document shows with its output, unless it is live.
func TestDocExamples(t *testing.T) {
	ran := 0
	for _, doc := range userDocs() {
		text := readDoc(t, doc)
		for i, all := 0, examples(t, text); i < len(all); i++ {
			e := all[i]
			if e.live {
				continue
			}
			ran++
			session := []example{e}
			for e.repl != "" && i+1 < len(all) && all[i+1].repl == e.repl {
				i++
				session = append(session, all[i])
			}
			got, want := outputOf(t, session), ""
			for _, part := range session {
				want += part.output
			}
			if got == want {
				continue
			}
			if *docsUpdate && e.repl == "" {
				text = strings.Replace(text, "$ trace "+e.line+"\n"+want, "$ trace "+e.line+"\n"+got, 1)
				continue
			}
			t.Errorf("%s: trace %s prints\n%s\nit shows\n%s", doc, e.line, got, want)
		}
		if *docsUpdate {
			writeDoc(t, doc, text)
		}
	}
	if ran < 12 {
		t.Errorf("the documents have %d commands with output", ran)
	}
}

// outputOf is what a command prints, or a session of the REPL, in the folder of the repository.
func outputOf(t *testing.T, session []example) string {
	t.Helper()
	cmd := exec.Command("trace", session[0].args...)
	if recording := session[0].repl; recording != "" {
		cmd = exec.Command("trace", "repl", recording)
		var lines strings.Builder
		for _, e := range session {
			fmt.Fprintln(&lines, e.line)
		}
		cmd.Stdin = strings.NewReader(lines.String())
	}
	cmd.Dir, cmd.Env = root, append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // a mistake, which is what the document shows
		return string(exit.Stderr)
	}
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(out)
}

// TestDocLive runs the commands whose numbers are of another run. Each line that is shown must come, with any numbers; "…" stands for lines
// that are left out.
func TestDocLive(t *testing.T) {
	requireLive(t)
	ran := 0
	for _, doc := range userDocs() {
		for _, e := range examples(t, readDoc(t, doc)) {
			if !e.live {
				continue
			}
			ran++
			out, err := exec.Command("trace", e.args...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: trace %s: %v\n%s", doc, e.line, err, out)
				continue
			}
			there := make(map[string]bool)
			for line := range strings.Lines(string(out)) {
				there[anyNumbers(line)] = true
			}
			for line := range strings.Lines(e.output) {
				if leftOut := line == "…\n"; !leftOut && !there[anyNumbers(line)] {
					t.Errorf("%s: trace %s prints no line like\n%s\nit prints\n%s", doc, e.line, line, out)
				}
			}
		}
	}
	if ran < 3 {
		t.Errorf("the documents have %d live commands", ran)
	}
}

// anyNumbers is a line whose numbers, units of time, bars and ways of attaching are all the same: the kernel decides about the latter.
func anyNumbers(line string) string {
	line, _, _ = strings.Cut(line, "|")
	line = regexp.MustCompile(`\((\w+:\w+) \w+\)`).ReplaceAllString(line, "($1)")
	line = regexp.MustCompile(`\d+(\.\d+)?`).ReplaceAllString(line, "N")
	line = regexp.MustCompile(`N[nmu]?s\b`).ReplaceAllString(line, "Ns")
	return strings.Join(strings.Fields(line), " ")
}

// TestDocCommands checks the commands that the documents show without output: their flags and programs are right.
func TestDocCommands(t *testing.T) {
	catalog := loadCatalog(t)
	checked := 0
	for _, doc := range userDocs() {
		text := readDoc(t, doc)
		for _, f := range fencesOf(text) {
			if f.info != "sh" {
				continue
			}
			for line := range strings.Lines(f.text) {
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), "trace "); ok {
					checked++
					checkCommand(t, doc, shellWords(t, command), catalog)
				}
			}
		}
		for _, e := range examples(t, text) {
			if e.live {
				checkCommand(t, doc, e.args, catalog)
			}
		}
	}
	if checked < 30 {
		t.Errorf("the documents have %d commands", checked)
	}
}

// checkCommand checks flags and program of a command without running it.
func checkCommand(t *testing.T, doc string, args []string, catalog []*event.Probe) {
	t.Helper()
	called, err := findScript(args, nil)
	if err != nil {
		if strings.Contains(err.Error(), "./mine.trace") {
			return // a file of the reader
		}
		t.Errorf("%s: %q: %v", doc, args, err)
		return
	}
	command, rest, err := rootCommand(streams{out: io.Discard, err: io.Discard}, called, nil).Find(args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		t.Errorf("%s: %q: %v", doc, args, err)
		return
	}
	if command.HasParent() && command.Name() != "record" {
		return // it takes no program
	}
	left := command.Flags().Args()
	if len(left) != 1 {
		t.Errorf("%s: %q has %d programs", doc, args, len(left))
		return
	}
	program := programText{name: "program", text: left[0]}
	if called != nil {
		program = called.programText
	}
	if _, err := lang.Compile(program.name, program.text, catalog, check.Options{Params: program.params, Command: command.Flags().Changed("cmd")}); err != nil {
		t.Errorf("%s: %q:\n%v", doc, args, err)
	}
}
