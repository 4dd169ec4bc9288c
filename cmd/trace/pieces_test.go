package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// brokenUp are programs whose output of one event takes several records, because the kernel decides in between.
var brokenUp = map[string]string{
	"an if between":       `{ printf("%d ", tid); if (tid % 2 == 0) { printf("even ") } else { printf("odd ") } printf("end %d\n", tid) }`,
	"an if at the end":    `{ printf("%d", tid); @ = tid; if (tid % 2 == 0) { printf(" even") } printf(" end %d", tid); if (tid >= 0) { printf("\n") } }`,
	"a return":            `{ printf("%d ", tid); if (tid % 2 == 0) { printf("even end %d\n", tid); return } @ = tid; printf("odd end %d\n", tid) }`,
	"a loop with a break": `{ printf("%d ", tid); for ($i : 0..4) { if ($i == 2) { break } printf("%d ", $i) } printf("end %d\n", tid) }`,
	"all after the last":  `{ for ($i : 0..2) { if ($i == 0) { printf("%d ", tid) } else { printf("end %d\n", tid) } } }`,
}

var whole = regexp.MustCompile(`^([0-9]+) ?(odd|even|0 1)? ?end ([0-9]+)$`)

// TestOutputOfAnEventStaysTogether traces two processes at once: of no event the output comes into another's.
func TestOutputOfAnEventStaysTogether(t *testing.T) {
	requireLive(t)
	const calls = 3000
	command := fmt.Sprintf("sh -c 'helper %d & helper %[1]d; wait'", calls)
	for name, body := range brokenUp {
		t.Run(name, func(t *testing.T) {
			program := `config = { print_maps_on_exit = false } syscall:enter / comm == "helper" && nr == getppid / ` + body
			lines := linesOf(t, "trace", "--strict", "-c", command, program)
			if len(lines) != 2*calls {
				t.Errorf("%d lines, want %d", len(lines), 2*calls)
			}
			for _, line := range lines {
				if m := whole.FindStringSubmatch(line); m == nil || m[1] != m[3] {
					t.Errorf("%q is not of one event", line)
					break
				}
			}
			if lines := linesOf(t, "trace", "-n", "3", "-c", command, program); len(lines) != 3 {
				t.Errorf("-n 3 prints %q", lines)
			}
		})
	}
}

var lostEvents = regexp.MustCompile(`lost ([0-9]+) of ([0-9]+) syscall:enter events`)

// TestEventsAreLostWhole traces more than there is room for: an event is printed as a whole, or is counted as lost, once.
func TestEventsAreLostWhole(t *testing.T) {
	requireLive(t)
	const calls = 20000
	for name, body := range brokenUp {
		t.Run(name, func(t *testing.T) {
			program := `config = { print_maps_on_exit = false } syscall:enter / comm == "helper" && nr == getppid / ` + body
			lines, report := linesAndReport(t, "trace", "--buffer-size", "4KiB", "-c", fmt.Sprintf("helper %d", calls), program)
			for _, line := range lines {
				if m := whole.FindStringSubmatch(line); m == nil || m[1] != m[3] {
					t.Errorf("%q is not of one event", line)
					break
				}
			}
			all := lostEvents.FindAllStringSubmatch(report, -1)
			if len(all) == 0 {
				t.Fatalf("nothing is lost: %s", report)
			}
			m := all[len(all)-1]
			if lost, _ := strconv.Atoi(m[1]); lost+len(lines) != calls || m[2] != strconv.Itoa(calls) {
				t.Errorf("%d lines of %d events; %s", len(lines), calls, m[0])
			}
		})
	}
}

// The record of an exit() that finds no room leaves the program waiting no longer than a second.
func TestEndsAfterLostExit(t *testing.T) {
	requireLive(t)
	began := time.Now()
	_, report := linesAndReport(t, "trace", "--buffer-size", "4KiB", "-c", "sleep 60",
		`syscall:enter / pid == cpid && nr in [nanosleep, clock_nanosleep] / { for ($i : 0..120) { printf("%d %s %d %d\n", $i, comm, arg0, arg1) } exit() }`)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v to end", took)
	}
	if !strings.Contains(report, "lost 1 of 1 syscall:enter events") {
		t.Errorf("the record found room: %s", report)
	}
}

func linesOf(t *testing.T, command ...string) []string {
	t.Helper()
	lines, _ := linesAndReport(t, command...)
	return lines
}

// linesAndReport returns the lines and the report of a command.
func linesAndReport(t *testing.T, command ...string) (lines []string, report string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, &errors)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), errors.String()
}
