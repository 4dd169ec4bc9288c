package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// bpftraceVersion is the bpftrace that the programs are compared with.
const bpftraceVersion = "v0.27.1"

// inBpftraceRoot runs a command in the root file system that `.ci/setup bpftrace` installs, with what bpftrace needs of this machine.
const inBpftraceRoot = `
	root=$1
	shift
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount --bind /proc "$root/proc"
	mountpoint -q "$root/sys/kernel/tracing" || mount -t tracefs tracefs "$root/sys/kernel/tracing"
	exec chroot "$root" bpftrace "$@"`

// bpftraceCommand returns the command of that bpftrace. It skips the test if there is none that runs, or if it is another version: Debian
// sid moves on.
func bpftraceCommand(t *testing.T) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("needs a cache folder, where .ci/setup installs bpftrace: %v", err)
	}
	root := filepath.Join(cache, "trace-bench", "bpftrace")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/bpftrace")); err != nil {
		t.Skipf("bpftrace is not installed (.ci/setup bpftrace does so): %v", err)
	}
	command := []string{"unshare", "--mount", "--propagation", "private", "bash", "-euc", inBpftraceRoot, "bpftrace", root}
	version, err := exec.Command(command[0], append(command[1:], "--version")...).CombinedOutput()
	if err != nil {
		t.Skipf("bpftrace does not run here: %v: %s", err, version)
	}
	if !strings.Contains(string(version), bpftraceVersion) {
		t.Skipf("the comparison is with %s, and %s has %s", bpftraceVersion, root, version)
	}
	return command
}

// same is a program that prints the same in both. Lines of its data and of its messages are compared.
type same struct{ row, program string }

// timed begins the names of rows with programs that read a clock: between the two runs it may go past what they round to.
const timed = "timed: "

// tries returns how often a program may run until both print the same.
func (s same) tries() int {
	if strings.HasPrefix(s.row, timed) {
		return 3
	}
	return 1
}

// readSame reads the table of programs: a line that begins with # names the row of a feature, and each other line is a program.
func readSame(t *testing.T, name string) (all []same) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	row := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if after, is := strings.CutPrefix(line, "# "); is {
			row = after
		} else if line != "" {
			all = append(all, same{row, line})
		}
	}
	return all
}

var (
	// placedMessage is a message with its place; unplaced ones about the host are not of the program.
	placedMessage = regexp.MustCompile(`^\S+?:\d+:\d+(-\d+)?: ((WARNING|ERROR): .*)`)
	isMessage     = regexp.MustCompile(`^ERROR: `)
)

// warningsOf returns the warnings and errors of a program without their place, which the two write differently. Messages of
// bpftrace about its own library are left out.
func warningsOf(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "stdlib/") && strings.Contains(line, "WARNING") || strings.Contains(line, "expanded from") {
			continue
		}
		line = strings.TrimSuffix(strings.TrimSpace(line), ".")
		if placed := placedMessage.FindStringSubmatch(line); placed != nil {
			all = append(all, placed[2])
		} else if isMessage.MatchString(line) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// beforeMaps are the empty lines that bpftrace prints when a program ends.
const beforeMaps = "\n\n\n"

// run runs a command to its end, which the program has to bring about. The exit status is one of its messages.
func (s same) run(t *testing.T, command ...string) (data, messages string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		t.Errorf("%s: %q does not end", s.row, command)
	}
	data = strings.Trim(strings.ReplaceAll(out.String(), beforeMaps, "\n"), "\n")
	messages = fmt.Sprintf("%sexit status %d", warningsOf(errs.String()), cmd.ProcessState.ExitCode())
	return timeOfDay.ReplaceAllStringFunc(data, sameTime), messages
}

// timeOfDay is the time in a plot.
var timeOfDay = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d(\.\d+)? `)

// sameTime replaces the digits of a time.
func sameTime(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, text)
}

// TestSameTextAsBpftrace runs each program of testdata/bpftrace.txt in bpftrace and in trace and compares what they print.
func TestSameTextAsBpftrace(t *testing.T) {
	requireLive(t)
	command := bpftraceCommand(t)
	for _, s := range readSame(t, "testdata/bpftrace.txt") {
		t.Run(s.row, func(t *testing.T) { s.compare(t, command) })
	}
}

// compare runs the program in both. A program that reads no clock runs beside others: bpftrace needs a second for most.
func (s same) compare(t *testing.T, bpftrace []string) {
	if s.tries() == 1 {
		t.Parallel()
	}
	var want, wantMessages, got, gotMessages string
	for range s.tries() {
		want, wantMessages = s.run(t, slices.Concat(bpftrace, []string{"-e", s.program})...)
		if got, gotMessages = s.run(t, "trace", "-e", s.program); got == want && gotMessages == wantMessages {
			return
		}
	}
	t.Errorf("%s prints\n%s\n%s\nand bpftrace\n%s\n%s", s.program, got, gotMessages, want, wantMessages)
}

// The examples of bpftrace's manuals print the same in both.
func TestManualSameAsBpftrace(t *testing.T) {
	requireLive(t)
	command := bpftraceCommand(t)
	text, err := os.ReadFile("testdata/bpftrace_manual.txt")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(text), "\n== ")[1:]
	if len(examples) < 20 {
		t.Errorf("only %d examples", len(examples))
	}
	for _, example := range examples {
		name, program, _ := strings.Cut(example, "\n")
		t.Run(name, func(t *testing.T) { same{name, program}.compare(t, command) })
	}
}

// trialColour is what bpftrace also writes into a pipe.
var trialColour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// trialText is what differs between two runs of a test or a benchmark: times, and how often it ran.
var trialText = regexp.MustCompile(`\(\d+ (ns|μs|ms|s)\)|(?m) \d+ +\d+$|"(duration|average|iters)": ?\d+`)

// messagePlace is the place of a message, which bpftrace writes with the line of its library.
var messagePlace = regexp.MustCompile(`(?m)^(stdlib/\S+|stdin|program):\S+ (ERROR: .*)\n(\S+ ERROR: expanded from\n.*\n *~+\n)?`)

// Tests and benchmarks print the same in both, and end with the same status.
func TestSameTrialsAsBpftrace(t *testing.T) {
	command := bpftraceCommand(t)
	for _, args := range [][]string{
		{"--test", "-e", `test:one { return 0 } test:b { return -1 } test:c { exit() } test:d { return 256 } test:e { return 4294967296 }`},
		{"--test", "-e", `test:one { print("hidden") } test:two, test:three / pid != 0 / { print((probe, probetype)); printf("\nx\n"); return 2 } end { print("end") }`},
		{"--test", "-e", `test:a { @ = 5; print(@); assert(@ == 6, "no 6"); } interval:ms:1 { print("never") }`},
		{"--test", "-e", `test:a { exit(1) }`},
		{"--test", "-e", `test:a-b { @ = 1; } end { print(@) }`},
		{"--test", "-f", "json", "-e", `test:a { return 2 } test:b { @ = 1; }`},
		{"--bench", "-e", `bench:a { @ = count(); } bench:skipped { return 1 } bench:wrong { errorf("x"); } bench:c { exit() } test:d { return 1 }`},
		{"--bench", "-f", "json", "-e", `bench:a { @[1] = count(); }`},
		{"-e", `test:a { @ = count(); } bench:b { @x = 1; } begin { print(1); exit() }`},
	} {
		var printed [2]string
		var status [2]int
		for i, command := range [][]string{command, {"trace"}} {
			cmd := exec.Command(command[0], append(command[1:], args...)...)
			out, err := cmd.Output()
			var failed *exec.ExitError
			if err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			text := trialText.ReplaceAllString(trialColour.ReplaceAllString(string(out), ""), "TIME")
			text = messagePlace.ReplaceAllString(text, "$2\n")
			text = strings.ReplaceAll(text, ": ", ":")
			printed[i], status[i] = strings.ReplaceAll(strings.TrimRight(text, "\n"), ", ", ","), cmd.ProcessState.ExitCode()
		}
		if printed[0] != printed[1] || status[0] != status[1] {
			t.Errorf("%q: trace prints, with status %d,\n%s\nand bpftrace with status %d\n%s", args, status[1], printed[1], status[0], printed[0])
		}
	}
}
