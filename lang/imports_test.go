package lang

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trace/lang/check"
)

// writeFiles writes files, whose names may have folders, below a new folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// A program has the clauses, macros, params and maps of the files that it imports, each file once, before its own.
func TestImport(t *testing.T) {
	folder := writeFiles(t, map[string]string{
		"helper.bt":   "import \"lib/b.bt\"\nmacro twice(x) { x * 2 }\nbegin { print(2) }",
		"lib/a.trace": "import \"../helper.bt\"; let @c = hash(7); begin { print(3) }",
		"lib/b.bt":    "param k = 3\nbegin { print(1) }",
		"lib/notes":   "no program (",
	})
	name, text := filepath.Join(folder, "main.trace"), "import \"helper.bt\"; import \"lib\"\nbegin { @c[twice($k)] = count() }"
	p, err := Compile(name, text, nil, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Clauses {
		got = append(got, c.Text)
	}
	const want = "begin { print(1) }; begin { print(2) }; begin { print(3) }; begin { @c[twice($k)] = count() }"
	if all := strings.Join(got, "; "); all != want || p.Maps[0].MaxKeys != 7 {
		t.Errorf("got %s, a map for %d keys", all, p.Maps[0].MaxKeys)
	}
	params, err := Params(name, text)
	if err != nil || len(params) != 1 || params[0].Name != "k" {
		t.Errorf("params %v, %v", params, err)
	}
	if e := params[0].In.Error(params[0].Span, "", ""); e.File != filepath.Join(folder, "lib/b.bt") || e.Line != 1 || e.Text != "param k = 3" {
		t.Errorf("k is declared at %s:%d: %q", e.File, e.Line, e.Text)
	}
	if groups := Groups(text); groups != nil {
		t.Errorf("groups %v of a program that imports files", groups)
	}
}

func TestImportErrors(t *testing.T) {
	folder := writeFiles(t, map[string]string{
		"wrong.bt": "begin { print(y }", "sub/name.bt": "\n\nbegin { prin(1) }", "config.bt": "config = { max_map_keys = 5 }\nbegin { print(1) }", "bare.bt": "pid == 1",
		"empty/notes": "", "open/a.bt": "begin { print(1) }", "types.h": "", "out.bt": "import \"../x.bt\"", "twice.bt": "import \"twice.bt\"\nbegin { print(1) }",
	})
	if err := os.Chmod(filepath.Join(folder, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "link.bt")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "pipe.bt"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"pipe.bt":       `import "pipe.bt": not a file`,
		"wrong.bt":      `wrong.bt:1:17: expected a comma or ), found "}"`,
		"sub/name.bt":   "sub/name.bt:3:9: there is no function prin\n    begin { prin(1) }",
		"config.bt":     "config.bt:1:1: an imported file has no settings\n    config = { max_map_keys = 5 }\n    ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~\nhelp: move them to the program that imports it",
		"bare.bt":       "main.trace:1:1: bare.bt is a bare expression\n    import \"bare.bt\"\n    ^~~~~~~~~~~~~~~~\nhelp: name its probes: an imported file has clauses, macros, params and maps",
		"empty":         "the folder has no file that ends in .trace or .bt",
		"open/a.bt":     "everyone can write to the folder open (chmod o-w open)",
		"types.h":       "files of C are not needed: trace -lv lists the fields of each probe",
		"nosuch.bt":     `import "nosuch.bt": no such file or directory`,
		"../x.bt":       `import "../x.bt": the file must be in`,
		"out.bt":        `out.bt:1:1: import "../x.bt": the file must be in`,
		"/etc/passwd":   "or below it, where the program is",
		"link.bt":       "path escapes from parent",
		"twice.bt":      "<nil>",
		"sub/../out.bt": `out.bt:1:1: import "../x.bt"`,
	} {
		_, err := Compile(filepath.Join(folder, "main.trace"), fmt.Sprintf("import %q\nbegin { print(1) }", path), nil, check.Options{})
		if got := strings.ReplaceAll(fmt.Sprint(err), folder+"/", ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if _, err := Compile(filepath.Join(folder, "no/such/main.trace"), `import "x.bt"`, nil, check.Options{}); err == nil || !strings.HasPrefix(err.Error(), "the folder of the program: ") {
		t.Errorf("without a folder: %v", err)
	}
}
