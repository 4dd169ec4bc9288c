package main

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
	command := "sh -c 'helper " + strconv.Itoa(calls) + " & helper " + strconv.Itoa(calls) + "; wait'"
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

func linesOf(t *testing.T, command ...string) []string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var report strings.Builder
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, &report)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}
