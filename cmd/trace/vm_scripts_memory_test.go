//go:build vm

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// oomkill has a line for each victim of the kernel's log, with the cgroup whose limit was reached.
func TestVMScriptOomkill(t *testing.T) {
	sh(t, "dmesg -C")
	trace := start(t, "oomkill")
	exhaustMemory(t)
	lines := strings.Join(printed(trace.stop(t)), "")
	victims := map[string]bool{}
	for _, m := range killedLine.FindAllStringSubmatch(sh(t, "dmesg"), -1) {
		victims[m[2]+"/"+m[1]] = true
	}
	for victim := range victims {
		if n := strings.Count(lines, " killed "+victim+" in /small/"); n != 1 {
			t.Errorf("%d lines about %s:\n%s", n, victim, lines)
		}
	}
	if n := strings.Count(lines, "\n"); n != len(victims) || n != 5 || strings.Count(lines, "by its own limit of 16MiB") != 4 {
		t.Errorf("%v were killed:\n%s", victims, lines)
	}
}

// reclaim counts for a cgroup what the kernel counts in its memory.events.
func TestVMScriptReclaim(t *testing.T) {
	trace := start(t, "reclaim", "--interval=1000")
	reachLimits(t)
	seen := map[string]int64{}
	for _, e := range trace.stop(t) {
		rows, _ := e.at("entries").([]any)
		for _, row := range rows {
			row := jsonEvent(row.(map[string]any))
			if e.text("name") == "@reclaim" {
				seen[regexp.MustCompile(`/\w+`).FindString(fmt.Sprint(row["key"]))] = row.num(t, "count")
			}
		}
	}
	for _, path := range []string{"/limited", "/high"} {
		if n := int64(memoryEvent(t, path, "max") + memoryEvent(t, path, "high")); n == 0 || seen[path] != n {
			t.Errorf("%s: %v, the kernel counts %d", path, seen, n)
		}
	}
}

// registerInLimit registers 8 MiB where files have all memory of a cgroup, and returns how often the kernel counts that its limit was reached.
func registerInLimit(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "register")
	sh(t, "gcc -Wall -Werror -O2 -o %s testdata/vm/register.c -libverbs", program)
	memoryCgroup(t, "/limited", map[string]string{"memory.max": "24M"})
	// The pages of a disk go when nobody has it open.
	return strings.TrimSpace(sh(t, `echo $$ >/sys/fs/cgroup/limited/cgroup.procs; exec 3</dev/nvme0n1; dd of=/dev/null bs=1M count=64 status=none <&3
		exec %s 8388608 /sys/fs/cgroup/limited/memory.events`, program))
}

// reg_mr counts what a registration reclaims as the kernel does.
func TestVMScriptRegMr(t *testing.T) {
	trace := start(t, "reg_mr", "--longer=1us")
	reached := registerInLimit(t)
	events, lost := trace.stopAll(t) // a fault that is in progress at the start or at the end counts as lost
	lines := strings.Join(printed(events), "")
	m := regexp.MustCompile(` rxe0 register/\d+ registered 8MiB in .*, reclaim \S+ in (\d+) times`).FindStringSubmatch(lines)
	if m == nil || m[1] != reached || reached == "0" || lost["memory:reclaim"]+lost["ib:reg_mr"] > 0 {
		t.Errorf("the limit was reached %s times, in\n%s%v were lost", reached, lines, lost)
	}
}
