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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// side is one of the two processes of a connection, as it describes itself.
type side struct {
	pid           int64
	qpn, psn      int64
	gid           string // "" where the program prints none that can be read
	peerQPN       int64
	peerPSN       int64
	peerGID       string
	states        []string // that its QP is set to
	resourceState string   // of its QP in `rdma res show qp` while the traffic flows
}

// connection is a program that talks to itself over RDMA; both sides print their QPNs.
type connection struct {
	name           string
	server, client []string
	serverEnds     string         // the state in which the server's QP stays; the client's sends
	address        *regexp.Regexp // of a line with QPN, PSN and perhaps GID; local first, then remote
}

var connections = []connection{
	{
		name:       "ibv_rc_pingpong",
		server:     []string{"ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "200"},
		client:     []string{"ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "200", "10.9.0.1"},
		serverEnds: "RTS",
		address:    regexp.MustCompile(`QPN (0x\w+), PSN (0x\w+), GID (\S+)`),
	},
	{
		// -F lets it go on where it cannot measure the CPU's clock. 200 messages pass between two looks at what the kernel lists.
		name:       "ib_send_bw",
		server:     []string{"ib_send_bw", "-F", "-d", "rxe0", "-x", "1", "-n", "3000", "-s", "1024"},
		client:     []string{"ib_send_bw", "-F", "-d", "rxe0", "-x", "1", "-n", "3000", "-s", "1024", "10.9.0.1"},
		serverEnds: "RTR", // it only receives
		address:    regexp.MustCompile(`QPN (0x\w+) PSN (0x\w+)()`),
	},
}

// run runs both sides and asks the kernel about their QPs while they are connected.
func (c connection) run(t *testing.T) [2]side {
	t.Helper()
	var outputs [2]bytes.Buffer
	var cmds [2]*exec.Cmd
	for i, args := range [][]string{c.server, c.client} {
		cmds[i] = onCPU(i, args...)
		cmds[i].Stdout, cmds[i].Stderr = &outputs[i], &outputs[i]
		if i == 1 {
			waitForListener(t)
		}
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmds[i].Process.Kill() })
	}
	states := connectedQPs(t, map[int64]string{int64(cmds[0].Process.Pid): c.serverEnds, int64(cmds[1].Process.Pid): "RTS"})
	var sides [2]side
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, &outputs[i])
		}
		sides[i] = c.parse(t, outputs[i].String())
		sides[i].pid = int64(cmd.Process.Pid)
		sides[i].states = []string{"INIT", "RTR", "RTS"}
		if i == 0 && c.serverEnds == "RTR" {
			sides[i].states = []string{"INIT", "RTR"}
		}
		sides[i].resourceState = states[sides[i].pid]
	}
	return sides
}

// onCPU is a command that runs on one CPU.
func onCPU(cpu int, args ...string) *exec.Cmd {
	return exec.Command("taskset", append([]string{"-c", strconv.Itoa(cpu)}, args...)...)
}

// listening matches a socket in /proc/net/tcp or tcp6 that listens on port 18515, which both programs use.
var listening = regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:4853 [0-9A-F]+:0000 0A `)

func waitForListener(t *testing.T) {
	t.Helper()
	for range 500 {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if data, err := os.ReadFile(table); err == nil && listening.Match(data) {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
}

// connectedQPs polls `rdma res show qp` until the QP of each process is in the wanted state, and returns "QPN type state" of it.
func connectedQPs(t *testing.T, want map[int64]string) map[int64]string {
	t.Helper()
	found := make(map[int64]string)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var qps []struct {
			LQPN  int64  `json:"lqpn"`
			Type  string `json:"type"`
			State string `json:"state"`
			PID   int64  `json:"pid"`
		}
		if err := json.Unmarshal([]byte(sh(t, "rdma -j res show qp")), &qps); err != nil {
			t.Fatal(err)
		}
		for _, qp := range qps {
			if qp.State == want[qp.PID] {
				found[qp.PID] = fmt.Sprintf("%d %s %s", qp.LQPN, qp.Type, qp.State)
			}
		}
		if len(found) == len(want) {
			return found
		}
	}
	t.Fatalf("rdma res shows %v, want %v", found, want)
	return nil
}

func (c connection) parse(t *testing.T, output string) side {
	t.Helper()
	lines := c.address.FindAllStringSubmatch(output, -1)
	if len(lines) != 2 {
		t.Fatalf("%s printed %d addresses:\n%s", c.name, len(lines), output)
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	local, remote := lines[0], lines[1]
	return side{
		qpn: number(local[1]), psn: number(local[2]), gid: local[3],
		peerQPN: number(remote[1]), peerPSN: number(remote[2]), peerGID: remote[3],
	}
}

// Both programs give exactly the events that they cause, with the numbers that they print and that the kernel lists.
func TestVMIbConnections(t *testing.T) {
	for _, c := range connections {
		t.Run(c.name, func(t *testing.T) {
			trace := start(t, "ib:*_qp")
			sides := c.run(t)
			events := trace.stop(t)
			for _, s := range sides {
				checkSide(t, s, events)
			}
			if want := 4 + len(sides[0].states) + len(sides[1].states); len(events) != want {
				t.Errorf("%d events, want %d: two creates, the changes of state, two destroys", len(events), want)
			}
		})
	}
}

func eventsOf(pid int64, events []jsonEvent) []jsonEvent {
	var own []jsonEvent
	for _, e := range events {
		if e.text("pid") == fmt.Sprint(pid) {
			own = append(own, e)
		}
	}
	return own
}

func checkSide(t *testing.T, s side, events []jsonEvent) {
	t.Helper()
	own := eventsOf(s.pid, events)
	want := []string{"ib:create_qp RESET <nil>"}
	prev := "<nil>"
	for _, state := range s.states {
		want = append(want, "ib:modify_qp "+state+" "+prev)
		prev = state
	}
	want = append(want, "ib:destroy_qp "+prev+" <nil>")
	if len(own) != len(want) {
		t.Fatalf("process %d has %d events, want %d: %v", s.pid, len(own), len(want), own)
	}
	for i, e := range own {
		if got := fmt.Sprint(e.text("probe"), " ", e.text("qp.state"), " ", e.text("prev_state")); got != want[i] {
			t.Errorf("event %d is %q, want %q", i, got, want[i])
		}
		if e.num(t, "qp.num") != s.qpn || e.text("qp.type") != "RC" || e.text("dev") != "rxe0" || e.num(t, "ret") != 0 {
			t.Errorf("QP of %v, want number %d, RC, rxe0, success", e, s.qpn)
		}
		if e.num(t, "owner.pid") != s.pid || e.text("owner.comm") != e.text("comm") || e.at("owner.kernel") != nil {
			t.Errorf("owner of %v, want process %d", e, s.pid)
		}
		if e.num(t, "latency") <= 0 {
			t.Errorf("latency of %v", e)
		}
	}
	checkReadyToReceive(t, s, own[2])
	if prev == "RTS" {
		if psn := own[3].num(t, "sq_psn"); psn != s.psn {
			t.Errorf("sq_psn is %#x, the program has %#x", psn, s.psn)
		}
	}
	if want := fmt.Sprintf("%d RC %s", s.qpn, prev); s.resourceState != want {
		t.Errorf("rdma res shows %q, want %q", s.resourceState, want)
	}
}

// The change to RTR names both ends of the connection.
func checkReadyToReceive(t *testing.T, s side, e jsonEvent) {
	t.Helper()
	for name, want := range map[string]int64{"dest_qpn": s.peerQPN, "rq_psn": s.peerPSN, "sgid_index": 1, "qp.port": 1} {
		if got := e.num(t, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	// ib_send_bw prints its GIDs in decimal bytes; rxe0 has this one at index 1.
	gid, peer := "::ffff:10.9.0.1", "::ffff:10.9.0.1"
	if s.gid != "" {
		gid, peer = s.gid, s.peerGID
	}
	if e.text("sgid") != gid || e.text("dgid") != peer || e.text("sgid_type") != "RoCEv2" {
		t.Errorf("RTR from %s (%s) to %s, the program has from %s to %s", e.text("sgid"), e.text("sgid_type"), e.text("dgid"), gid, peer)
	}
	if mtu := e.num(t, "path_mtu"); mtu != 1024 {
		t.Errorf("path_mtu is %d; the MTU of the device is 1500", mtu)
	}
}

// A filter shows what it must, and what it must reject is counted.
func TestVMIbFilter(t *testing.T) {
	trace := start(t, "qp.state==RTR")
	connections[0].run(t)
	events := trace.stop(t)
	if len(events) != 2 {
		t.Errorf("%d events, want one for each side: %v", len(events), events)
	}
	for probe, want := range map[string]string{
		"ib:create_qp": "2 seen, 0 printed, 2 rejected, 0 lost", "ib:modify_qp": "6 seen, 2 printed, 4 rejected, 0 lost",
		"ib:destroy_qp": "2 seen, 0 printed, 2 rejected, 0 lost",
	} {
		if !strings.Contains(trace.messages(t), probe+": "+want) {
			t.Errorf("%s: want %q in:\n%s", probe, want, trace.messages(t))
		}
	}
}

// A change that fails is seen with its error and leaves the state: without a GID there is no way to a peer on Ethernet.
func TestVMIbFailure(t *testing.T) {
	trace := start(t, "ib:*_qp")
	failToConnect(t)
	var failed, destroyed int
	for _, e := range trace.stop(t) {
		switch {
		case e.text("qp.state") == "RTR" && e.text("probe") == "ib:modify_qp":
			failed++
			if e.num(t, "ret") != -22 || e.text("prev_state") != "INIT" || e.at("sgid") != nil {
				t.Errorf("RTR without a GID: %v", e)
			}
		case e.text("probe") == "ib:destroy_qp":
			destroyed++
			if e.text("qp.state") != "INIT" {
				t.Errorf("the failed change left state %s", e.text("qp.state"))
			}
		}
	}
	if failed == 0 || destroyed != 2 {
		t.Errorf("%d failed changes, %d QPs destroyed", failed, destroyed)
	}
}

// failToConnect runs both sides without a GID.
func failToConnect(t *testing.T) {
	t.Helper()
	server := onCPU(0, "ibv_rc_pingpong", "-d", "rxe0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitForListener(t)
	if out, err := onCPU(1, "ibv_rc_pingpong", "-d", "rxe0", "10.9.0.1").CombinedOutput(); err == nil {
		t.Fatalf("the client connects without a GID:\n%s", out)
	}
	if err := server.Wait(); err == nil {
		t.Fatal("the server connects without a GID")
	}
}

// A program that uses only the results of calls keeps no beginnings. It counts the same successes and failures as a program that also uses
// the latency, and as bpftrace.
func TestVMIbReturns(t *testing.T) {
	const every = "ib:*_qp, ib:*_pd, ib:*_cq, ib:*_mr"
	verbs := buildVerbs(t)
	returns := startTool(t, "Attached", "trace", "--strict", every+" { @[probe, (int64)ret] = count() }")
	latencies := startTool(t, "Attached", "trace", "--strict", every+" / latency > 0 / { @[probe, (int64)ret] = count() }")
	bpftrace := startTool(t, "attached", "bpftrace", "-e",
		`kretprobe:ib_modify_qp_with_udata, kretprobe:ib_modify_qp { @["ib:modify_qp", (int32)retval] = count(); } interval:ms:100 { printf("attached\n"); }`)
	connections[0].run(t)
	failToConnect(t)
	sh(t, "echo | %s", verbs)
	theirs, whole, ours := bpftrace.stop(t), latencies.stop(t), returns.stop(t)
	if !slices.Equal(ours, whole) {
		t.Errorf("results are\n%s\nof those with a latency\n%s", strings.Join(ours, "\n"), strings.Join(whole, "\n"))
	}
	modified := slices.DeleteFunc(slices.Clone(ours), func(line string) bool { return !strings.HasPrefix(line, "@[ib:modify_qp, ") })
	if !slices.Equal(modified, theirs) || len(modified) < 2 {
		t.Errorf("results of changes are %q, bpftrace has %q", modified, theirs)
	}
	for _, probe := range []string{"create_qp, 0", "destroy_qp, 0", "modify_qp, 0", "modify_qp, -22", "alloc_pd, 0", "dealloc_pd, 0",
		"dealloc_pd, -16", "create_cq, 0", "create_cq, -22", "destroy_cq, 0", "reg_mr, 0", "reg_mr, -14", "dereg_mr, 0"} {
		if !strings.Contains(strings.Join(ours, "\n"), "@[ib:"+probe+"]: ") {
			t.Errorf("no ib:%s among\n%s", probe, strings.Join(ours, "\n"))
		}
	}
}

// Without the types the events come through kprobes, with the fields that do not need them; with --btf they are complete.
func TestVMIbHiddenTypes(t *testing.T) {
	hideTypes(t, "ib_core")
	trace := start(t, "ib:*_qp")
	sides := connections[0].run(t)
	events := trace.stop(t)
	if len(events) != 10 {
		t.Errorf("%d events, want 10", len(events))
	}
	for _, e := range events {
		for _, name := range []string{"dev", "qp.num", "qp.type", "owner.pid", "sgid", "dgid", "dest_qpn"} {
			if e.at(name) != nil {
				t.Errorf("%s is there without types: %v", name, e)
			}
		}
		if e.num(t, "ret") != 0 || e.num(t, "latency") <= 0 || len(eventsOf(sides[0].pid, []jsonEvent{e}))+len(eventsOf(sides[1].pid, []jsonEvent{e})) != 1 {
			t.Errorf("what needs no types: %v", e)
		}
	}

	types := filepath.Join(t.TempDir(), "types.btf")
	sh(t, "pahole --btf_encode_detached %s %s", types, standIn(t))
	trace = start(t, "--btf", types, "ib:*_qp")
	sides = connections[0].run(t)
	events = trace.stop(t)
	for _, s := range sides {
		checkSide(t, s, events)
	}
}

// standIn is a driver that was compiled against the headers of this kernel, with debug information.
func standIn(t *testing.T) string {
	t.Helper()
	ko := os.Getenv("VMTEST_MLX5_KO")
	if ko == "" {
		t.Fatal("VMTEST_MLX5_KO is not set: run vmtest with -mlx5")
	}
	return ko
}

// Each variant runs with just the capabilities that it needs, and the one that is missing is named.
func TestVMIbCapabilities(t *testing.T) {
	paranoid := strings.TrimSpace(sh(t, "cat /proc/sys/kernel/perf_event_paranoid"))
	t.Cleanup(func() { sh(t, "echo %s > /proc/sys/kernel/perf_event_paranoid", paranoid) })
	// The model of preemption decides between fexit and kprobe. An ordinary user reads it in /boot/config, which this machine does not have.
	sh(t, "mount -o remount,mode=755 /sys/kernel/debug")
	t.Cleanup(func() { sh(t, "mount -o remount,mode=700 /sys/kernel/debug") })
	for _, test := range []struct {
		caps, paranoid string
		variant        string // that is used, or "" if none can be
	}{
		{caps: "bpf,perfmon", paranoid: "2", variant: "ib:modify_qp kprobe"},
		{caps: "bpf,perfmon", paranoid: "3"},
		{caps: "bpf,perfmon,sys_admin", paranoid: "3", variant: "ib:modify_qp " + bestVariant()},
	} {
		t.Run(test.caps+" at "+test.paranoid, func(t *testing.T) {
			sh(t, "echo %s > /proc/sys/kernel/perf_event_paranoid", test.paranoid)
			if test.variant == "" {
				out, err := asNobody(t, test.caps, "ib:modify_qp").CombinedOutput()
				if err == nil || !strings.Contains(string(out), "needs CAP_SYS_ADMIN") || strings.Contains(string(out), "support") {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			trace := startAsNobody(t, test.caps, "ib:modify_qp / qp.state == RTR /")
			if !strings.Contains(trace.messages(t), test.variant) {
				t.Errorf("not through %s:\n%s", test.variant, trace.messages(t))
			}
			sides := connections[0].run(t)
			for _, e := range trace.stop(t) {
				if len(eventsOf(sides[0].pid, []jsonEvent{e}))+len(eventsOf(sides[1].pid, []jsonEvent{e})) != 1 || e.text("dgid") != sides[0].gid {
					t.Errorf("event of nobody: %v", e)
				}
			}
		})
	}
}

// bestVariant is fexit where the module has BTF, and tasks are not preempted in programs.
func bestVariant() string {
	if _, err := os.Stat("/sys/kernel/btf/ib_core"); err == nil && !preempting() {
		return "fexit"
	}
	return "kprobe"
}

// preempting reports whether the machine's kernel is one of those that preempt tasks in programs: 7.2 knows only full and lazy.
func preempting() bool {
	return slices.Contains([]string{"6.1-rt", "6.12-full", "7.2"}, os.Getenv("VMTEST_KERNEL"))
}

// The BTF of modules that have nothing to do with a probe may be broken: the events come anyway.
func TestVMIbBrokenTypesOfOthers(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("this is no BTF"), 0o444); err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Glob("/sys/kernel/btf/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range modules {
		if name := filepath.Base(path); name != "vmlinux" && name != "ib_core" {
			sh(t, "mount --bind %s %s", garbage, path)
			t.Cleanup(func() { sh(t, "umount %s", path) })
		}
	}
	trace := start(t, "ib:*_qp")
	sides := connections[0].run(t)
	events := trace.stop(t)
	for _, s := range sides {
		checkSide(t, s, events)
	}
}
