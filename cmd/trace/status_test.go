package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Of several outcomes the program's own decides, and what failed decides over all.
func TestExitStatus(t *testing.T) {
	failure := errors.New("disk full")
	for _, test := range []struct {
		err  error
		want int
		says string
	}{
		{nil, exitOK, ""},
		{errLost, exitLost, ""},
		{outcome{byProgram, 0}, exitOK, ""},
		{errors.Join(errLost, outcome{byProgram, 0}), exitOK, ""},
		{errors.Join(outcome{byProgram, 7}, errors.Join(errLost, nil)), 7, ""},
		{errors.Join(outcome{byProgram, 7}, fmt.Errorf("-o: %w", failure), errLost), exitFailed, "trace: -o: disk full\n"},
		{usagef("no program"), exitUsage, "trace: no program\n"},
	} {
		var said strings.Builder
		if got := exitStatus(streams{err: &said}, test.err); got != test.want || said.String() != test.says {
			t.Errorf("%v: status %d, %q", test.err, got, said.String())
		}
	}
}

// statusOf runs a command line, which has to end by itself.
func statusOf(t *testing.T, args ...string) int {
	t.Helper()
	status := make(chan int)
	go func() { status <- runCommand(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard) }()
	select {
	case n := <-status:
		return n
	case <-time.After(30 * time.Second):
		t.Fatalf("%q does not end", args)
		return 0
	}
}

// exit(n) is the exit status, wherever it is called.
func TestExitOfRecordings(t *testing.T) {
	const rec = "../../scripts/testdata/nvme_latency.rec"
	for program, want := range map[string]int{
		"nvme:complete_rq { exit(7) }": 7,
		"nvme:complete_rq { exit() }":  0,
		"begin { exit(8) }":            8,
		"begin { print(1) }":           0,
		"end { exit(9) }":              9,
		"nvme:complete_rq { @++; exit(2) } end { exit(@ == 1 ? 10 : 1) }": 10,
		"nvme:complete_rq { exit(3) } end { exit() }":                     3,
		"interval:ms:100 { exit(11) }":                                    11,
		"nvme:complete_rq { exit(bytes - 4096 + 12) }":                    12,
		"nvme:complete_rq { exit(pid > 0) }":                              1,
		"nvme:complete_rq { exit(-4) }":                                   exitUsage,
		"nvme:complete_rq / zone_action == nil / { exit(zone_action) }":   1,
	} {
		if got := statusOf(t, "-q", "-r", rec, program); got != want {
			t.Errorf("%s: exit status %d, want %d", program, got, want)
		}
	}
}

// The same, live: in the kernel and in user space. A program that waits for nothing ends by itself.
func TestExitLive(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	for _, test := range []struct {
		program string
		want    int
	}{
		{"begin { print(1) }", 0},
		{"BEGIN { @ = 1 } END { print(2) }", 0},
		{"begin { exit(3) } interval:1h { }", 3},
		{"end { exit(4) }", 4},
		{"i:ms:10 { exit(5) }", 5},
		{"syscall:enter { exit(6) }", 6},
		{"syscall:exit / ret >= 0 / { $x = 7; if (pid > 0) { @[comm] = count(); exit($x) } }", 7},
		{"syscall:exit { exit(ret == nil ? 1 : 256 + 8) }", 8},
		// By thread: two threads of a process may both add before one of them reads.
		{"syscall:enter { @calls[tid]++; exit(@calls[tid] + 8) }", 9},
		{"syscall:enter / false / { print(1) }", 0},
	} {
		for _, engine := range []string{"--no-kernel=false", "--no-kernel"} {
			if got := statusOf(t, "-q", engine, test.program); got != test.want {
				t.Errorf("%s %s: exit status %d, want %d", engine, test.program, got, test.want)
			}
		}
	}
	// As a process of its own: with -c trace starts itself.
	command := exec.Command("trace", "-q", "-c", "sleep 0.2", "begin { @ = nsecs } end { exit(nsecs - @ > 200ms ? 20 : 1) }")
	if err := command.Run(); command.ProcessState.ExitCode() != 20 {
		t.Errorf("the command was not waited for: %v", err)
	}
}

// -n counts the events that are printed, in the kernel and in user space, live and of recordings.
func TestCount(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	const clauses = `%[1]s { @ = count() } %[1]s { if (pid >= 0) { printf("line\n") } } end { clear(@) }`
	for _, args := range [][]string{
		{"-r", "../../scripts/testdata/nvme_latency.rec", fmt.Sprintf(clauses, "nvme:complete_rq")},
		{fmt.Sprintf(clauses, "syscall:exit")},
		{"--no-kernel", fmt.Sprintf(clauses, "syscall:exit")},
	} {
		var out strings.Builder
		runCommand(t.Context(), append([]string{"-q", "-n", "5"}, args...), strings.NewReader(""), &out, io.Discard)
		if n := strings.Count(out.String(), "line\n"); n != 5 {
			t.Errorf("%q: %d lines:\n%s", args, n, out.String())
		}
	}
}
