package repl

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"trace/probes"
	"trace/probes/event"
)

func TestPaste(t *testing.T) {
	const script = "begin {\n\tx = 1\r\n}\n"
	const line = "begin {␤    x = 1␤}"
	for name, input := range map[string]string{
		"typed":       "nvme\tx\r\x1b[A",
		"pasted":      "a " + pasteBegin + script + pasteEnd + " b",
		"two":         pasteBegin + "a\n" + pasteEnd + pasteBegin + "b" + pasteEnd,
		"without end": "a" + pasteBegin + "b",
		"keys":        pasteBegin + "a\x03\x04\x1b[Ab" + pasteEnd,
	} {
		want := map[string]string{
			"typed": input, "pasted": "a " + line + " b", "two": "ab", "without end": "a", "keys": "a[Ab",
		}[name]
		// The result does not depend on how the input is cut, unless a mark is cut where a key may begin.
		for size := range len(input) {
			var s splitter
			var got strings.Builder
			for rest := input; rest != ""; {
				n := min(size+1, len(rest))
				if cutsBegin(rest, n) {
					n = len(rest)
				}
				got.Write(s.filter([]byte(rest[:n])))
				rest = rest[n:]
			}
			if got.String() != want {
				t.Errorf("%s in pieces of %d: %q, want %q", name, size+1, got.String(), want)
			}
		}
	}
}

// A terminal that does not mark a paste sends it at once. Tabs at the beginning of its lines are not keys, and others are.
func TestPasteWithoutMarks(t *testing.T) {
	for input, want := range map[string]string{
		"begin {\r\tprint(1)\r\t\tprint(2)\r}\r": "begin {\rprint(1)\rprint(2)\r}\r",
		"\t":                                     "\t", "\tnv\t": "\tnv\t", "nvme\t\r": "nvme\t\r",
	} {
		if got := new(splitter).filter([]byte(input)); string(got) != want {
			t.Errorf("%q becomes %q, want %q", input, got, want)
		}
	}
}

// cutsBegin reports whether the mark before a paste crosses the end of a piece. Terminals write it at once.
func cutsBegin(rest string, n int) bool {
	for i := max(0, n-len(pasteBegin)+1); i < n; i++ {
		if strings.HasPrefix(rest[i:], pasteBegin) {
			return true
		}
	}
	return false
}

func TestCommandOrProgram(t *testing.T) {
	for text, want := range map[string]string{
		"help": "help", " quit ": "quit", "exit": "exit", "probes nvme:*": "probes", "print(@x)": "print", "print @x 10": "print",
		"maps == 3": "", "record == 1 && x": "", "nvme:*": "", "open(3)": "", "qp.state == RTR": "", "probes": "probes", "probesx": "",
	} {
		if name, _, _ := cutCommand(text); name != want && (want != "" || !strings.Contains(text, "==")) {
			t.Errorf("%q is the command %q, want %q", text, name, want)
		}
		if _, _, ok := cutCommand(text); ok != (want != "") {
			t.Errorf("%q is a command: %v", text, ok)
		}
	}
	for text, want := range map[string]string{
		"proebs": `did you mean "probes"`, "hlep topic": `did you mean "help"`, "latency": "", "pid == 3": "", "nvme:*": "",
		"stuck --age=1s": "run stuck --age=1s", "list": "probes lists the probes", "q": "quit leaves", "scripts": "run and the Tab key", "version": "trace version",
	} {
		if hint := mistyped(text, Shell{Scripts: []string{"stuck"}}); want == "" && hint != "" || !strings.Contains(hint, want) {
			t.Errorf("%q: %q", text, hint)
		}
	}
}

func TestComplete(t *testing.T) {
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{Shell: Shell{
		Probes:  func([]string) ([]*event.Probe, error) { return catalog.Probes(), nil },
		Maps:    func() []string { return []string{"@", "@lat"} },
		Scripts: []string{"nvme_stuck", "nvme_trace"},
		Params:  func(string) []string { return []string{"--ctrl_id=", "--nsid="} },
		Topics:  []string{"language"},
	}}
	for _, c := range []struct {
		before        string
		offers, never string // with blanks between
	}{
		{"", "help nvme:complete_rq begin qp.state", "read count"},
		{"nv", "nvme:complete_rq nvme:setup_cmd", "ib:modify_qp"},
		{"nvme:complete_rq, ", "nvme:setup_cmd", "latency"},
		{"nvme:complete_rq / la", "latency", "qp.num"},
		{"nvme:complete_rq / opcode == ", "read write", "latency"},
		{"nvme:complete_rq / opcode in [read, wr", "write", "latency read"},
		{"ib:modify_qp / ret == -EI", "-EINVAL -EIO", "EINVAL"},
		{"qp.state == ", "RTR RTS", "qp.state"},
		{"qp.state == rt", "RTR RTS", "RESET"},
		{"ib:modify_qp / ret == -ei", "-EINVAL -EIO", "-EPERM"},
		{"nvme:complete_rq { @x = qu", "quantile", "count"},
		{"nvme:complete_rq { @lat[nsid] = count(); print(@l", "@lat", "latency"},
		{"nvme:complete_rq { @ = count() } ib:", "ib:modify_qp", "nvme:setup_cmd"},
		{"nvme:complete_rq { @x = count() }  // {\nib:", "ib:modify_qp", "nvme:setup_cmd"},
		{"nvme:complete_rq { @x = count() }  // it's one\nib:", "ib:modify_qp", "nvme:setup_cmd"},
		{"nvme:complete_rq { @x = count() }  // {\nib:modify_qp / ", "qp.state ret", "opcode count"},
		{"nvme:complete_rq { @x = count() }  // la", "", "latency"},
		{"nvme:complete_rq { printf(\"la", "", "latency"},
		{"nvme:complete_rq /* ib:* / */ / op", "opcode", ""},
		{"nvme:complete_rq / latency > 10", "", "latency"},
		{"nvme:complete_rq / opcode not in [", "read write", "latency"},
		{"nvme:complete_rq { ", "print clear", "latency"},
		{"nvme:complete_rq { if (la", "latency", ""},
		{"nvme:complete_rq { @x = sum(", "latency", "count print"},
		{"param limit = 1ms\nnvme:complete_rq / latency > $", "$limit", "latency"},
		{"nvme:complete_rq { $slow = latency; @x = $s", "$slow", ""},
		{"ib:modify_qp / qp.", "qp.state", "ret"},
		{"fields nvme:s", "nvme:setup_cmd nvme:sq", "ib:modify_qp"},
		{"run nvme_s", "nvme_stuck", "nvme_trace"},
		{"run nvme_trace --n", "--nsid=", "--ctrl_id="},
		{"run nvme_trace --l", "--live", "--ctrl_id="},
		{"set format j", "json", "text"},
		{"set format ht", "html", "text"},
		{"set format html repl_t", "repl_test.go", "html"},
		{"set f", "format fields", "limit"},
		{"set fields late", "latency", "latency_us repl_test.go"},
		{"set fields latency qp.st", "qp.state", "latency repl_test.go"},
		{"li", "live", "ib:modify_qp"},
		{"live nvme:set", "nvme:setup_cmd", "live"},
		{"live nvme:complete_rq / opcode == re", "read", "ret"},
		{"explain ", "nvme:complete_rq", "explain help"},
		{"print @", "@lat", ""},
		{"explain nvme:complete_rq / opcode == re", "read", ""},
		{"record f nvme:set", "nvme:setup_cmd", ""},
		{"record --force f nvme:set", "nvme:setup_cmd", ""},
		{"record --force repl_t", "repl_test.go", "nvme:setup_cmd"},
		{"help l", "language", ""},
	} {
		typed := strings.Split(c.before, "\n")
		l.typed = typed[:len(typed)-1]
		_, words := l.candidates(typed[len(typed)-1])
		all := " " + strings.Join(words, " ") + " "
		for _, want := range strings.Fields(c.offers) {
			if !strings.Contains(all, " "+want+" ") {
				t.Errorf("%q does not offer %s, but%s", c.before, want, all)
			}
		}
		for _, wrong := range strings.Fields(c.never) {
			if strings.Contains(all, " "+wrong+" ") {
				t.Errorf("%q offers %s", c.before, wrong)
			}
		}
	}
}

// Each mistake in a command is reported with what to write.
// doctor passes on what it is asked about, as one word.
func TestDoctorIsAsked(t *testing.T) {
	var got [][]string
	l := &loop{Shell: Shell{Out: io.Discard, Err: io.Discard, Command: func(_ io.Writer, words ...string) { got = append(got, words) }}}
	for _, about := range []string{"", "nvme:*", "nvme:sq { @ = count() }"} {
		if err := l.doctor(about); err != nil {
			t.Fatal(err)
		}
	}
	if want := [][]string{{"doctor"}, {"doctor", "--", "nvme:*"}, {"doctor", "--", "nvme:sq { @ = count() }"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCommandErrors(t *testing.T) {
	var out, errs strings.Builder
	l := &loop{Shell: Shell{
		Probes:  func([]string) ([]*event.Probe, error) { return nil, nil },
		Maps:    func() []string { return nil },
		Scripts: []string{"nvme_stuck"},
		Out:     &out, Err: &errs,
	}}
	for text, want := range map[string]string{
		"fields":          "fields: expected a probe, like: fields nvme:complete_rq",
		"explain":         "explain: expected a program: none has run yet",
		"live":            "live: expected a program: none has run yet",
		"live nvme_stuck": "live: nvme_stuck is a script: run nvme_stuck --live",
		"run":             "run: expected a script: trace scripts lists the bundled ones",
		"record f":        "record: expected a file and a program, like: record nvme.rec nvme:*",
		"save":            "save: expected a file, like: save mine.trace",
		"save f.trace":    "save: no program has run yet",
		"set limit 0":     `set: limit "0": expected a number of events, or none`,
		"set fields":      "set: expected fields, like: set fields time latency, or none for the usual ones",
		"set colour red":  `set: there is no setting "colour": use format, limit or fields`,
		"set format xml":  `set: there is no format "xml": use one of text, json, csv, perfetto, folded, pprof, html`,
		"set format html": "set: html needs a file, which each program writes anew: set format html FILE",
		"maps":            "maps: the last program has no maps",
		"print":           "print: expected a map: maps lists them",
		"print @x most":   "print: most: expected a number of rows, by key or by value",
		"edit":            "edit: an editor needs a terminal",
		"history all":     "history: all: expected a number of lines, like: history 50",
		"proebs":          `proebs is not a command: did you mean "probes"? help lists the commands`,
	} {
		errs.Reset()
		if l.execute(text); errs.String() != want+"\n" {
			t.Errorf("%s: got %s, want %s", text, &errs, want)
		}
	}
	for text, want := range map[string]string{"open": "programs run on this machine\n", "set": "format text\nlimit  none\nfields none: the usual ones\n"} {
		out.Reset()
		if l.execute(text); out.String() != want {
			t.Errorf("%s: got %s, want %s", text, &out, want)
		}
	}
}

// The help lists each command with what it does.
func TestHelpList(t *testing.T) {
	var out strings.Builder
	(&loop{Shell: Shell{Out: &out}}).execute("help")
	for _, c := range commands() {
		if !strings.Contains(out.String(), "  "+strings.TrimSpace(c.name+" "+c.args)+" ") || !strings.Contains(out.String(), "  "+c.help+"\n") {
			t.Errorf("%s\nlacks %s", &out, c.name)
		}
	}
	if !strings.HasSuffix(out.String(), "\nEverything else is a program; the Tab key completes probes, fields, names, functions and maps.\n") {
		t.Errorf("it ends with something else:\n%s", &out)
	}
}
