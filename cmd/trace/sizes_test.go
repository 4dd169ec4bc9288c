package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What a process has mapped is what /proc/PID/smaps shows of each kind, at the first reading and at the last one. Only the processes that a
// filter leaves are read.
func TestSizes(t *testing.T) {
	requireLive(t)
	cmd := exec.Command("sh", "-c", "read line; exec sleep 100")
	line, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := cmd.Process.Pid
	time.Sleep(100 * time.Millisecond) // it is the shell
	before := kindsOf(t, pid)
	var after map[string]uint64
	sums := sumsDuring(t, `vm:size / delta == nil / { @first[kind] = (uint64)size }
vm:size { @last[kind] = (uint64)size; @pids[pid] = 1 }
vm:size / delta != nil / { @changed[kind] = count() }`, func() {
		line.Close()
		for range 100 {
			if time.Sleep(100 * time.Millisecond); fmt.Sprint(kindsOf(t, pid)) != fmt.Sprint(before) {
				break
			}
		}
		time.Sleep(300 * time.Millisecond) // it is sleep then
		after = kindsOf(t, pid)
	}, "-p", fmt.Sprint(pid))
	for kind, size := range after {
		if sums["@first"][kind] != before[kind]<<10 || sums["@last"][kind] != size<<10 {
			t.Errorf("%s: %d and then %d, /proc/PID/smaps shows %d and %d KiB", kind, sums["@first"][kind], sums["@last"][kind], before[kind], size)
		}
	}
	if fmt.Sprint(before) == fmt.Sprint(after) || len(sums["@pids"]) != 1 {
		t.Errorf("%v, %v", before, sums["@pids"])
	}
}

// A process that comes grows from nothing, and has nothing when it has gone.
func TestSizesOfNewProcess(t *testing.T) {
	requireLive(t)
	out, err := exec.Command("trace", "-q", "-c", `sh -c "sleep 0.5; sleep 0.51; sleep 0.5"`,
		`vm:size:50ms / kind == stack / { printf("%d %d %d\n", pid, size, delta) }`).Output()
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[int]int)
	gone := 0
	for line := range strings.Lines(string(out)) {
		var pid, size, delta int
		fmt.Sscan(line, &pid, &size, &delta)
		if _, known := left[pid]; !known && delta == 0 { // it was there at the first reading
			delta = size
		}
		if left[pid] += delta; left[pid] != size {
			t.Errorf("%d has %d, and has grown by %d in all", pid, size, left[pid])
		}
		if size == 0 {
			gone++
		}
	}
	if gone < 2 {
		t.Errorf("%d processes, %d have gone: %s", len(left), gone, out)
	}
}

// kindsOf adds up what a process has mapped of each kind, in KiB, as /proc/PID/smaps shows it.
func kindsOf(t *testing.T, pid int) map[string]uint64 {
	t.Helper()
	out, err := exec.Command("awk", `/^[0-9a-f]+-/ { kind = $2 ~ /s$/ ? "shared" : "private"; kind = kind ($6 ~ /^\// && $6 != "/dev/zero" ? "_file" : "_anon")
		if ($6 == "[heap]" || $6 == "[stack]") kind = substr($6, 2, length($6) - 2); if ($6 == "[vsyscall]") kind = "" }
		/^Size:/ && kind != "" { all[kind] += $2 } END { for (kind in all) print kind, all[kind] }`, fmt.Sprintf("/proc/%d/smaps", pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]uint64)
	for line := range strings.Lines(string(out)) {
		var kind string
		var size uint64
		fmt.Sscan(line, &kind, &size)
		kinds[kind] = size
	}
	return kinds
}
