//go:build vm

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// provoke makes one thing of each kind that triage looks for.
func provoke(t *testing.T) {
	t.Helper()
	small, _ := namespaces(t)
	sh(t, "! nvme read /dev/%s -s 99999999999 -c 0 -z 4096 >/dev/null 2>&1", small.disk)
	limited(t, "victim", 5000)
	disturb(t)
	memoryCgroup(t, "/small", map[string]string{"memory.high": "10M"})
	inMemoryCgroup(t, "/small", "head -c 11M /dev/zero | timeout 2 tail")
	startDatapath(t, buildDatapath(t), "fail=killed", "op=write", "count=1").finish(t)
	time.Sleep(2500 * time.Millisecond) // the counters are read
}

// unusual is what triage then prints.
var unusual = []string{
	`(?m)^nvme0: NVMe commands that failed with lba_range: 1, limit 0: trace nvme_trace --errors$`,
	`(?m)^rxe0: retry_exceeded_err: 1 more, limit 0: trace counters$`,
	`(?m)^\S+ in /victim: waits for a CPU of more than 50ms: [1-9]\d*, the longest \S+: trace runqlat$`,
	`(?m)^/victim: throttled by cpu.max: [1-9]\d* times, limit 0: trace noisy$`,
	`(?m)^/small: tasks had to free memory: [1-9]\d* times, limit 0, for \S+ in total: trace reclaim$`,
}

// triage names what is unusual, with its number.
func TestVMScriptTriage(t *testing.T) {
	trace := start(t, "triage", "5m")
	provoke(t)
	trace.end(t) // a reading of counters may be late
	out := strings.Join(printed(trace.decoded(t)), "")
	for _, want := range unusual {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s is not in it:\n%s", want, out)
		}
	}
	if strings.Contains(out, "nothing unusual") {
		t.Error(out)
	}
}

// A disk and a device that work at full rate are not unusual.
func TestVMScriptTriageHealthy(t *testing.T) {
	small, _ := namespaces(t)
	trace := start(t, "triage", "5m", "--runq=2s") // tasks wait for longer where the CPU is emulated, and shared
	server := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "500")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitForListener(t)
	var all sync.WaitGroup
	all.Go(func() { fio(t, small, 1000, 1000) })
	sh(t, "ibv_rc_pingpong -d rxe0 -g 1 -n 500 10.9.0.1 >/dev/null")
	all.Wait()
	if err := server.Wait(); err != nil {
		t.Fatal(err)
	}
	trace.end(t)
	lines := printed(trace.decoded(t))
	if len(lines) != 1 || !regexp.MustCompile(`^nothing unusual in \S+ among [1-9]\d* NVMe commands, \d+ block requests, [1-9]\d* verbs, [1-9]\d* changes of counters, [1-9]\d* waits for a CPU of more than 1ms\n$`).MatchString(lines[0]) {
		t.Errorf("%q", lines)
	}
}

// triage ends when its time is over.
func TestVMScriptTriageEnds(t *testing.T) {
	trace := start(t, "triage", "1s")
	waitUntil(t, "its time is over", func() bool { return ended(t, trace.cmd) })
	trace.end(t)
	if lines := printed(trace.decoded(t)); len(lines) == 0 {
		t.Error("it found nothing, and does not report how much it looked at")
	}
}
