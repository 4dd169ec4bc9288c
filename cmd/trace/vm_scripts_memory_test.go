//go:build vm

package main

import (
	"fmt"
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
