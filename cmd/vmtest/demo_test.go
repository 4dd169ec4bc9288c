package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// demo runs .ci/demo, which must fail, and returns what it printed.
func (m machine) demo() string {
	m.Helper()
	out, err := m.command("bash", ".ci/demo", "vm").CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		m.Fatalf("got error %v\n%s", err, out)
	}
	return string(out)
}

// installed is what apt-get was told to install.
func (m machine) installed() []string {
	_, after, _ := strings.Cut(readText(filepath.Join(m.dir, "apt")), "\ninstall ")
	return slices.DeleteFunc(strings.Fields(after), func(word string) bool { return strings.ContainsAny(word[:1], "-D") })
}

// The demo announces all that it will download before it does anything: the packages that it then installs, Go, the kernel, and the sum,
// which README has, too.
func TestDemoAnnouncesWhatItInstalls(t *testing.T) {
	m := newMachine(t)
	out := m.demo()
	announced, rest, _ := strings.Cut(out, "\n[")
	_, packages, _ := strings.Cut(announced, "packages, by apt-get as root: ")
	packages, _, _ = strings.Cut(packages, "\n")
	installed := m.installed()
	if !slices.Equal(strings.Fields(packages), installed) || !slices.Contains(installed, "golang-go") || !slices.Contains(installed, "ibverbs-utils") {
		t.Errorf("announced %q, installed %q:\n%s", packages, installed, out)
	}
	if !strings.HasSuffix(rest, "no such mirror\n") {
		t.Errorf("the reason for the failure is not last: %s", rest)
	}
	sum := 0
	parts := regexp.MustCompile(`(?m)^ +(\d+) MB  (packages|Go|Linux)`).FindAllStringSubmatch(announced, -1)
	for _, part := range parts {
		n, err := strconv.Atoi(part[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	takes := regexp.MustCompile(fmt.Sprintf(`It takes (about \d+ minutes) .* downloads about %d MB:`, sum)).FindStringSubmatch(announced)
	if len(parts) != 3 || takes == nil {
		t.Fatalf("%d parts with %d MB in all:\n%s", len(parts), sum, announced)
	}
	if want := fmt.Sprintf("%s and %d MB", takes[1], sum); !strings.Contains(readText("../../README.md"), want) {
		t.Errorf("README.md does not have %q", want)
	}
	for _, tool := range neededTools(options{kernel: kernel{name: "6.12", arch: "amd64"}}, false) {
		if !slices.Contains([]string{"apt", "dpkg"}, tool.pkg) && !slices.Contains(installed, tool.pkg) {
			t.Errorf("vmtest needs %s, which is not installed", tool.pkg)
		}
	}
}

// What is there is neither announced nor installed.
func TestDemoWithAllInstalled(t *testing.T) {
	m := newMachine(t)
	m.program("dpkg-query", "printf installed")
	m.program("go", `case $1 in env) echo go1.99 ;; build) echo "no compiler"; exit 1 ;; esac`)
	if err := os.MkdirAll(filepath.Join(m.dir, "kernels/6.12/boot"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := m.demo()
	if !strings.Contains(out, "and downloads nothing\n") || !strings.HasSuffix(out, "no compiler\n") || len(m.installed()) != 0 {
		t.Errorf("installed %q:\n%s", m.installed(), out)
	}
}

// A user who may not become root is told what to have installed, and is not asked for a password where there is no terminal.
func TestDemoWithoutRoot(t *testing.T) {
	m := newMachine(t)
	m.program("sudo", `[ "$1" = -n ] || echo asked >>"$HOME/apt"; exit 1`)
	out := m.demo()
	if !strings.Contains(out, "nothing here needs root: apt-get install --no-install-recommends golang-go ") || readText(filepath.Join(m.dir, "apt")) != "" {
		t.Errorf("%s\n%s", out, readText(filepath.Join(m.dir, "apt")))
	}
}
