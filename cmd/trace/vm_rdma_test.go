//go:build vm

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// objects are numbers of RDMA objects: of a device under "rxe0 QP", of a process under "230 QP". None is not there.
type objects map[string]int64

// kernelObjects asks rdma.
func kernelObjects(t *testing.T) (devices, owners objects) {
	t.Helper()
	devices, owners = objects{}, objects{}
	var summary []map[string]any
	decodeText(t, sh(t, "rdma -j res"), &summary)
	for _, d := range summary {
		for kind, n := range d {
			if count, ok := n.(float64); ok && kind != "ifindex" && count != 0 {
				devices[fmt.Sprint(d["ifname"], " ", strings.ToUpper(kind))] = int64(count)
			}
		}
	}
	for _, kind := range []string{"qp", "cq", "pd", "mr", "cm_id", "ctx", "srq"} {
		out, err := exec.Command("rdma", "-j", "res", "show", kind).Output()
		if err != nil && (kind == "ctx" || kind == "srq") {
			continue // 5.10 does not list them
		}
		var all []map[string]any
		decodeText(t, string(out), &all)
		for _, o := range all {
			if o["pid"] != nil {
				owners[fmt.Sprint(o["pid"], " ", strings.ToUpper(kind))]++
			}
		}
	}
	return devices, owners
}

func decodeText(t *testing.T, text string, into any) {
	t.Helper()
	if strings.TrimSpace(text) == "" {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// resourceProgram prints the existing objects continuously.
const resourceProgram = `rdma:resource { @devices[dev, type] = gauge(delta); @owners[owner.pid, type] = gauge(delta) }
interval:300ms { print(@devices); print(@owners) }`

// gauges returns what trace printed last of both maps, once it has printed everything twice more.
func (tr *recorder) gauges(t *testing.T) (devices, owners objects) {
	t.Helper()
	lines := func() [][]byte {
		data, err := os.ReadFile(tr.events)
		if err != nil {
			t.Fatal(err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		return slices.DeleteFunc(bytes.Split(data, []byte("\n")), func(line []byte) bool { return !bytes.HasPrefix(line, []byte(`{"type":"map"`)) })
	}
	before := len(lines())
	for range 600 {
		if all := lines(); len(all) >= before+6 {
			if len(all)%2 != 0 { // between the two
				all = all[:len(all)-1]
			}
			return decodeGauge(t, all[len(all)-2]), decodeGauge(t, all[len(all)-1])
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("trace prints nothing:\n%s", tr.messages(t))
	return nil, nil
}

// lost reports whether trace has printed that it lost events.
func (tr *recorder) lost(t *testing.T) bool {
	t.Helper()
	tr.gauges(t)
	data, err := os.ReadFile(tr.events)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(data, []byte(`{"type":"lost_events"`))
}

func decodeGauge(t *testing.T, line []byte) objects {
	t.Helper()
	var m struct {
		Rows []struct {
			Key   []any
			Value int64
		}
	}
	decodeText(t, string(line), &m)
	found := objects{}
	for _, e := range m.Rows {
		if e.Key[0] != nil { // the kernel's own have no process
			found[fmt.Sprint(e.Key[0], " ", e.Key[1])] = e.Value
		}
	}
	return found
}

// there leaves out zeros.
func (o objects) there() objects {
	o = maps.Clone(o)
	maps.DeleteFunc(o, func(_ string, n int64) bool { return n == 0 })
	return o
}

// unlistedContexts reports whether the kernel only counts contexts, and does not list them with their owners.
func unlistedContexts() bool { return os.Getenv("VMTEST_KERNEL") == "5.10" }

// agree compares the gauges with the kernel while nothing changes, and returns the gauges of the processes, ended ones included.
func (tr *recorder) agree(t *testing.T, when string) (seen objects) {
	t.Helper()
	gotDevices, gotOwners := tr.gauges(t)
	devices, owners := kernelObjects(t)
	if !maps.Equal(gotDevices.there(), devices) {
		t.Errorf("%s: trace has %v, rdma res %v", when, gotDevices, devices)
	}
	for key, n := range gotOwners.there() {
		if strings.HasSuffix(key, " CTX") && unlistedContexts() {
			owners[key] = n
		}
	}
	if !maps.Equal(gotOwners.there(), owners) {
		t.Errorf("%s: trace has for processes %v, rdma res show %v", when, gotOwners, owners)
	}
	return gotOwners
}

// background starts a program that goes on until it is killed, and waits until it has made objects, and makes no more.
func background(t *testing.T, cpu int, args ...string) *exec.Cmd {
	t.Helper()
	cmd := onCPU(cpu, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	before := int64(0)
	for range 100 {
		n := objectsOf(t, cmd)
		if n > 0 && n == before {
			return cmd
		}
		before = n
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%q has no objects", args)
	return nil
}

// Gauges of objects are what rdma res shows, at any moment: with what was there before, what comes, what goes, and what is left by
// processes that are killed; where the work is done makes no difference.
func TestVMRdmaGauges(t *testing.T) {
	for _, flags := range [][]string{nil, {"--no-kernel"}} {
		t.Run("flags "+strings.Join(flags, " "), func(t *testing.T) {
			before := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50")
			waitForListener(t)
			listener := background(t, 0, "rping", "-s", "-a", "10.9.0.1", "-C", "3")
			trace := start(t, append(flags, resourceProgram)...)
			trace.agree(t, "at the start")
			if said := trace.messages(t); strings.Contains(said, "counted") {
				t.Errorf("trace has not seen everything:\n%s", said)
			}
			after := background(t, 1, "ibv_srq_pingpong", "-d", "rxe0", "-g", "1", "-p", "18600")
			trace.agree(t, "with a new process")
			for _, script := range []string{
				"ibv_devinfo", "taskset -c 1 ibv_rc_pingpong -d rxe0 -g 1 -n 50 10.9.0.1", "taskset -c 1 rping -c -a 10.9.0.1 -C 3",
			} {
				sh(t, "%s", script)
			}
			before.Wait()
			listener.Wait()
			trace.agree(t, "after two have come to their ends")
			after.Process.Kill()
			after.Wait()
			trace.agree(t, "after one was killed")
			trace.stop(t)
		})
	}
}

// Both engines count the same, and what rdma res shows at the end.
func TestVMRdmaEngines(t *testing.T) {
	background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50")
	waitForListener(t)
	trace := start(t, "--compare", `rdma:resource { @devices[dev, type] = gauge(delta); @owners[owner.pid, type] = gauge(delta) }
		rdma:resource / seeded && owner.comm contains "pingpong" / { @seeds[type] = count(); printf("%s %d\n", dev, id) }`)
	sh(t, "ibv_devinfo; taskset -c 1 ibv_rc_pingpong -d rxe0 -g 1 -n 50 10.9.0.1")
	background(t, 1, "rping", "-s", "-a", "10.9.0.1")
	devices, _ := kernelObjects(t)
	if err := trace.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := trace.cmd.Wait(); err != nil {
		t.Fatalf("trace: %v\n%s", err, trace.messages(t))
	}
	data, err := os.ReadFile(trace.events)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte(`"data":{"@devices":`)) {
			if got := decodeGauge(t, line).there(); !maps.Equal(got, devices) {
				t.Errorf("trace has %v, rdma res %v", got, devices)
			}
			return
		}
	}
	t.Errorf("no gauge of devices in\n%s", data)
}

// Each event describes its object, and rejected events are counted. The kernel counts what can be seen with probes of its own.
func TestVMRdmaEvents(t *testing.T) {
	server := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50")
	waitForListener(t)
	devices, _ := kernelObjects(t)
	var before int64
	for _, n := range devices {
		before += n
	}
	hits := countCalls(t, "rdma_restrack_add", "rdma_restrack_del", "rdma_restrack_begin_del")
	trace := start(t, "rdma:resource")
	filter := start(t, `rdma:resource / type == QP && owner.comm startsWith "ibv" /`)
	atStart := hits()
	sh(t, "ibv_devinfo; taskset -c 1 ibv_rc_pingpong -d rxe0 -g 1 -n 50 10.9.0.1")
	server.Wait()
	calls := hits() - atStart
	var qps, seeds int64
	sum := objects{}
	events := trace.stop(t)
	for _, e := range events {
		key := fmt.Sprint(e.text("type"), " ", e.num(t, "id"))
		sum[key] += e.num(t, "delta")
		if sum[key] != 0 && sum[key] != 1 {
			t.Errorf("%s is there %d times", key, sum[key])
		}
		if e.at("seeded") == true {
			seeds++
			if e.at("owner.pid") != nil && e.text("pid") != e.text("owner.pid") {
				t.Errorf("what was there before is not its maker's: %v", e)
			}
		} else {
			calls--
		}
		if e.text("dev") != "rxe0" || (e.at("owner.pid") == nil) == (e.at("owner.kernel") == nil) {
			t.Errorf("device or owner of %v", e)
		}
		if e.text("type") == "QP" && strings.HasPrefix(e.text("owner.comm"), "ibv") {
			qps++
		}
	}
	if seeds != before || calls != 0 {
		t.Errorf("%d objects were there before, rdma res shows %d; of the kernel's calls %d are missing", seeds, before, calls)
	}
	if got := filter.stop(t); int64(len(got)) != qps || qps != 4 {
		t.Errorf("%d events pass, want %d: a QP that was there and goes, and one that comes and goes", len(got), qps)
	}
	if want := fmt.Sprintf("rdma:resource: %d seen, 4 printed, %d rejected, 0 lost", len(events), len(events)-4); !strings.Contains(filter.messages(t), want) {
		t.Errorf("want %q in:\n%s", want, filter.messages(t))
	}
}

// Whatever comes and goes while trace starts, it is counted once.
func TestVMRdmaGaugesFromTheMidstOfIt(t *testing.T) {
	background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1")
	churn := onCPU(0, "sh", "-c", `while :; do
		ibv_devinfo & ibv_srq_pingpong -d rxe0 -g 1 -p 18700 & sleep 0.2; kill -9 $!; wait; done >/dev/null 2>&1`)
	churn.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := churn.Start(); err != nil {
		t.Fatal(err)
	}
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(-churn.Process.Pid, s); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		signal(syscall.SIGKILL)
		churn.Wait()
	})
	processes := map[string]bool{}
	compared := 0
	for i := range 20 {
		trace := start(t, resourceProgram)
		time.Sleep(time.Second)
		signal(syscall.SIGSTOP)
		// Where the kernel preempts programs, it leaves some of them out. trace reports it, and has not all objects.
		if !trace.lost(t) {
			for key := range trace.agree(t, fmt.Sprintf("start %d", i)) {
				pid, _, _ := strings.Cut(key, " ")
				processes[pid] = true
			}
			compared++
		}
		signal(syscall.SIGCONT)
		trace.end(t)
		if compared == 10 {
			break
		}
	}
	if compared < 10 {
		t.Errorf("of twenty starts, only %d lost nothing", compared)
	}
	if len(processes) < 5 {
		t.Errorf("no more than %d processes had objects: nothing came and went", len(processes))
	}
}

// countCalls returns how often functions that the kernel has were called since then, by kprobes of tracefs, in an instance of it that
// nobody reads.
func countCalls(t *testing.T, functions ...string) func() int64 {
	t.Helper()
	const tracefs = "/sys/kernel/tracing"
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		if regexp.MustCompile(`(?m) [tT] ` + f + `\t`).Match(symbols) {
			const enable = "instances/calls/events/kprobes/calls_"
			sh(t, "cd %s; mkdir -p instances/calls; echo p:calls_%s %[2]s >> kprobe_events; echo 1 > %s%[2]s/enable", tracefs, f, enable)
			t.Cleanup(func() {
				sh(t, "cd %s; echo 0 > %s%s/enable; echo -:calls_%[3]s >> kprobe_events", tracefs, enable, f)
			})
		}
	}
	return func() (total int64) {
		profile, err := os.ReadFile(filepath.Join(tracefs, "kprobe_profile"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(profile)) {
			var name string
			var hits int64
			if n, _ := fmt.Sscan(line, &name, &hits); n == 2 && strings.HasPrefix(name, "calls_") {
				total += hits
			}
		}
		return total
	}
}
