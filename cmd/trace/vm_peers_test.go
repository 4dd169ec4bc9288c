//go:build vm

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// These tests show where Debian's libbpf-tools 0.26 count something else than the kernel does, beside what trace counts.

// A filter by cgroup means the task that waits. runqlat asks for the cgroup of the task that wakes it.
func TestVMPeersRunqlat(t *testing.T) {
	const wakes = 300
	folder := cgroupFolder(t, "waits")
	pid, wake := startIn(t, folder, "cat")
	trace := startTool(t, "Attached", "trace", `sched:runq / cgroup == "/waits" / { @n = count(); @ns = sum((uint64)latency) }`)
	runqlat := startTool(t, "Tracing", "stdbuf", "-oL", "/usr/sbin/runqlat", "-c", folder)
	before := schedstatOf(t, pid)
	for range wakes {
		fmt.Fprint(wake, ".")
		time.Sleep(2 * time.Millisecond)
	}
	var after schedstat
	waitUntil(t, "the task sleeps", func() bool { // it may read several bytes at once
		last := after
		time.Sleep(100 * time.Millisecond)
		after = schedstatOf(t, pid)
		return after == last
	})
	runqlat.end(t)
	got := countsOf(trace.stop(t))
	waits, ns := after.waits-before.waits, after.delay-before.delay
	theirs := histogramTotal(runqlat.out.String())
	t.Logf("the kernel counts %d waits of %d ns, trace %d of %d ns, runqlat %d", waits, ns, got["@n"], got["@ns"], theirs)
	if waits < wakes/2 || got["@n"] != waits || got["@ns"] != ns {
		t.Error("trace and the kernel differ")
	}
	if theirs > waits/2 {
		t.Error("runqlat and the kernel agree; docs/from-bpftrace.md does not know that")
	}
}

// schedstat is what the kernel counts of a task: sched_info in include/linux/sched.h.
type schedstat struct{ delay, waits uint64 }

func schedstatOf(t *testing.T, pid int) schedstat {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var s schedstat
	var ran uint64
	if _, err := fmt.Sscan(string(text), &ran, &s.delay, &s.waits); err != nil {
		t.Fatal(err)
	}
	return s
}

// cgroupFolder makes a cgroup, which is removed after what runs in it has ended.
func cgroupFolder(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join("/sys/fs/cgroup", name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		waitUntil(t, "cgroup "+name+" is empty", func() bool { return os.Remove(folder) == nil })
	})
	return folder
}

// startIn starts a program in a cgroup, and returns its input.
func startIn(t *testing.T, folder string, program ...string) (pid int, in io.Writer) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-ec", `echo $$ > "$0/cgroup.procs"; exec "$@"`, folder}, program...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	waitUntil(t, program[0]+" runs", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && string(name) == program[0]+"\n"
	})
	return cmd.Process.Pid, in
}

// histogramTotal adds the counts of a histogram of libbpf-tools.
func histogramTotal(text string) (total uint64) {
	for _, slot := range regexp.MustCompile(`(?m)^ *\d+ -> \d+ *: (\d+) `).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseUint(slot[1], 10, 64) // it is a number
		total += n
	}
	return total
}
