//go:build vm

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What was true at the start of a run changes. Each test shows first that the run sees what it should.

// mapsOf returns the last value of each map without keys of what trace has printed so far.
func (tr *recorder) mapsOf(t *testing.T) map[string]int64 {
	t.Helper()
	last := map[string]int64{}
	text, err := os.ReadFile(tr.events)
	if err != nil {
		t.Fatal(err)
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be incomplete
	for _, e := range decodeLines(t, bytes.NewReader(whole)) {
		if entries, ok := e.at("entries").([]any); ok && len(entries) == 1 {
			last[e.text("name")] = jsonEvent(entries[0].(map[string]any)).num(t, "value")
		}
	}
	return last
}

// reports waits until trace has reported something.
func (tr *recorder) reports(t *testing.T, text string) {
	t.Helper()
	tr.repeats(t, text, 1)
}

// repeats waits until trace has reported something a number of times.
func (tr *recorder) repeats(t *testing.T, text string, times int) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("waited for %q:\n%s", text, tr.messages(t))
		}
	})
	waitUntil(t, text, func() bool { return strings.Count(tr.messages(t), text) >= times })
}

// endsLosing interrupts a trace with --strict, which must report by its status that events are missing.
func (tr *recorder) endsLosing(t *testing.T) {
	t.Helper()
	if err := tr.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var status *exec.ExitError
	if err := tr.cmd.Wait(); !errors.As(err, &status) {
		t.Errorf("it ended with %v, although events are missing:\n%s", err, tr.messages(t))
	}
}

// A CPU that was offline is sampled when it comes, also for the second time; and stacks of what runs there have names.
func TestVMChangesCPUs(t *testing.T) {
	const cpu = "/sys/devices/system/cpu/cpu1/online"
	online := func(value string) { sh(t, "echo %s >%s", value, cpu) }
	t.Cleanup(func() { online("1") })
	online("0")
	trace := start(t, "--strict", "profile:99hz / cpu == 1 / { @second = count() } profile:99hz / cpu == 0 / { @first = count() } interval:500ms { print(@first); print(@second) }")
	grows := func() func() bool {
		before := trace.mapsOf(t)
		return func() bool {
			now := trace.mapsOf(t)
			return now["@first"] > before["@first"]+10 && now["@second"] > before["@second"]+10
		}
	}
	waitUntil(t, "the first CPU is sampled", func() bool { return trace.mapsOf(t)["@first"] > 10 })
	if n := trace.mapsOf(t)["@second"]; n > 0 {
		t.Errorf("%d samples of a CPU that is offline", n)
	}
	for i := range 2 {
		online("1")
		trace.repeats(t, "profile:hz: CPU 1 came online: not sampled from ", i+1)
		waitUntil(t, "both CPUs are sampled", grows())
		online("0")
	}
	trace.endsLosing(t)

	online("1")
	stacks := start(t, "profile:99hz / comm == \"spinning\" / { @[ustack(1)] = count() }")
	online("0")
	online("1")
	dir := t.TempDir()
	source := filepath.Join(dir, "spinning.c")
	if err := os.WriteFile(source, []byte("volatile long n; __attribute__((noinline)) void spin_here(void) { for (long i = 0; i < 300000000; i++) n++; } int main(void) { spin_here(); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, "cd %s; gcc -O1 -o spinning spinning.c; time taskset -c 1 ./spinning; rm spinning", dir)
	stacks.end(t)
	text, err := os.ReadFile(stacks.events)
	if err != nil || !strings.Contains(string(text), "spin_here") {
		t.Errorf("stacks of a process that ended: %v\n%s\n%s", err, text, stacks.messages(t))
	}
}

// The kernel stops clocks that tick too often for it. It lowers the limit by itself, too.
func TestVMChangesSampleRate(t *testing.T) {
	const limit = "/proc/sys/kernel/perf_event_max_sample_rate"
	before := strings.TrimSpace(sh(t, "cat %s", limit))
	t.Cleanup(func() { sh(t, "echo %s >%s", before, limit) })
	// A kernel on an emulated CPU would lower the limit by itself, as its samples take long.
	sh(t, "echo 99 >/proc/sys/kernel/perf_cpu_time_max_percent; echo %s >%s", before, limit)
	trace := start(t, "--strict", "profile:2000hz { @ = count() } interval:500ms { print(@) }")
	waitUntil(t, "samples are counted", func() bool { return trace.mapsOf(t)["@"] > 10_000 })
	if said := trace.messages(t); strings.Contains(said, "samples are missing") {
		t.Errorf("before the change:\n%s", said)
	}
	sh(t, "echo 500 >%s; (while :; do :; done) & sleep 3; kill $!", limit)
	trace.reports(t, "profile:hz: samples are missing: the kernel stops clocks that tick more often than kernel.perf_event_max_sample_rate allows, now 500 times a second, for 2000")
	trace.endsLosing(t)
}

// The clock of the machine is set an hour ahead, and back: events have the time that date shows, also in a recording, and on a replay.
func TestVMChangesClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	// The names of the processes are what date shows before them: the oracle.
	trace, record := start(t, `syscall:enter / comm startsWith "at" / { printf("%s %s\n", comm, strftime("%s", nsecs)) }`),
		startCommand(t, exec.Command("trace", "record", "-v", "-o", file, `syscall:enter / comm startsWith "at" /`))
	at := func() {
		sh(t, `name=at$(date +%%s); cp /bin/true /tmp/$name; /tmp/$name; rm /tmp/$name`)
		time.Sleep(1500 * time.Millisecond)
	}
	at()
	sh(t, "date -s @$(($(date +%%s) + 3600)) >/dev/null")
	at()
	sh(t, "date -s @$(($(date +%%s) - 7200)) >/dev/null")
	at()
	sh(t, "date -s @$(($(date +%%s) + 3600)) >/dev/null")
	trace.end(t)
	record.end(t)
	live := sh(t, "cat %s", trace.events)
	replayed := sh(t, `trace -q -r %s -f json 'syscall:enter { printf("%%s %%s\n", comm, strftime("%%s", nsecs)) }'`, file)
	for what, text := range map[string]string{"live": live, "replayed": replayed} {
		shown := map[string]bool{}
		for _, e := range decodeLines(t, strings.NewReader(text)) {
			said, ok := e["data"].(string)
			if !ok {
				continue
			}
			comm, seconds, _ := strings.Cut(strings.TrimSpace(said), " ")
			want, err := strconv.Atoi(strings.TrimPrefix(comm, "at"))
			got, err2 := strconv.Atoi(seconds)
			if err != nil || err2 != nil || got < want || got > want+60 {
				t.Errorf("%s: an event of %s has the time %s", what, comm, seconds)
			}
			shown[comm] = true
		}
		if len(shown) != 3 {
			t.Errorf("%s: events of %v", what, shown)
		}
	}
}

// A host with cgroup v1, whose tree of v2 is empty at first.
func TestVMChangesCgroups(t *testing.T) {
	const note = "cgroup v2 at /sys/fs/cgroup/unified is in use by now, but cgroups are shown as in cgroup v1: start again"
	for _, tree := range cgroupTrees {
		if tree.name != "hybrid, v2 unused" {
			continue
		}
		sh(t, "%s", tree.setUp)
		t.Cleanup(func() { sh(t, "rmdir /sys/fs/cgroup/unified/later; %s", tree.clean) })
		trace := start(t, "syscall:enter { @[cgroup] = count() } interval:500ms { print(@) }")
		time.Sleep(2 * time.Second)
		if said := trace.messages(t); strings.Contains(said, "cgroup v2") {
			t.Errorf("before the change:\n%s", said)
		}
		sh(t, "mkdir /sys/fs/cgroup/unified/later")
		trace.reports(t, note)
		trace.end(t)
	}
}

// A module that is loaded later is noted, if something of it was left out. Others are not.
func TestVMChangesModules(t *testing.T) {
	sh(t, "modprobe -r nvme_tcp nvme_fabrics 2>/dev/null || true")
	trace := start(t, "--strict", "nvme:timeout, syscall:enter { @ = count() }")
	sh(t, "modprobe loop")
	sh(t, "modprobe nvme_tcp")
	trace.reports(t, "nvme:timeout: module nvme_tcp was loaded at ")
	trace.reports(t, ", but its nvme_tcp_timeout is not traced: start again")
	if said := trace.messages(t); strings.Contains(said, "module loop") {
		t.Errorf("of a module that is not traced:\n%s", said)
	}
	trace.endsLosing(t)
}

// Kprobes have a switch, too, and those at the entries of functions depend on ftrace.
func TestVMChangesKprobes(t *testing.T) {
	const enabled = "/sys/kernel/debug/kprobes/enabled"
	hideTypes(t, "ib_core")
	const program = "ib:alloc_pd { @pds = count() } interval:500ms { print(@pds) }"
	trace := start(t, "--strict", program)
	if said := trace.messages(t); !strings.Contains(said, "kprobe") {
		t.Fatalf("not attached by kprobe:\n%s", said)
	}
	use := func() {
		sh(t, "timeout 60 ib_send_lat -d rxe0 -x 1 -n 10 & sleep 1; timeout 60 ib_send_lat -d rxe0 -x 1 -n 10 10.9.0.1; wait")
	}
	use()
	waitUntil(t, "domains are counted", func() bool { return trace.mapsOf(t)["@pds"] > 0 })
	t.Cleanup(func() { sh(t, "echo 1 >%s; sysctl -qw kernel.ftrace_enabled=1", enabled) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(sh(t, "dmesg | tail -50"))
		}
	})
	for i, change := range [][2]string{{"echo 0 >" + enabled, "echo 1 >" + enabled}, {"sysctl -qw kernel.ftrace_enabled=0", "sysctl -qw kernel.ftrace_enabled=1"}} {
		off, on := change[0], change[1]
		sh(t, "%s", off)
		trace.repeats(t, "the kernel does not run programs of ib:alloc_pd", i+1)
		before := trace.mapsOf(t)["@pds"]
		use()
		time.Sleep(time.Second)
		if after := trace.mapsOf(t)["@pds"]; after != before {
			t.Errorf("%s: %d domains were seen", off, after-before)
		}
		sh(t, "%s", on)
		trace.repeats(t, "the kernel runs programs of ib:alloc_pd again", i+1)
		use()
		waitUntil(t, "domains are counted again", func() bool { return trace.mapsOf(t)["@pds"] > before })
	}
	trace.endsLosing(t)
}

// This is the last test: on 6.12 no kprobe could be attached after it, as if ftrace had given up.
//
// While kernel.ftrace_enabled is 0, programs of functions see nothing, and programs of tracepoints do. Both are attached.
func TestVMChangesFtrace(t *testing.T) {
	const program = "vm:exit { @exits = count() } syscall:enter { @calls = count() } interval:500ms { print(@exits); print(@calls) }"
	const off, on = "the kernel does not run programs of vm:exit, so their events are missing: kernel.ftrace_enabled is 0: sysctl kernel.ftrace_enabled=1", "the kernel runs programs of vm:exit again"
	t.Cleanup(func() { sh(t, "sysctl -qw kernel.ftrace_enabled=1") })
	trace := start(t, "--strict", program)
	seen := func(what string) func() bool {
		before := trace.mapsOf(t)[what]
		return func() bool { sh(t, "true"); return trace.mapsOf(t)[what] > before }
	}
	waitUntil(t, "ends of processes are counted", seen("@exits"))
	if said := trace.messages(t); strings.Contains(said, "does not run programs") {
		t.Errorf("before the change:\n%s", said)
	}
	if out, err := exec.Command("sysctl", "-qw", "kernel.ftrace_enabled=0").CombinedOutput(); err != nil {
		// On 5.10 the switch stays on while functions are traced.
		if !strings.Contains(string(out), "Device or resource busy") || !strings.HasPrefix(sh(t, "uname -r"), "5.10.") {
			t.Fatalf("%v: %s", err, out)
		}
		trace.end(t)
		sh(t, "sysctl -qw kernel.ftrace_enabled=0")
		out, err := exec.Command("trace", "--strict", "--timeout", "5s", program).CombinedOutput()
		if err == nil || !strings.Contains(string(out), off) {
			t.Errorf("while it is off: %v: %s", err, out)
		}
		return
	}
	trace.reports(t, off)
	before := trace.mapsOf(t)["@exits"]
	waitUntil(t, "system calls are counted", seen("@calls"))
	if after := trace.mapsOf(t)["@exits"]; after > before+1 {
		t.Errorf("%d ends of processes were seen: the switch does not silence them", after-before)
	}
	sh(t, "sysctl -qw kernel.ftrace_enabled=1")
	trace.reports(t, on)
	waitUntil(t, "ends of processes are counted again", seen("@exits"))
	trace.endsLosing(t)

	sh(t, "sysctl -qw kernel.ftrace_enabled=0")
	trace = start(t, "--strict", program)
	trace.reports(t, off)
	waitUntil(t, "system calls are counted", seen("@calls"))
	if n := trace.mapsOf(t)["@exits"]; n > 0 {
		t.Errorf("%d ends of processes were seen", n)
	}
	sh(t, "sysctl -qw kernel.ftrace_enabled=1")
	trace.endsLosing(t)

	sh(t, "sysctl -qw kernel.ftrace_enabled=0")
	calls := start(t, "--strict", "syscall:enter { @calls = count() }")
	sh(t, "true")
	calls.end(t)
	if said := calls.messages(t); strings.Contains(said, "ftrace_enabled") {
		t.Errorf("a program that does not depend on it:\n%s", said)
	}
}
