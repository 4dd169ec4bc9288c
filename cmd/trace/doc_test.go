package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"trace/docs"
	metrics "trace/lang/metrics/family"
	"trace/lang/output"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// root is the folder of the repository.
const root = "../.."

var docsUpdate = flag.Bool("docs.update", false, "write the generated parts of the documents, and the outputs of their commands")

func readDoc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeDoc(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// userDocs are the documents for users: README and the manual.
func userDocs() []string {
	all := []string{"README.md"}
	for _, name := range docs.Names() {
		all = append(all, "docs/"+name+".md")
	}
	return all
}

// compareDoc compares a document with what it should be, or writes it.
func compareDoc(t *testing.T, name, want string) {
	t.Helper()
	if *docsUpdate {
		writeDoc(t, name, want)
	} else if got := readDoc(t, name); got != want {
		t.Errorf("%s is not what the catalog, the scripts and the commands make of it: go test ./cmd/trace -run TestDoc -docs.update", name)
	}
}

// TestDocProbes generates the table of probes: each with its documentation, in order. README has a row for each group.
func TestDocProbes(t *testing.T) {
	const head = "\n| Probe | Event |\n|---|---|\n"
	text, _, found := strings.Cut(readDoc(t, "docs/probes.md"), head)
	if !found {
		t.Fatal("docs/probes.md has no table of probes")
	}
	want, readme := text+head, readDoc(t, "README.md")
	for _, p := range loadCatalog(t) {
		want += "| `" + p.String() + "` | " + p.Doc + " |\n"
		if !strings.Contains(readme, "\n| `"+p.Group+":` | ") {
			t.Errorf("README.md has no row for the group of %s", p)
		}
	}
	compareDoc(t, "docs/probes.md", want)
}

// TestDocMetrics generates the table of the metrics about a run.
func TestDocMetrics(t *testing.T) {
	const head = "\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
	text, _, found := strings.Cut(readDoc(t, "docs/metrics.md"), head)
	if !found {
		t.Fatal("docs/metrics.md has no table of metrics")
	}
	want := text + head
	for _, f := range metrics.About() {
		want += fmt.Sprintf("| `%s` | %v | `%s` | %s |\n", f.Name, f.Kind, strings.Join(f.Labels, " "), strings.TrimSuffix(f.Help, "."))
	}
	compareDoc(t, "docs/metrics.md", want)
}

func loadCatalog(t *testing.T) []*event.Probe {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Probes()
}

// TestDocScripts generates the reports in docs/scripts.md, and the table of scripts in README.
func TestDocScripts(t *testing.T) {
	text := readDoc(t, "docs/scripts.md")
	if at := strings.Index(text, "\n## "); at >= 0 {
		text = text[:at]
	}
	const head = "\n| Script | Shows |\n|---|---|\n"
	before, after, found := strings.Cut(readDoc(t, "README.md"), head)
	if !found {
		t.Fatal("README.md has no table of scripts")
	}
	table := ""
	for _, s := range scripts.All() {
		header, _, _ := strings.Cut(readDoc(t, "scripts/"+s.Name+".trace"), "\n\n")
		text += fmt.Sprintf("\n## %s\n\n```text\n", s.Name)
		for line := range strings.Lines(header + "\n") {
			text += strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		}
		text += "```\n"
		table += "| `" + s.Name + "` | " + s.Summary + " |\n"
	}
	compareDoc(t, "docs/scripts.md", text)
	_, rest, _ := strings.Cut("\n"+after, "\n\n")
	compareDoc(t, "README.md", before+head+table+"\n"+rest)
}

// README is read to its end. Code may have wide lines, prose has not.
func TestDocSizes(t *testing.T) {
	if size := len(readDoc(t, "README.md")); size > 14000 {
		t.Errorf("README.md has %d bytes, it may have 14000", size)
	}
	for _, name := range userDocs() {
		fenced := false
		n := 0
		for line := range strings.Lines(readDoc(t, name)) {
			n++
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			isReadmeCode := fenced && name == "README.md" && !strings.HasPrefix(line, "$ ")
			if columns := utf8.RuneCountInString(line) - 1; columns > docs.Width && (isReadmeCode || !fenced && line[0] != '|') {
				t.Errorf("%s:%d has %d columns", name, n, columns)
			}
		}
	}
}

// TestDocRepeats looks for paragraphs that stand twice.
func TestDocRepeats(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range append(userDocs(), "CONTRIBUTING.md", "bpf/README.md") {
		for paragraph := range strings.SplitSeq(readDoc(t, name), "\n\n") {
			words := strings.Join(strings.Fields(paragraph), " ")
			if len(words) < 80 {
				continue
			}
			if where, twice := seen[words]; twice {
				t.Errorf("%s repeats what %s has: %s", name, where, paragraph)
			}
			seen[words] = name
		}
	}
}

// Every flag of the help is in a document, and no document names a flag that trace does not have.
func TestDocFlags(t *testing.T) {
	var text strings.Builder
	for _, name := range userDocs() {
		text.WriteString(readDoc(t, name))
	}
	command := rootCommand(streams{out: io.Discard, err: io.Discard}, nil, nil)
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	known := map[string]bool{"-lv": true}
	command.Flags().VisitAll(func(f *pflag.Flag) {
		known["--"+f.Name], known["-"+f.Shorthand] = true, true
		names := "--" + f.Name
		if f.Shorthand != "" {
			names += "|-" + f.Shorthand
		}
		if !regexp.MustCompile("`(" + names + ")[ `]").MatchString(text.String()) {
			t.Errorf("no document has --%s", f.Name)
		}
	})
	for _, sub := range command.Commands() {
		sub.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
	}
	foreign := []string{"--pid", "--lat", "--op", "--limit", "-i", "-B", "-E"} // of docker, of params of examples, of bpftrace, an error number
	for _, inline := range regexp.MustCompile("`(--?[A-Za-z][a-z-]*)[^`\n]*`").FindAllStringSubmatch(text.String(), -1) {
		if !known[inline[1]] && !slices.Contains(foreign, inline[1]) {
			t.Errorf("a document names %s, which trace does not have", inline[1])
		}
	}
	for _, f := range output.Formats() {
		if !strings.Contains(readDoc(t, "docs/output.md"), "\n| `"+f+"` |") {
			t.Errorf("docs/output.md has no format %s", f)
		}
	}
}

// TestReachIsTested looks for the tests and folders of the table of what users reach.
func TestReachIsTested(t *testing.T) {
	_, table, found := strings.Cut(readDoc(t, "docs/architecture.md"), "## What users reach")
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(table, -1)
	if !found || len(rows) < 30 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows[1:] {
		where, tests := regexp.MustCompile("`([a-z][a-z-]*(?:/[a-z-]+)*)`").FindAllStringSubmatch(row[1], -1), regexp.MustCompile("`([A-Z]\\w+)`").FindAllStringSubmatch(row[3], -1)
		if len(where) == 0 || len(tests) == 0 || strings.TrimSpace(row[2]) == "" {
			t.Errorf("a row lacks a folder, a bound or a test: %s", row[0])
		}
		for _, test := range tests {
			if !slices.ContainsFunc(where, func(folder []string) bool { return hasTest(t, folder[1], test[1]) }) {
				t.Errorf("no folder of the row has %s: %s", test[1], row[0])
			}
		}
	}
}

// Each row about what may change during a run names files that exist.
func TestChangesAreDescribed(t *testing.T) {
	_, table, _ := strings.Cut(readDoc(t, "docs/architecture.md"), "## What may change during a run")
	table, _, found := strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(table, -1)
	if !found || len(rows) < 25 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows[1:] {
		for _, at := range regexp.MustCompile("`([a-z][a-z-]*(?:/[a-z-]+)*)`(?: \\(([a-z, ]+)\\))?").FindAllStringSubmatch(row[2], -1) {
			files := []string{""}
			if at[2] != "" {
				files = strings.Split(at[2], ", ")
			}
			for _, file := range files {
				if file != "" {
					file += ".go"
				}
				if _, err := os.Stat(filepath.Join(root, at[1], file)); err != nil {
					t.Errorf("%s: %v", row[1], err)
				}
			}
		}
	}
}

// hasTest reports whether a folder, or cmd/trace, has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	for _, dir := range []string{folder, "cmd/trace"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "\nfunc "+name+"(") {
				return true
			}
		}
	}
	return false
}

// What the documents name exists: links, files and folders of the repository, targets of make.
func TestDocNamesWhatExists(t *testing.T) {
	makefile := readDoc(t, "Makefile")
	for _, doc := range append(userDocs(), "CONTRIBUTING.md", "bpf/README.md") {
		text := readDoc(t, doc)
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), link[1])); err != nil {
				t.Errorf("%s: link: %v", doc, err)
			}
		}
		for _, path := range regexp.MustCompile("`((?:\\.ci|bpf|cmd|docs|lang|probes)(?:/[\\w.-]+)*)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
				t.Errorf("%s names a file: %v", doc, err)
			}
		}
		for _, target := range regexp.MustCompile("(?m)(?:`|^    |```sh\nmake demo.*\n)make ([a-z]+)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", doc, target[1])
			}
		}
	}
}

// The figures of docs/cost.md and README are those that make bench has written.
func TestDocFigures(t *testing.T) {
	results := readDoc(t, "cmd/bench/RESULTS.md")
	rows := 0
	for line := range strings.Lines(readDoc(t, "docs/cost.md")) {
		if strings.HasPrefix(line, "| ") {
			rows++
			if !strings.Contains(results, line) {
				t.Errorf("docs/cost.md quotes what make bench has not written: %s", line)
			}
		}
	}
	if rows < 5 {
		t.Errorf("docs/cost.md quotes %d rows", rows)
	}
	// figure returns trace's number and bpftrace's of a row, as README rounds them.
	figure := func(name string) (ours, theirs string) {
		found := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| ([\d.]+) \w+ [^|]*\| bpftrace \| ([\d.]+) `).FindStringSubmatch(results)
		if found == nil {
			t.Fatalf("RESULTS.md has no %s", name)
		}
		round := func(s string) string {
			var x float64
			fmt.Sscan(s, &x)
			return fmt.Sprintf("%.0f", x)
		}
		return round(found[1]), round(found[2])
	}
	readme := readDoc(t, "README.md")
	for name, sentence := range map[string]string{
		"`@ = count()`":            "costs %s ns, with bpftrace %s ns",
		"`@[ret] = hist(latency)`": "costs %s ns, with bpftrace %s ns",
		"start to attached":        "starts in %s ms and takes",
		"peak resident memory":     "takes %s MB; bpftrace takes",
	} {
		ours, theirs := figure(name)
		args := []any{ours, theirs}[:strings.Count(sentence, "%s")]
		if want := fmt.Sprintf(sentence, args...); !strings.Contains(readme, want) {
			t.Errorf("README.md does not have %q, which is %s by RESULTS.md", want, name)
		}
	}
}

// The reports that docs/lost-events.md explains are those that a run writes.
func TestDocReports(t *testing.T) {
	var written strings.Builder
	for _, folder := range []string{"lang/run/console", "lang/run", "probes"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				written.Write(text)
			}
		}
	}
	reports := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(readDoc(t, "docs/lost-events.md"), -1) {
		for _, report := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			reports++
			for part := range strings.SplitSeq(report[1], "…") {
				if !strings.Contains(written.String(), strings.TrimSpace(part)) {
					t.Errorf("docs/lost-events.md explains %q, which no run reports", report[1])
				}
			}
		}
	}
	if reports < 10 {
		t.Errorf("docs/lost-events.md explains %d reports", reports)
	}
}

// trace help TOPIC, the manual page and docs/TOPIC.md have the same words, in prose, tables, headings and code.
func TestDocHelp(t *testing.T) {
	var manual bytes.Buffer
	if err := writeManual(&manual, rootCommand(streams{out: io.Discard, err: io.Discard}, nil, nil)); err != nil {
		t.Fatal(err)
	}
	for _, topic := range docs.Topics() {
		file := readDoc(t, "docs/"+topic.Name+".md")
		out, err := exec.Command("trace", "help", topic.Name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if lacks, adds := differingWords(file, string(out)); len(lacks)+len(adds) > 0 {
			t.Errorf("trace help %s lacks %q and adds %q", topic.Name, lacks, adds)
		}
		_, section, _ := strings.Cut(manual.String(), "\n# "+strings.ToUpper(topic.Name)+"\n")
		section, _, _ = strings.Cut(section, "\n# ")
		_, text, _ := strings.Cut(file, "\n") // the section has a heading of its own
		if lacks, adds := differingWords(withoutTableHeads(text), section); len(lacks)+len(adds) > 0 {
			t.Errorf("the manual's section of %s lacks %q and adds %q", topic.Name, lacks, adds)
		}
	}
}

// differingWords returns the words that one text has more often than the other. A link counts as the words it shows.
func differingWords(want, got string) (lacks, adds []string) {
	count := make(map[string]int)
	each := func(text string, n int) {
		text = regexp.MustCompile(`(?m)^!\[.*$`).ReplaceAllString(text, "")                                 // a picture
		text = regexp.MustCompile("(?m)^```[^\n]*$").ReplaceAllString(text, "")                             // a fence's mark
		text = regexp.MustCompile(`\[([\w-]+)\.md\]\([\w-]+\.md\)`).ReplaceAllString(text, "trace help $1") // a topic
		text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			count[word] += n
		}
	}
	each(want, 1)
	each(got, -1)
	for word, n := range count {
		if n > 0 {
			lacks = append(lacks, word)
		} else if n < 0 {
			adds = append(adds, word)
		}
	}
	slices.Sort(lacks)
	slices.Sort(adds)
	return lacks, adds
}

// withoutTableHeads drops the rows of names above tables: the manual page makes an item of each other row.
func withoutTableHeads(text string) string {
	return regexp.MustCompile(`(?m)^\| .*\n(\|--)`).ReplaceAllString(text, "$1")
}
