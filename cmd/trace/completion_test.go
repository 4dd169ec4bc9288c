//go:build !vm

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shellsOf are the shells, and how they begin without the user's settings, with the completion script in the file "completion".
var shellsOf = map[string][]string{
	"bash": {"bash", "--noprofile", "--rcfile", "completion", "-i"},
	"zsh":  {"zsh", "-f", "-i"},
	"fish": {"fish", "--no-config", "-i"},
}

// The Tab key completes each word of a program inside quotes. The program has a mistake, so trace repeats it.
func TestCompletionInQuotes(t *testing.T) {
	for shell, args := range shellsOf {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("%v: .ci/setup shells installs it", err)
			}
			dir := t.TempDir()
			script, err := exec.Command("trace", "completion", shell).Output()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "completion"), script, 0o666); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
			x := openProgram(t, cmd, dir, "xterm", 200)
			switch shell {
			case "zsh":
				x.send("autoload -U compinit && compinit -u -D && . ./completion" + enter)
			case "fish":
				x.send("source completion" + enter)
			}
			x.send("echo rea''dy" + enter)
			x.expect(`ready`)
			x.send("trace 'qp.sta" + tab)
			x.expect(`sta[^ ]*te`)
			x.send(" == RES" + tab)
			x.expect(`RES[^ ]*ET`)
			x.send(" && lat" + tab)
			x.expect(`lat[^ ]*ency`)
			x.send(" > 1ms && x'" + enter)
			x.expect(`(?m)^    qp\.state == RESET && latency > 1ms && x$`)
		})
	}
}

// doctor completes what it can be asked about, and nothing behind that.
func TestDoctorCompletes(t *testing.T) {
	for _, test := range []struct{ before, begun, want string }{
		{"", "ver", "verbs"}, {"", "nvme:comp", "nvme:complete_rq"}, {"", "nvme_lat", "nvme_latency"}, {"nvme:*", "ver", ""},
	} {
		args := append([]string{cobra.ShellCompNoDescRequestCmd, "doctor"}, strings.Fields(test.before)...)
		out, err := exec.Command("trace", append(args, test.begun)...).Output()
		lines := strings.Split(string(out), "\n")
		if err != nil || test.want != "" && !slices.Contains(lines, test.want) || test.want == "" && slices.Contains(lines, "verbs") {
			t.Errorf("doctor %s %s: %v, %q", test.before, test.begun, err, out)
		}
	}
}

// The Tab key of bash completes commands, probes and flags without the package bash-completion, which --norc leaves out.
func TestCompletionWithoutPackage(t *testing.T) {
	dir := t.TempDir()
	script, err := exec.Command("trace", "completion", "bash").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "completion"), script, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-i")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	x := openProgram(t, cmd, dir, "xterm", 200)
	x.send("unset -f _init_completion _get_comp_words_by_ref; . ./completion; echo rea''dy" + enter)
	x.expect(`ready`)
	for _, test := range []struct{ typed, want string }{
		{"trace nvme_la", `trace nvme_la[^ ]*tency`},
		{"trace nvme:complete", `nvme:complete[^ ]*_rq`},
		{"trace rdma_top --inter", `--inter[^ ]*val`},
		{"trace -f fold", `-f fold[^ ]*ed`},
		{"trace --format=fold", `--format=fold[^ ]*ed`},
	} {
		x.send(test.typed + tab)
		x.expect(test.want)
		x.send("\x15") // removes the line
	}
	x.send("echo en''d" + enter)
	if got := x.expect(`end`); strings.Contains(got, "not found") {
		t.Error(got)
	}
}
