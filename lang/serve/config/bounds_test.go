package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loaded returns the error of a configuration, which must come soon: the work grows with the text, and not with its square.
func loaded(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.yaml")
	write(t, filepath.Dir(file), map[string]string{"trace.yaml": text})
	began := time.Now()
	_, err := Load(file)
	if took := time.Since(began); took > 20*time.Second { // half a second to three; the square of it takes minutes
		t.Errorf("%s took %v", name, took)
	}
	return strings.ReplaceAll(fmt.Sprint(err), file, "trace.yaml")
}

// Of very many mistakes the first ones are shown, and how many more there are.
func TestManyMistakes(t *testing.T) {
	const many = 20_000
	each := func(format string) string {
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"keys in one line":    "{" + each("k%d: 1, ") + "}",
		"programs":            "programs:\n" + each("- {name: P%d, program: x}\n"),
		"programs in a line":  "programs: [" + each("{name: p%d}, ") + "]",
		"the same program":    "programs:\n- &p {name: p, program: x}\n" + strings.Repeat("- *p\n", many),
		"keys of a program":   "programs:\n- {" + each("k%d: 1, ") + "}",
		"names of labels":     "labels:\n" + each("  %d: x\n"),
		"names of metrics":    "programs:\n- {name: p, program: x, maps: {" + each("m%d: {metric: A}, ") + "}}",
		"secrets without end": "otlp: {endpoint: 'http://x', headers: {" + each("h%d: '${file:/nowhere}', ") + "}}",
	} {
		got := loaded(t, name, text)
		if want := fmt.Sprintf("\nand %d more mistakes", many-mostMistakes); !strings.HasSuffix(got, want) || name != "the same program" && strings.Count(got, "\ntrace.yaml:") != mostMistakes-1 {
			t.Errorf("%s: got %.3000s … %s, want %s", name, got, got[max(0, len(got)-100):], want)
		}
	}
}

// Nothing grows beyond what is read: aliases are not copied, and what is deep or long is refused or bounded.
func TestHostileYAML(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	for name, test := range map[string]struct{ text, want string }{
		"a billion laughs":   {bomb, `the configuration has no key "a"`},
		"laughs of programs": {strings.Replace(bomb, "z: ", "programs: ", 1), `the configuration has no key "a"`},
		"deep lists":         {strings.Repeat("[", maxFile/2), "this is not YAML"},
		"deep mappings":      {strings.Repeat("{a: ", maxFile/8), "this is not YAML"},
		"a long key":         {`"` + strings.Repeat("k", maxFile-10) + `": 1`, `the configuration has no key "` + strings.Repeat("k", 100) + "…"},
		"a long name":        {"programs: [{name: " + strings.Repeat("N", maxFile-100) + "}]", "cannot be the name of a program"},
		"many anchors":       {strings.Repeat("- &a x\n", maxFile/8), "trace.yaml:1:"},
	} {
		if got := loaded(t, name, test.text); !strings.Contains(got, test.want) || len(got) > 50_000 {
			t.Errorf("%s: %d bytes, %.1000s\nwant %s", name, len(got), got, test.want)
		}
	}
}

// Files that have no end, or whose bytes never come, are given up, wherever the configuration names them.
func TestFilesWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		fifo: "fifo is not a file", "/dev/zero": "/dev/zero is not a file", dir: "is not a file", "/proc/kcore": "at most 4 are read", "/proc/kmsg": "",
	} {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		for _, text := range []string{"otlp: {endpoint: 'http://x', headers: {a: '${file:" + file + "}'}}", "programs: [{name: x, file: " + file + "}]"} {
			if got := loaded(t, file, text); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
	sparse := filepath.Join(dir, "sparse.yaml")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.HasSuffix(err.Error(), "sparse.yaml has 1048576 MiB, at most 4 are read") {
		t.Error(err)
	}
}

// A folder, and all files together, have limits.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("other%d", i)] = ""
	}
	files["a.yaml"] = "listen: 127.0.0.1:1"
	write(t, dir, files)
	if c, err := Load(dir); err != nil || c.Listen != "127.0.0.1:1" {
		t.Errorf("%v, %v", c, err)
	}
	files = map[string]string{}
	for i := range maxFiles {
		files[fmt.Sprintf("%d.yaml", i)] = ""
	}
	write(t, dir, files)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "has more than 1000 *.yaml: put several programs into a file") {
		t.Error(err)
	}
	dir = t.TempDir()
	large := strings.Repeat("#", maxFile)
	write(t, dir, map[string]string{"a.yaml": large, "b.yaml": large, "c.yaml": large, "d.yaml": large})
	if _, err := Load(dir); err != nil {
		t.Error(err)
	}
	write(t, dir, map[string]string{"e.yaml": "#"})
	if _, err := Load(dir); err == nil || !strings.HasSuffix(err.Error(), "e.yaml is too much: at most 16 MiB are read of all files together") {
		t.Error(err)
	}
}
