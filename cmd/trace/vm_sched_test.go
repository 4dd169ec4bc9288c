//go:build vm

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestVMScheduler(t *testing.T) { checkScheduler(t, true) }

// No kernel's sleep is waiting.
func TestVMSchedulerSleeper(t *testing.T) { checkSleeper(t) }

// Who wakes a thread, another one or an interrupt, as often as getrusage counts that the thread left the CPU by itself.
func TestVMSchedWaker(t *testing.T) {
	wakes, printed := buildWakes(t)
	got := map[string]int{}
	for _, r := range mapByTrace(t, []string{`sched:offcpu / comm in ["awaker", "awoken"] && state == INTERRUPTIBLE / { @[comm, waker.comm, waker.irq] = count() }`}, wakes+" 100") {
		got[fmt.Sprint(r.Key...)] = r.count(t)
	}
	counted := sh(t, "cat %s", printed)
	want := map[string]int{}
	for name, waker := range map[string]string{"awoken": "awokenawakerfalse", "awaker": "awaker<nil> true"} {
		var n int
		if _, err := fmt.Sscanf(counted[max(strings.Index(counted, name), 0):], name+" %d", &n); err != nil || n < 90 { // it need not wait for what is there already
			t.Fatalf("%d: %v in %s", n, err, counted)
		}
		want[waker] = n
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v: the program printed %s", got, want, counted)
	}
}

// A stack is the stack of the thread that comes back: what it called to sleep. It is taken of what passes the predicate.
func TestVMSchedStack(t *testing.T) {
	wakes, _ := buildWakes(t)
	times := 0
	for _, r := range mapByTrace(t, []string{`sched:offcpu / comm == "awaker" && state == INTERRUPTIBLE / { @[kstack] = count() }`}, wakes+" 100") {
		times += r.count(t)
		frames := r.frames(t, 0)
		slept := slices.ContainsFunc(frames, func(f string) bool { return strings.Contains(f, "nanosleep") })
		if traced := slices.ContainsFunc(frames, func(f string) bool { return strings.Contains(f, "bpf") || strings.Contains(f, "trace_") }); !slept || traced {
			t.Errorf("%d times %v", r.count(t), frames)
		}
	}
	if times != 100 {
		t.Errorf("%d stacks of 100", times)
	}
}

// buildWakes compiles a program, and returns its command, and the file that it prints into.
func buildWakes(t *testing.T) (command, printed string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wakes")
	sh(t, "gcc -Wall -Werror -O2 -pthread -o %s testdata/vm/wakes.c", path)
	return ">" + path + ".out " + path, path + ".out"
}

// What waits for a disk is marked by the kernel, which counts it in /proc/PID/sched.
func TestVMSchedIowait(t *testing.T) {
	sh(t, "sysctl -q kernel.sched_schedstats=1")
	small, _ := namespaces(t)
	printed := filepath.Join(t.TempDir(), "sched")
	script := filepath.Join(t.TempDir(), "direct.py")
	if err := os.WriteFile(script, []byte(`
import mmap, os
fd, page = os.open("/dev/`+small.disk+`", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
count = lambda: [int(line.split()[-1]) for line in open("/proc/self/sched") if "iowait_count" in line][0]
count()
open("/proc/self/comm", "w").write("direct")
before = count()
for i in range(50):
    os.preadv(fd, [page], 4096 * i)
after = count()
open("/proc/self/comm", "w").write("done")
open("`+printed+`", "w").write(str(after - before))
`), 0o666); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range mapByTrace(t, []string{`sched:offcpu / comm == "direct" && iowait / { @[state] = count() }`}, "python3 "+script) {
		if n += r.count(t); r.Key[0] != "UNINTERRUPTIBLE" {
			t.Errorf("it waits %v", r.Key[0])
		}
	}
	if want := sh(t, "cat %s", printed); fmt.Sprint(n) != want || n == 0 {
		t.Errorf("%d waits, the kernel counts %s", n, want)
	}
}

// How long a cgroup might not run, on all CPUs, is the throttled_usec of its cpu.stat. A filter means the cgroup.
func TestVMSchedThrottle(t *testing.T) {
	little, less := limited(t, "little", 40000), limited(t, "less", 20000)
	sums := sumsDuring(t, `sched:throttle { @all[cgroup] = sum(latency) } sched:throttle / cgroup == "/less" / { @less[cgroup] = sum(latency); @times[cgroup] = count() }`, func() {
		var both sync.WaitGroup
		both.Go(func() { keepBusy(t, little, 2, 2) })
		keepBusy(t, less, 2, 2)
		both.Wait()
	})
	want := map[string]uint64{}
	for _, cgroup := range []string{"/little", "/less"} {
		var us, periods uint64
		if _, err := fmt.Sscanf(sh(t, "grep -h -e throttled_usec -e nr_throttled /sys/fs/cgroup%s/cpu.stat", cgroup), "nr_throttled %d\nthrottled_usec %d", &periods, &us); err != nil || us == 0 {
			t.Fatalf("%d in %d: %v", us, periods, err)
		}
		want[cgroup] = us
		sums["@all"][cgroup] /= uint64(time.Microsecond)
	}
	if !maps.Equal(sums["@all"], want) || sums["@less"]["/less"]/uint64(time.Microsecond) != want["/less"] || len(sums["@less"]) != 1 || sums["@times"]["/less"] == 0 {
		t.Errorf("%v, want %v us", sums, want)
	}
}

// What khungtaskd prints to the kernel's log is an event, with the stack of the task.
func TestVMSchedHung(t *testing.T) {
	var pid int
	sums := sumsDuring(t, `sched:hung / comm == "dd" / { @[pid, (uint64)(latency / 1s), state, iowait] = count(); @stack[kstack] = count() } sched:hung / comm != "dd" / { @others[comm] = count() }`, func() {
		pid = hang(t, 3)
	})
	want := map[string]uint64{}
	for _, seconds := range loggedHung(t, pid) {
		want[fmt.Sprintf("%d,%s,UNINTERRUPTIBLE,true", pid, seconds)]++
	}
	if !maps.Equal(sums["@"], want) || len(want) == 0 {
		t.Errorf("%v, dmesg has %v of %d", sums, want, pid)
	}
	for stack := range sums["@stack"] {
		if !strings.Contains(stack, "file_write_and_wait_range") {
			t.Errorf("it waits in %s", stack)
		}
	}
}

// hang keeps a write to a disk from its completion until the kernel's log has the process as a hung task so often, and returns the process. What
// waits for direct I/O looks every half of the timeout (blk_io_schedule), and what waits to read can be killed: the log has neither.
func hang(t *testing.T, times int) (pid int) {
	t.Helper()
	for _, setting := range []string{"hung_task_timeout_secs=1", "hung_task_check_interval_secs=1", "hung_task_warnings=-1"} {
		name, _, _ := strings.Cut(setting, "=")
		before := sh(t, "sysctl -n kernel.%s", name)
		sh(t, "sysctl -q kernel.%s", setting)
		t.Cleanup(func() { sh(t, "sysctl -q kernel.%s=%s", name, before) })
	}
	small, _ := namespaces(t)
	writeFile(t, "/sys/block/"+small.disk+"/queue/io_timeout", "120000") // what waits long must not be polled for
	maskInterrupts(t, "nvme0", true)
	t.Cleanup(func() { maskInterrupts(t, "nvme0", false) })
	dd := exec.Command("dd", "if=/dev/zero", "of=/dev/"+small.disk, "bs=4k", "count=1", "conv=fsync", "status=none")
	if err := dd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the log has it", func() bool {
		return len(loggedHung(t, dd.Process.Pid)) >= times
	})
	maskInterrupts(t, "nvme0", false)
	if err := dd.Wait(); err != nil {
		t.Fatal(err)
	}
	return dd.Process.Pid
}

// loggedHung are the seconds for which the kernel's log has a dd as a hung task, as check_hung_task and hung_task_info of kernel/hung_task.c
// write it; 7.2 adds what for.
func loggedHung(t *testing.T, pid int) (seconds []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(fmt.Sprintf(`task dd:%d blocked (in I/O wait )?for more than (\d+) seconds`, pid)).FindAllStringSubmatch(sh(t, "dmesg"), -1) {
		seconds = append(seconds, m[2])
	}
	return seconds
}

// limited makes a cgroup that may run for so many microseconds of each 100 ms.
func limited(t *testing.T, name string, quota int) (folder string) {
	t.Helper()
	sh(t, "echo +cpu > /sys/fs/cgroup/cgroup.subtree_control")
	folder = cgroupFolder(t, name)
	writeFile(t, folder+"/cpu.max", fmt.Sprint(quota, " 100000"))
	return folder
}

func TestVMSchedLines(t *testing.T) {
	wakes, _ := buildWakes(t)
	little := limited(t, "little", 40000)
	recordLines(t, "sched", `sched:* / comm in ["awaker", "awoken", "dd"] || cgroup == "/little" /`, func() {
		sh(t, "%s 40 & for mask in 1 2 1 2 1 2; do taskset -ap $mask $! >/dev/null; done; wait", wakes)
		keepBusy(t, little, 1, 1)
		hang(t, 1)
	})
}

// keepBusy lets processes compute in a cgroup for some seconds.
func keepBusy(t *testing.T, folder string, processes, seconds int) {
	t.Helper()
	one := fmt.Sprintf(`timeout %d sh -c 'while :; do :; done' & `, seconds)
	sh(t, `sh -c "echo \$\$ > %s/cgroup.procs; %s wait"; sleep 0.5`, folder, strings.Repeat(one, processes))
}
