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

	"golang.org/x/sys/unix"
)

// These tests show where Debian's libbpf-tools 0.26 count something else than the kernel does, beside what trace counts.

// A filter by cgroup means the task that waits. runqlat asks for the cgroup of the task that wakes it.
func TestVMPeersRunqlat(t *testing.T) {
	const wakes = 300
	folder := cgroupFolder(t, "waits")
	pid, wake := startIn(t, folder, "cat")
	trace := startTool(t, "Attached", "trace", `sched:runq / cgroup == "/waits" / { @n = count(); @ns = sum((uint64)(latency ?? 0)) }
		sched:runq / cgroup == "/waits" && latency == nil / { @slept = count() }`)
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
	if waits < wakes/2 || got["@n"] != waits || got["@ns"] != ns && got["@slept"] == 0 {
		t.Error("trace and the kernel differ")
	}
	if theirs > waits/2 {
		t.Error("runqlat and the kernel agree; docs/from-bpftrace.md does not know that")
	}
}

// Since 5.16 the kernel adds pages to the page cache, uses and changes them by other functions than those that cachestat counts: it counts
// next to nothing, or does not run.
func TestVMPeersCachestat(t *testing.T) {
	if sh(t, "grep -c ' filemap_read$' /proc/kallsyms || true") == "0\n" {
		t.Skip("cachestat is for this kernel")
	}
	f := coldFile(t, filepath.Join(mountDisk(t), "pages"), 256)
	advise(t, f, unix.FADV_RANDOM)
	trace := startTool(t, "Attached", "trace", `cache:read / file == "pages" / { @reads = count(); @misses = sum((uint64)misses) }`)
	hits, misses := runCachestat(t, func() {
		for range 10 {
			for page := range 256 {
				readPages(t, f, page, 1)
			}
		}
	})
	pages := cached(t, f)
	got := countsOf(trace.stop(t))
	t.Logf("2560 reads brought %d pages into the cache; trace counts %d reads and %d misses, cachestat %d hits and %d misses of the whole machine",
		pages, got["@reads"], got["@misses"], hits, misses)
	if got["@reads"] != 2560 || got["@misses"] != pages || pages != 256 {
		t.Error("trace and the kernel differ")
	}
	if hits+misses >= 2560 && misses >= pages {
		t.Error("cachestat and the kernel agree; docs/from-bpftrace.md does not know that")
	}
}

// runCachestat runs cachestat during some work, and adds up its lines.
func runCachestat(t *testing.T, work func()) (hits, misses uint64) {
	t.Helper()
	const cachestat = "/usr/sbin/cachestat"
	if out, err := exec.Command(cachestat, "1", "1").CombinedOutput(); err != nil {
		t.Logf("cachestat: %v\n%s", err, out)
		work()
		return 0, 0
	}
	tool := startTool(t, "HITS", "stdbuf", "-oL", cachestat, "1")
	work()
	time.Sleep(2 * time.Second) // for its last line
	tool.end(t)
	for _, line := range regexp.MustCompile(`(?m)^ *(\d+) +(\d+) +\d+ `).FindAllStringSubmatch(tool.out.String(), -1) {
		h, _ := strconv.ParseUint(line[1], 10, 64) // these are numbers
		m, _ := strconv.ParseUint(line[2], 10, 64)
		hits, misses = hits+h, misses+m
	}
	return hits, misses
}

// What is written back is of the cgroup whose io.stat counts it. biolatency asks for the cgroup of the task that hands it to the driver.
func TestVMPeersBiolatency(t *testing.T) {
	folder := ioCgroup(t, "writes")
	mountOnMnt(t)
	sh(t, "sh -ec 'echo $$ >%s/cgroup.procs; exec fallocate -l 4M /mnt/file'; sync", folder)
	trace := startTool(t, "Attached", "trace", `block:complete / disk == "nvme0n1" && io_cgroup == "/writes" && op == write / { @ios = sum(merged + 1); @requests = count() }`)
	biolatency := startTool(t, "Tracing", "stdbuf", "-oL", "/usr/sbin/biolatency", "-c", folder)
	before := iostat(t, []string{folder})
	sh(t, `sh -ec 'echo $$ >%s/cgroup.procs
		for i in $(seq 40); do dd if=/dev/zero of=/mnt/file bs=4k seek=$((i * 16)) count=1 conv=notrunc status=none; done'; sync`, folder)
	stat := less(iostat(t, []string{folder}), before)
	biolatency.end(t)
	got := countsOf(trace.stop(t))
	theirs := histogramTotal(biolatency.out.String())
	t.Logf("the kernel counts %d bios, trace %d in %d requests, biolatency %d requests", stat["ios /writes write"], got["@ios"], got["@requests"], theirs)
	if got["@ios"] != uint64(stat["ios /writes write"]) || got["@requests"] < 20 {
		t.Error("trace and the kernel differ")
	}
	if theirs > got["@requests"]/2 {
		t.Error("biolatency and the kernel agree")
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
