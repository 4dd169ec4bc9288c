package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/output"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// root is the folder of the repository.
const root = "../.."

func readDoc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// README's table is the catalog: each probe with its documentation, in order.
func TestReadmeListsProbes(t *testing.T) {
	var want []string
	for _, p := range loadCatalog(t) {
		want = append(want, "| `"+p.String()+"` | "+p.Doc+" |")
	}
	got := regexp.MustCompile("(?m)^\\| `[a-z0-9]+:[a-z0-9_]+` \\|.*$").FindAllString(readDoc(t, "README.md"), -1)
	if !slices.Equal(got, want) {
		t.Errorf("the table of probes in README.md is\n%s\n\nby the catalog it is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func loadCatalog(t *testing.T) []*event.Probe {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Probes()
}

// README's table of scripts is what trace scripts lists.
func TestReadmeListsScripts(t *testing.T) {
	var want []string
	for _, s := range scripts.All() {
		want = append(want, "| `"+s.Name+"` | "+s.Summary+" |")
	}
	got := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\|.*$").FindAllString(section(readDoc(t, "README.md"), "## Scripts"), -1)
	if !slices.Equal(got, want) {
		t.Errorf("the table of scripts in README.md is\n%s\n\nit should be\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// section is what stands under a heading.
func section(text, heading string) string {
	_, rest, _ := strings.Cut(text, "\n"+heading+"\n")
	inside, _, _ := strings.Cut(rest, "\n#")
	return inside
}

// Every format is in README and in the help; the first, text, goes without saying.
func TestDocumentsKnowFormats(t *testing.T) {
	for _, name := range []string{"README.md", "cmd/trace/help/output.txt"} {
		text := readDoc(t, name)
		for _, f := range output.Formats()[1:] {
			if !regexp.MustCompile(`-f (\w+, )*(\w+ and )?` + f + `\b`).MatchString(text) {
				t.Errorf("%s has no -f %s", name, f)
			}
		}
	}
}

// Every flag of the help is in README, and README tells of no flag of trace that there is not.
func TestReadmeKnowsFlags(t *testing.T) {
	text := readDoc(t, "README.md")
	command := rootCommand(streams{out: io.Discard, err: io.Discard}, nil, nil)
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	known := make(map[string]bool)
	command.Flags().VisitAll(func(f *pflag.Flag) {
		long, short := "--"+f.Name, "-"+f.Shorthand
		known[long], known[short] = true, true
		names := long
		if f.Shorthand != "" {
			names += "|" + short
		}
		told := regexp.MustCompile("`(" + names + ")[ `]")
		if !told.MatchString(text) {
			t.Errorf("README.md does not tell of %s", long)
		}
	})
	for _, sub := range command.Commands() {
		sub.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
	}
	for _, inline := range regexp.MustCompile("`(--?[a-z][a-z-]*)[^`\n]*`").FindAllStringSubmatch(text, -1) {
		// Of docker, said beside.
		if !known[inline[1]] && inline[1] != "-v" && inline[1] != "-lv" {
			t.Errorf("README.md tells of %s, which trace does not have", inline[1])
		}
	}
}

// example is a command of a document, with the output that is shown below it, if any is.
type example struct {
	line   string
	args   []string
	output string
}

// examples returns the commands of trace in the code of a document.
func examples(t *testing.T, text string) []example {
	t.Helper()
	var found []example
	shown := false // whether what follows is output of the last example
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced, shown = !fenced, false
			continue
		}
		command, prompt := strings.CutPrefix(line, "$ ")
		if !prompt {
			command = strings.TrimPrefix(line, "    ")
		}
		isCode := fenced && prompt || !fenced && command != line
		switch {
		case isCode && strings.HasPrefix(command, "trace "):
			found = append(found, example{line: command, args: words(t, command)[1:]})
			shown = prompt
		case fenced && shown:
			found[len(found)-1].output += line + "\n"
		}
	}
	return found
}

// words splits a command as a shell does that knows single quotes; two spaces and what follows are a remark.
func words(t *testing.T, command string) []string {
	t.Helper()
	var found []string
	for len(command) > 0 && !strings.HasPrefix(command, "  ") {
		command = strings.TrimPrefix(command, " ")
		if quoted, ok := strings.CutPrefix(command, "'"); ok {
			word, rest, closed := strings.Cut(quoted, "'")
			if !closed {
				t.Fatalf("a quote is not closed in %s", command)
			}
			found, command = append(found, word), rest
			continue
		}
		end := strings.IndexByte(command, ' ')
		if end < 0 {
			end = len(command)
		}
		found, command = append(found, command[:end]), command[end:]
	}
	return found
}

// Every command of trace in README is one; what can be run without privileges gives the output that is shown.
func TestReadmeExamples(t *testing.T) {
	all := examples(t, readDoc(t, "README.md"))
	catalog := loadCatalog(t)
	ran := 0
	for _, e := range all {
		if e.args[0] == "-r" && strings.HasPrefix(e.args[1], "scripts/testdata/") {
			ran++
			if out := replay(t, e.args...); out != e.output {
				t.Errorf("$ %s\nprints\n%s\nREADME.md shows\n%s", e.line, out, e.output)
			}
			continue
		}
		list := strings.HasPrefix(e.args[0], "-l")
		wrong := strings.Contains(e.output, "\nhelp: ")
		if list || wrong {
			ran++
			var out bytes.Buffer
			runCommand(context.Background(), e.args, nil, &out, &out)
			if out.String() != e.output {
				t.Errorf("$ %s\nprints\n%s\nREADME.md shows\n%s", e.line, &out, e.output)
			}
			continue
		}
		checkCommand(t, e, catalog)
		checkEvents(t, e, catalog)
	}
	if len(all) < 10 || ran < 4 {
		t.Errorf("README.md has %d commands, %d of them were run: the test does not find them any more", len(all), ran)
	}
}

// checkCommand checks flags and program of a command without running it.
func checkCommand(t *testing.T, e example, catalog []*event.Probe) {
	t.Helper()
	called, err := findScript(e.args, nil)
	if err != nil {
		t.Errorf("README.md: %s: %v", e.line, err)
		return
	}
	command, rest, err := rootCommand(streams{out: io.Discard, err: io.Discard}, called, nil).Find(e.args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		t.Errorf("README.md: %s: %v", e.line, err)
		return
	}
	if command.HasParent() {
		return // a subcommand
	}
	args := command.Flags().Args()
	if len(args) != 1 {
		t.Errorf("README.md: %s has %d programs", e.line, len(args))
		return
	}
	program := source{name: "program", text: args[0]}
	if called != nil {
		program = called.source
	}
	if _, err := lang.Compile(program.name, program.text, catalog, check.Options{Params: program.params, Command: command.Flags().Changed("cmd")}); err != nil {
		t.Errorf("README.md: %s:\n%v", e.line, err)
	}
}

// checkEvents checks that the events shown have fields of their probe, in order: of its line of text some may be absent, as JSON all are
// there.
func checkEvents(t *testing.T, e example, catalog []*event.Probe) {
	t.Helper()
	shown := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{6} (\S+) \S+/\d+ (.*)$|^\{"type":"event","probe":"([^"]+)","time":"[^"]+","data":\{(.*)\}\}$`)
	for line := range strings.Lines(e.output) {
		parts := shown.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if parts == nil {
			continue
		}
		name := parts[1] + parts[3]
		index := slices.IndexFunc(catalog, func(p *event.Probe) bool { return p.String() == name })
		if index < 0 {
			t.Errorf("README.md shows an event of %s, which there is not", name)
			continue
		}
		var got, want []string
		for pair := range strings.FieldsSeq(parts[2]) {
			field, _, _ := strings.Cut(pair, "=")
			got = append(got, field)
		}
		for _, member := range regexp.MustCompile(`[{,]"(\w+)":`).FindAllStringSubmatch(","+parts[4], -1) {
			if !slices.Contains([]string{"time", "id", "path"}, member[1]) { // of nsecs and cgroup
				got = append(got, member[1])
			}
		}
		for _, f := range catalog[index].Fields {
			if asJSON := parts[3] != ""; asJSON || !f.Common && slices.Contains(got, f.Name) {
				want = append(want, f.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("README.md shows the fields\n%s\nof %s, which has\n%s", got, name, want)
		}
	}
}

// What the documents name exists: links, files and folders of the repository, targets of make, tests.
func TestDocumentsNameWhatExists(t *testing.T) {
	makefile := readDoc(t, "Makefile")
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "bpf/README.md"} {
		text := readDoc(t, doc)
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), link[1])); err != nil {
				t.Errorf("%s: link: %v", doc, err)
			}
		}
		for _, path := range regexp.MustCompile("`((?:\\.ci|bpf|cmd|lang|probes)(?:/[\\w.-]+)*)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
				t.Errorf("%s names a file: %v", doc, err)
			}
		}
		for _, target := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z]+)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", doc, target[1])
			}
		}
		for _, anchor := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			heading := "\n## " + strings.ReplaceAll(anchor[1], "-", " ") + "\n"
			if !strings.Contains(strings.ToLower(text), heading) {
				t.Errorf("%s has no heading for #%s", doc, anchor[1])
			}
		}
	}
}

// The figures in README are those that make bench has written.
func TestReadmeQuotesBench(t *testing.T) {
	rows := func(file, heading string) []string {
		_, text, found := strings.Cut(readDoc(t, file), heading)
		if !found {
			t.Fatalf("%s: no %q", file, heading)
		}
		var table []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "|") {
				table = append(table, line)
			} else if table != nil {
				break
			}
		}
		return table
	}
	for written, quoted := range map[string]string{"# Performance": "## What it costs", "# Devices": "### NVMe and RDMA"} {
		want := rows("cmd/bench/RESULTS.md", written)
		if got := rows("README.md", quoted); len(got) < 3 || !slices.Equal(got, want) {
			t.Errorf("README.md quotes\n%s\nmake bench has written\n%s", strings.Join(got, ""), strings.Join(want, ""))
		}
	}
}
