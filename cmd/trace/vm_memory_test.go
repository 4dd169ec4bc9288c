//go:build vm

package main

import (
	"cmp"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// memoryCgroup makes a cgroup with these files, like memory.max.
func memoryCgroup(t *testing.T, path string, files map[string]string) {
	t.Helper()
	const mount = "/sys/fs/cgroup"
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		writeFile(t, mount+parent+"/cgroup.subtree_control", "+memory")
		if parent == "/" {
			break
		}
	}
	if err := os.Mkdir(mount+path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sh(t, "echo 1 >%s/cgroup.kill 2>/dev/null || true; rmdir %[1]s || { sleep 1; rmdir %[1]s; }", mount+path)
	})
	for name, value := range files {
		writeFile(t, mount+path+"/"+name, value)
	}
}

// inMemoryCgroup runs a command in it, which may be killed.
func inMemoryCgroup(t *testing.T, path, command string) {
	t.Helper()
	sh(t, "sh -c 'echo $$ >/sys/fs/cgroup%s/cgroup.procs; %s' || true", path, command)
}

// memoryEvent reads a number of memory.events.
func memoryEvent(t *testing.T, path, name string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(sh(t, `sed -n 's/^%s //p' /sys/fs/cgroup%s/memory.events`, name, path)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What the kernel writes into its log about a victim, and about who needed memory.
var (
	killedLine = regexp.MustCompile(`Killed process (\d+) \((\S+)\) total-vm:(\d+)kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB, UID:(\d+) pgtables:(\d+)kB oom_score_adj:(-?\d+)`)
	invoked    = regexp.MustCompile(`(\S+) invoked oom-killer: gfp_mask=(0x[0-9a-f]+)\(\S*\), order=(\d+)`)
	confined   = regexp.MustCompile(`oom-kill:constraint=CONSTRAINT_(\w+),\S*oom_memcg=([^,]+),task_memcg=([^,]+),task=(\w+),pid=(\d+),uid=(\d+)`)
)

// uncounted is how many KiB the two CPUs of a kernel with percpu counters may not have added up yet. 7.2 adds them for its log.
const uncounted = 2 * 32 * 4

// exhaustMemory lets the kernel kill: one process that is chosen, and then a group of four.
func exhaustMemory(t *testing.T) {
	t.Helper()
	memoryCgroup(t, "/small", map[string]string{"memory.max": "20M"})
	memoryCgroup(t, "/small/single", nil)
	memoryCgroup(t, "/small/group", map[string]string{"memory.max": "16M", "memory.oom.group": "1"})
	inMemoryCgroup(t, "/small/single", "echo 500 >/proc/self/oom_score_adj; exec tail /dev/zero")
	inMemoryCgroup(t, "/small/group", "sleep 100 & sleep 101 & tail /dev/zero")
}

// Each victim is an event, once, with the numbers of the kernel's log.
func TestVMOomKill(t *testing.T) {
	sh(t, "dmesg -C")
	trace := start(t, `oom:kill`)
	others := start(t, `oom:kill / comm == "tail" / { @seen = count() } oom:kill / comm != "tail" / { @others = count() }`)
	exhaustMemory(t)
	log := sh(t, "dmesg")
	victims := map[string][]string{}
	for _, m := range killedLine.FindAllStringSubmatch(log, -1) {
		if victims[m[1]] == nil {
			victims[m[1]] = m
		}
	}
	events := trace.stop(t)
	if len(events) != len(victims) || len(events) != 5 {
		t.Errorf("%d events, the log has %d victims:\n%s", len(events), len(victims), log)
	}
	limits, askers := confined.FindAllStringSubmatch(log, -1), invoked.FindAllStringSubmatch(log, -1)
	if len(limits) != 2 || len(askers) != 2 {
		t.Fatalf("%v, %v in the log:\n%s", limits, askers, log)
	}
	var groups int
	for _, e := range events {
		m := victims[e.text("pid")]
		if m == nil {
			t.Errorf("the log has no victim like %v", e)
			continue
		}
		for i, field := range []string{"total", "anon", "file", "shmem"} {
			logged, _ := strconv.ParseInt(m[3+i], 10, 64)
			if off := e.num(t, field)>>10 - logged; off != 0 && (field == "total" || os.Getenv("VMTEST_KERNEL") < "6.12" || max(off, -off) > uncounted) {
				t.Errorf("%s: %d KiB more than in %v", field, off, m)
			}
		}
		got := []string{e.text("pid"), e.text("comm"), e.text("uid"), fmt.Sprint(e.num(t, "pagetables") >> 10), e.text("score_adj")}
		if want := []string{m[1], m[2], m[7], m[8], m[9]}; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the event has %v, the log %v", got, want)
		}
		which := 0
		if e.text("limit_cgroup.path") == "/small/group" {
			which = 1
		}
		limit, asker := limits[which], askers[which]
		if e.at("group") == true {
			groups++
		} else if e.text("pid") != limit[5] || e.num(t, "points") <= 0 {
			t.Errorf("%s was chosen, not by %v", limit[5], e)
		}
		if got, want := []string{e.text("constraint"), e.text("limit_cgroup.path"), e.text("cgroup.path"), e.text("trigger.comm"), e.text("order")},
			[]string{strings.ToLower(limit[1]), limit[2], limit[3], asker[1], asker[3]}; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the event has %v, the log %v", got, want)
		}
		flags, err := strconv.ParseUint(asker[2], 0, 32)
		if n := len(strings.Split(e.text("gfp"), "|")); err != nil || n != bits.OnesCount64(flags) || !strings.Contains(e.text("gfp"), "DIRECT_RECLAIM") {
			t.Errorf("the flags are %v, in the log %s: %v", e.at("gfp"), asker[2], err)
		}
	}
	if alone, all := memoryEvent(t, "/small/single", "oom_kill"), memoryEvent(t, "/small/group", "oom_kill"); alone != 1 || all < 4 || groups != 3 {
		t.Errorf("the kernel counts %d and %d kills; %d members of the group are events", alone, all, groups)
	}
	counts := map[string]int64{}
	for _, e := range others.stop(t) {
		for _, entry := range e.at("entries").([]any) {
			counts[e.text("name")] = jsonEvent(entry.(map[string]any)).num(t, "value")
		}
	}
	if counts["@seen"] != 2 || counts["@others"] != 3 {
		t.Errorf("%v were counted by name", counts)
	}
}

func TestVMOomLines(t *testing.T) {
	recordLines(t, "oom", "oom:kill", func() { exhaustMemory(t) })
}

func TestVMMemoryLines(t *testing.T) {
	recordLines(t, "memory", `memory:reclaim / comm != "trace" /; memory:stall / comm != "trace" /; memory:compact, memory:throttle, memory:migrate`, func() {
		reachLimits(t)
		writeFast(t)
		fragment(t)
	})
}

// reachLimits lets a task of /limited reclaim, and one of /high wait, too.
func reachLimits(t *testing.T) {
	t.Helper()
	memoryCgroup(t, "/limited", map[string]string{"memory.max": "24M"})
	memoryCgroup(t, "/high", map[string]string{"memory.high": "10M"})
	inMemoryCgroup(t, "/limited", "exec dd if=/dev/nvme0n1 of=/dev/null bs=1M count=64 status=none")
	inMemoryCgroup(t, "/high", "head -c 11M /dev/zero | timeout 5 tail")
}

// writeFast lets dd write faster than the disk, and returns the number of the disk in /sys/class/bdi.
func writeFast(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, `mkfs.ext4 -q -F /dev/nvme0n1; mount /dev/nvme0n1 %s
		cat /proc/sys/vm/dirty_bytes /proc/sys/vm/dirty_background_bytes
		echo 1000000 >/proc/sys/vm/dirty_bytes; echo 500000 >/proc/sys/vm/dirty_background_bytes
		for i in 1 2 3 4; do dd if=/dev/zero of=%[1]s/file bs=64k count=200 conv=notrunc status=none; done
		echo 20 >/proc/sys/vm/dirty_ratio; echo 10 >/proc/sys/vm/dirty_background_ratio; umount %[1]s`, dir)
	return strings.TrimSpace(sh(t, "cat /sys/block/nvme0n1/dev"))
}

// fragment asks for huge pages where free memory is in small pieces, and for more of them than there is memory.
func fragment(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	sh(t, `cd %s; mount -t tmpfs none .
		trap 'echo 0 >/proc/sys/vm/nr_hugepages; umount -l .' EXIT
		free=$(awk '/^MemFree:/ { print int($2 / 2048) }' /proc/meminfo)
		echo $((free - 80)) >/proc/sys/vm/nr_hugepages
		head -c 110M /dev/zero | split -a 4 -b 32k
		rm *[acegikmoqsuwy]
		echo 1 >/proc/sys/vm/compact_memory
		head -c 30M /dev/zero | split -a 4 -b 32k - y
		rm y*[acegikmoqsuwy]
		echo $free >/proc/sys/vm/nr_hugepages`, dir)
}

// vmstat reads a number of /proc/vmstat: the sum of those whose names begin so.
func vmstat(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(sh(t, `awk '/^%s/ { n += $2 } END { print n + 0 }' /proc/vmstat`, name)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kernelCounts are numbers of /proc/vmstat.
var kernelCounts = []string{"allocstall", "compact_stall", "pgmigrate_success", "pgmigrate_fail"}

// countMemory returns what trace sees of some work, and what the kernel counts of it.
func countMemory(t *testing.T, work func()) (seen, counted map[string]int64) {
	t.Helper()
	seen, counted = map[string]int64{}, map[string]int64{}
	trace := start(t, `memory:*`)
	for _, name := range kernelCounts {
		counted[name] = -vmstat(t, name)
	}
	work()
	for _, name := range kernelCounts {
		counted[name] += vmstat(t, name)
	}
	events := trace.stop(t)
	slices.SortFunc(events, func(a, b jsonEvent) int { return cmp.Compare(a.num(t, "nsecs"), b.num(t, "nsecs")) })
	inStall := map[string]jsonEvent{} // what a thread reclaimed: it ends in a stall that began before
	for _, e := range events {
		switch e.text("probe") {
		case "memory:reclaim":
			if in := inStall[e.text("tid")]; in != nil {
				t.Errorf("no stall around %v", in)
			}
			inStall[e.text("tid")] = e
			if limit := e.text("limit_cgroup.path"); e.at("limit_cgroup") != nil {
				seen[limit]++
				if e.at("order") != nil || e.text("cgroup.path") != limit {
					t.Errorf("a limit and an order: %v", e)
				}
			} else {
				seen["allocstall"]++
			}
		case "memory:compact":
			seen["compact"]++
			if r := e.text("result"); r == "skipped" || r == "deferred" {
				seen["did not compact"]++
			}
		case "memory:migrate":
			seen["pgmigrate_success"] += e.num(t, "moved")
			seen["pgmigrate_fail"] += e.num(t, "failed")
			seen[e.text("reason")]++
		case "memory:throttle":
			seen[e.text("reason")+" "+e.text("comm")+" "+e.text("bdi")]++
		case "memory:stall":
			seen["stall"]++
			if in := inStall[e.text("tid")]; in != nil && in.num(t, "latency") > e.num(t, "latency") {
				t.Errorf("a stall is shorter than what is in it: %v in %v", in, e)
			}
			delete(inStall, e.text("tid"))
		}
	}
	for _, e := range inStall {
		t.Errorf("no stall around %v", e)
	}
	t.Logf("the kernel counts %v, seen %v", counted, seen)
	return seen, counted
}

// What tasks reclaim because of a limit is what the kernel counts, and who writes too fast is held back by the disk.
func TestVMMemoryLimits(t *testing.T) {
	var disk string
	seen, _ := countMemory(t, func() {
		reachLimits(t)
		disk = writeFast(t)
	})
	for _, path := range []string{"/limited", "/high"} {
		if n := int64(memoryEvent(t, path, "max") + memoryEvent(t, path, "high")); n == 0 || seen[path] != n {
			t.Errorf("%s: %d reclaims, the kernel counts %d", path, seen[path], n)
		}
	}
	for _, name := range []string{"stall", "dirty dd " + disk, "memory_high tail <nil>"} {
		if seen[name] == 0 {
			t.Errorf("%s was not seen", name)
		}
	}
}

// What tasks compact, migrate and reclaim where the machine's memory is short is what the kernel counts.
func TestVMMemoryFragmented(t *testing.T) {
	seen, counted := countMemory(t, func() { fragment(t) })
	// It counts each time that it goes over the memory, up to four times in a call (do_try_to_free_pages).
	if n := counted["allocstall"]; seen["allocstall"] == 0 || n < seen["allocstall"] || n > 4*seen["allocstall"] {
		t.Errorf("%d reclaims of the machine's memory, the kernel counts %d", seen["allocstall"], n)
	}
	for _, name := range []string{"pgmigrate_success", "pgmigrate_fail"} {
		if seen[name] != counted[name] {
			t.Errorf("%s: seen %d, the kernel counts %d", name, seen[name], counted[name])
		}
	}
	// Since 5.14 the kernel does not count what was skipped.
	if n := counted["compact_stall"]; n > seen["compact"] || n < seen["compact"]-seen["did not compact"] {
		t.Errorf("%d compactions, %d that did nothing; the kernel counts %d", seen["compact"], seen["did not compact"], n)
	}
	if seen["compaction"] == 0 {
		t.Error("no page was moved for it")
	}
}
