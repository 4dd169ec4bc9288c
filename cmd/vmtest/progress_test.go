package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// A machine is a folder of programs that .ci/demo and .ci/setup find, some of them stand-ins. Nothing is installed or downloaded.
type machine struct {
	*testing.T
	dir string
}

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir()}
	for _, name := range strings.Fields("bash cat cut date dirname env grep head mkdir mktemp printf rm sed sort stty tail tee true") {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.program("id", "echo 1000")
	m.program("sudo", `[ "$1" != -n ] || shift; exec "$@"`)
	m.program("dpkg-query", `case $* in *" git" | *" ca-certificates") printf installed ;; esac`) // what a clone needs
	m.program("apt-get", `echo "$*" >>"$HOME/apt"; [ "$1" = update ] || { echo "no such mirror"; exit 100; }`)
	return m
}

func (m machine) program(name, script string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		m.Fatal(err)
	}
}

func (m machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "../.."
	cmd.Env = []string{"PATH=" + m.dir, "HOME=" + m.dir, "VMTEST_CACHE=" + filepath.Join(m.dir, "kernels")}
	return cmd
}

const threeSteps = `set -euo pipefail; . .ci/lib
	step "a quiet one" sleep 3
	step "one that speaks" sh -c "echo first; sleep 1.5; echo second; sleep 1.5"
	step "one that fails" sh -c "echo the reason; exit 3"`

// A log has a line for each step, and the output of the one that fails.
func TestStepsInLog(t *testing.T) {
	m := newMachine(t)
	m.program("sleep", "")
	m.program("sh", `exec /bin/sh "$@"`)
	out, err := m.command("bash", "-c", threeSteps).CombinedOutput()
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failed.ExitCode() != 3 {
		t.Errorf("got error %v", err)
	}
	want := regexp.MustCompile(`^\[ +\d+ s\] a quiet one\n\[ +\d+ s\] one that speaks\n\[ +\d+ s\] one that fails\nthe reason\n$`)
	if !want.Match(out) {
		t.Errorf("got %q", out)
	}
}

// A terminal sees that a step goes on, and what it wrote last.
func TestStepsAtTerminal(t *testing.T) {
	cmd := exec.Command("bash", "-c", threeSteps)
	cmd.Dir = "../.."
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 45})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var out bytes.Buffer
	io.Copy(&out, terminal) // it ends with EIO
	cmd.Wait()
	for _, want := range []string{`a quiet one, [12] s\r.*a quiet one, \d+ s\r\n`, `one that speaks, \d s: first\r.*one that speaks, [1-9] s: second\r`, `\r\nthe reason\r\n$`} {
		if !regexp.MustCompile(`(?s)` + want).Match(out.Bytes()) {
			t.Errorf("no %s in %q", want, &out)
		}
	}
	for drawn := range strings.SplitSeq(out.String(), "\r\x1b[K") {
		if line, _, _ := strings.Cut(drawn, "\r\n"); len(line) >= 45 {
			t.Errorf("%q does not fit into the line", line)
		}
	}
}
