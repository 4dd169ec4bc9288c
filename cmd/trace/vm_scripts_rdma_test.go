//go:build vm

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inCgroup makes a cgroup and returns the command line that runs args in it.
func inCgroup(t *testing.T, name string, args ...string) (path string, command []string) {
	t.Helper()
	path = "/" + name
	folder := filepath.Join("/sys/fs/cgroup", name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return path, append([]string{"sh", "-c", fmt.Sprintf(`echo $$ >%s/cgroup.procs; exec "$@"`, folder), "sh"}, args...)
}

// monitored is a report of rdma_monitor.
type monitored struct {
	live  map[string]int            // by QP, PD, CQ, MR
	ops   map[string]map[string]int // by cgroup and operation
	times map[string]int            // failures by operation and error
}

var (
	liveLine   = regexp.MustCompile(`^(QP|PD|CQ|MR) \([A-Za-z ]+\): +(\d+)`)
	opLine     = regexp.MustCompile(`^  (\w+) *: (\d+)$`)
	failedLine = regexp.MustCompile(`^  (\w+) *: (-E\w+), (\d+) times$`)
)

// reports reads the reports of rdma_monitor, the oldest first.
func reports(t *testing.T, text string) []monitored {
	t.Helper()
	var all []monitored
	cgroup := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, "RDMA Resource Counts:") {
			all = append(all, monitored{map[string]int{}, map[string]map[string]int{}, map[string]int{}})
		}
		if len(all) == 0 {
			continue
		}
		r := all[len(all)-1]
		atoi := func(digits string) int {
			n, err := strconv.Atoi(digits)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if m := liveLine.FindStringSubmatch(line); m != nil {
			r.live[m[1]] = atoi(m[2])
		} else if path, ok := strings.CutPrefix(line, "CGROUP: "); ok {
			cgroup = path
			r.ops[cgroup] = map[string]int{}
		} else if m := opLine.FindStringSubmatch(line); m != nil {
			if r.ops[cgroup] == nil {
				t.Fatalf("no cgroup is above %q:\n%s", line, text)
			}
			r.ops[cgroup][m[1]] = atoi(m[2])
		} else if m := failedLine.FindStringSubmatch(line); m != nil {
			r.times[m[1]+" "+m[2]] = atoi(m[3])
		}
	}
	return all
}

// lastReport waits for n more reports and returns the last.
func (tr *recorder) lastReport(t *testing.T, n int) monitored {
	t.Helper()
	text := func() string {
		f, err := os.Open(tr.events)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b strings.Builder
		d := json.NewDecoder(f)
		for {
			var e jsonEvent
			if d.Decode(&e) != nil { // the last line may be half written
				return b.String()
			}
			b.WriteString(map[bool]string{true: fmt.Sprint(e["data"])}[e["type"] == "printf"])
		}
	}
	written := func() int { // which is cheap enough to ask for all the time
		data, err := os.ReadFile(tr.events)
		if err != nil {
			t.Fatal(err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1] // the last line may be half written
		return bytes.Count(data, []byte("Mean Latency and Failures:"))
	}
	before := written()
	waitUntil(t, "there are new reports", func() bool { return written() > before+n })
	all := reports(t, text())
	return all[len(all)-2] // the last one may be half written
}

// liveResources is what rdma counts on rxe0.
func liveResources(t *testing.T) map[string]int {
	t.Helper()
	var devices []map[string]any
	if err := json.Unmarshal([]byte(sh(t, "rdma -j res show")), &devices); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, d := range devices {
		for _, kind := range []string{"qp", "pd", "cq", "mr"} {
			n, _ := d[kind].(float64)
			counts[strings.ToUpper(kind)] += int(n)
		}
	}
	return counts
}

// TestVMScriptRdmaMonitor compares the resources with `rdma res`, and the calls of two processes in two cgroups with bpftrace's.
func TestVMScriptRdmaMonitor(t *testing.T) {
	trace := start(t, "rdma_monitor", "-i", "1")
	other := start(t, "rdma_monitor", "--device", "rxe7")
	peer := startTool(t, "Attaching", "bpftrace", "-e", "kprobe:ib_modify_qp_with_udata { @[pid] = count(); }")
	time.Sleep(2 * time.Second)

	c := connections[0]
	var paths [2]string
	paths[0], c.server = inCgroup(t, "left", c.server...)
	paths[1], c.client = inCgroup(t, "right", c.client...)
	sides := c.run(t)
	calls := peer.stop(t)
	report := trace.lastReport(t, 2)
	for i, s := range sides {
		if want := fmt.Sprintf("@[%d]: %d", s.pid, report.ops[paths[i]]["modify_qp"]); !strings.Contains(strings.Join(calls, "\n"), want) {
			t.Errorf("bpftrace has %v, not %q", calls, want)
		}
		want := map[string]int{
			"create_qp": 1, "modify_qp": 3, "destroy_qp": 1, "alloc_pd": 1, "dealloc_pd": 1, "create_cq": 1, "destroy_cq": 1, "reg_mr": 1, "dereg_mr": 1,
		}
		for op, n := range want {
			if got := report.ops[paths[i]][op]; got != n {
				t.Errorf("%s in %s: %d, want %d", op, paths[i], got, n)
			}
		}
	}

	// A server that waits for its client has its objects all the time.
	server := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitForListener(t)
	report = trace.lastReport(t, 2)
	for kind, n := range liveResources(t) {
		if report.live[kind] != n {
			t.Errorf("%d %ss, rdma has %d", report.live[kind], kind, n)
		}
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Wait()
	report = trace.lastReport(t, 2)
	for kind, n := range liveResources(t) {
		if report.live[kind] != n {
			t.Errorf("afterwards %d %ss, rdma has %d", report.live[kind], kind, n)
		}
	}

	trace.endLosingLookups(t)
	other.endLosingLookups(t)
	text := strings.Join(printed(trace.decoded(t)), "")
	for _, line := range []string{"RDMA Control Path Monitor Started (interval: 1 seconds)\n", "RDMA Control Path Monitor Stopped\n"} {
		if strings.Count(text, line) != 1 {
			t.Errorf("no line %q", line)
		}
	}
	for _, r := range reports(t, strings.Join(printed(other.decoded(t)), "")) {
		if len(r.ops) > 0 || r.live["PD"] > 0 {
			t.Errorf("a report of a device that there is not: %v", r)
		}
	}
}

// rdma_stuck names the QP whose peer posts no receive, connected before or after trace began, and no other beside it: not of programs whose
// requests complete at once, of one that has requests out all the time and takes a completion each second, and of one whose requests wait
// without asking for a completion.
func TestVMScriptRdmaStuck(t *testing.T) {
	skipWhereRxeLocksUp(t)
	path := buildDatapath(t)
	stuck := []*datapath{startDatapath(t, path, "fail=stuck", "count=3", "hold=20")}
	healthy := []*datapath{
		startDatapath(t, path, "qps=2", "count=150", "pause=20000"),
		startDatapath(t, path, "op=write", "count=8", "entries=1", "rest=1000000"),
		startDatapath(t, path, "signal=4", "count=8", "pause=1000000"),
	}
	trace := start(t, "rdma_stuck", "--longer", "2s")
	stuck = append(stuck, startDatapath(t, path, "fail=stuck", "count=5", "batch=5", "hold=20"))
	healthy = append(healthy, startDatapath(t, path, "qps=2", "count=150", "pause=20000"))
	for _, d := range append(stuck, healthy...) {
		fmt.Fprintln(d.in)
	}
	for _, d := range healthy {
		d.finish(t)
	}
	waitUntil(t, "both are seen twice", func() bool { return strings.Count(trace.wrote(t), "5 requests wait") > 1 })
	var senders []uint64
	for _, d := range stuck {
		senders = append(senders, d.finish(t).QPs[0].Sender)
	}
	seen := strings.Count(trace.wrote(t), " requests wait ")
	time.Sleep(3 * time.Second)
	text := strings.Join(printed(trace.stop(t)), "")
	if n := strings.Count(text, " requests wait "); n > seen {
		t.Errorf("QPs that are gone are stuck, %d lines before:\n%s", seen, text)
	}
	lines := 0
	for i, n := range []int{3, 5} {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ rxe0 qp %d of datapath/%d cgroup=/: %d requests wait for [\d.]+s at least, `+
			`::ffff:10\.9\.0\.1 -> ::ffff:10\.9\.0\.1 qp \d+ port=1 timeout=14 \(67\.1ms\) retry_cnt=7 \(gives up after 537ms to 2\.15s\) rnr_retry=7 \(no limit\)$`,
			senders[i], stuck[i].cmd.Process.Pid, n))
		found := len(line.FindAllString(text, -1))
		if found < 2 {
			t.Errorf("%d lines like %v:\n%s", found, line, text)
		}
		lines += found
	}
	if lines != seen {
		t.Errorf("other QPs are stuck:\n%s", text)
	}
}

// skipWhereRxeLocksUp skips a test in which a send meets no receive.
func skipWhereRxeLocksUp(t *testing.T) {
	t.Helper()
	if strings.HasPrefix(sh(t, "uname -r"), "5.10.") {
		t.Skip("rxe of 5.10 then locks a CPU up, without trace, too")
	}
}

// TestVMScriptRdmaErrors: a connection without a GID fails, on both sides.
func TestVMScriptRdmaErrors(t *testing.T) {
	trace := start(t, "rdma_errors")
	monitor := start(t, "rdma_monitor")
	server := onCPU(0, "ibv_rc_pingpong", "-d", "rxe0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitForListener(t)
	client := onCPU(1, "ibv_rc_pingpong", "-d", "rxe0", "10.9.0.1")
	if out, err := client.CombinedOutput(); err == nil {
		t.Fatalf("the client connects without a GID:\n%s", out)
	}
	if err := server.Wait(); err == nil {
		t.Fatal("the server connects without a GID")
	}
	report := monitor.lastReport(t, 1)
	events := trace.stop(t)
	lines := strings.Join(printed(events), "")
	failures := 0
	for _, pid := range []int{server.Process.Pid, client.Process.Pid} {
		line := regexp.MustCompile(fmt.Sprintf(`rxe0 ib:modify_qp failed with -EINVAL for ibv_rc_pingpong/%d after `, pid))
		failures += len(line.FindAllString(lines, -1))
	}
	if failures == 0 || failures != strings.Count(lines, "failed with") {
		t.Errorf("%d failures of the two processes:\n%s", failures, lines)
	}
	if got := report.times["modify_qp -EINVAL"]; got != failures {
		t.Errorf("rdma_monitor has %d failures, want %d", got, failures)
	}
	// A function of the kernel, and one of the C library: libibverbs has no frame pointers, so there it ends.
	function := "modify_qp+"
	if !walksPastTrampoline(t) {
		function = "kretprobe_trampoline+"
	}
	for _, name := range []string{function, "ioctl+"} {
		if !strings.Contains(mapOf(t, events, "@failed"), name) {
			t.Errorf("no stack has %s:\n%s", name, mapOf(t, events, "@failed"))
		}
	}
}
