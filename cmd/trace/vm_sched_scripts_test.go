//go:build vm

package main

import (
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// about reports whether a duration as text, like 1.23ms, is so many ns, as exactly as it is written.
func about(t *testing.T, text string, ns uint64) bool {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return math.Abs(float64(d)-float64(ns)) <= max(float64(ns)/100, 10)
}

// startExample starts a script with the flags of its example.
func startExample(t *testing.T, script string) *recorder {
	t.Helper()
	return startCommand(t, exec.Command("trace", exampleArgs(t, script)...))
}

// The waits of a cgroup, how many and how long in total, are what schedstat counts.
func TestVMScriptRunqlat(t *testing.T) {
	pid, wake := startIn(t, cgroupFolder(t, "waits"), "cat")
	trace := startExample(t, "runqlat")
	before := schedstatOf(t, pid)
	for range 100 {
		fmt.Fprint(wake, ".")
		time.Sleep(2 * time.Millisecond)
	}
	var after schedstat
	waitUntil(t, "the task sleeps", func() bool {
		last := after
		time.Sleep(100 * time.Millisecond)
		after = schedstatOf(t, pid)
		return after == last
	})
	trace.interrupt(t)
	out := trace.wrote(t)
	m := regexp.MustCompile(`(?m)^/waits: (\d+) waits, (\S+) in total, (\S+) on average, \S+ at most.*\n  p50 \S+, p90 \S+, p99 \S+, p99.9 \S+$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("it printed %q", out)
	}
	if waits := after.waits - before.waits; m[1] != fmt.Sprint(waits) || !about(t, m[2], after.delay-before.delay) {
		t.Errorf("%s, the kernel counts %d waits of %d ns", out, waits, after.delay-before.delay)
	}
}

// A write that a disk holds back is off the CPU, at least as long as the kernel's log has it blocked; the script about hung tasks prints what
// the log has. A task that sleeps because it has nothing to do is in neither.
func TestVMScriptOffcpu(t *testing.T) {
	offcpu, all, hung := startExample(t, "offcpu"), start(t, "offcpu", "--all", "--comm", "sleep"), startExample(t, "hung")
	sh(t, "sleep 1.5")
	pid := hang(t, 2)
	for _, tr := range []*recorder{offcpu, hung} {
		tr.interrupt(t)
	}
	want := loggedHung(t, pid)
	var got []string
	for _, m := range regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ dd/%d blocked for (\S+) for a device cgroup=/$`, pid)).FindAllStringSubmatch(hung.wrote(t), -1) {
		d, err := time.ParseDuration(m[1])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(int(d.Seconds())))
	}
	if !slices.Equal(got, want) || want == nil || strings.Count(hung.wrote(t), "file_write_and_wait_range") < len(want) {
		t.Errorf("%s\nthe kernel's log has %v", hung.wrote(t), want)
	}
	m := regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ dd/%d off the CPU for (\S+): blocked for \S+ \(UNINTERRUPTIBLE, for a device\), ready for \S+, woken by an interrupt cgroup=/\n(.*\n)*? +file_write_and_wait_range`, pid)).
		FindStringSubmatch(offcpu.wrote(t))
	if m == nil {
		t.Fatalf("it printed %s", offcpu.wrote(t))
	}
	atLeast, _ := time.ParseDuration(want[len(want)-1] + "s")
	if d, err := time.ParseDuration(m[1]); err != nil || d < atLeast || strings.Count(offcpu.wrote(t), "off the CPU") != 1 {
		t.Errorf("%v: %s, the log has %v s", err, offcpu.wrote(t), want)
	}
	if lines := printed(all.stop(t)); !strings.Contains(strings.Join(lines, ""), "(INTERRUPTIBLE)") {
		t.Errorf("a task that sleeps: %q", lines)
	}
}

// A cgroup waits for another one that keeps the CPUs busy, and its quota holds it up for as long as its cpu.stat has.
func TestVMScriptNoisy(t *testing.T) {
	limited(t, "victim", 5000)
	trace := startCommand(t, exec.Command("trace", "noisy", "--interval=600", "--cgroup", "/victim")) // one report, however slow the machine
	disturb(t)
	trace.interrupt(t)
	out := trace.wrote(t)
	m := regexp.MustCompile(`(?m)^/victim: waited \S+ for .*/batch \d+%.*; throttled for (\S+), \d+ times\n  p50 `).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("it printed %q", out)
	}
	var us uint64
	if _, err := fmt.Sscan(sh(t, "sed -n 's/throttled_usec //p' /sys/fs/cgroup/victim/cpu.stat"), &us); err != nil || !about(t, m[1], 1000*us) {
		t.Errorf("%v: %s, the kernel counts %d us", err, out, us)
	}
}

// disturb lets a cgroup work while another one keeps the CPUs busy.
func disturb(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		keepBusy(t, cgroupFolder(t, "batch"), 4, 3)
		close(done)
	}()
	keepBusy(t, "/sys/fs/cgroup/victim", 1, 2)
	<-done
}
