//go:build vm

package main

import (
	"fmt"
	"maps"
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

// What is known of mlx5 without its device: real verbs pass through the functions of a stand-in for mlx5_ib (cmd/vmtest/mlx5), with
// and without types; commands pass through the functions of a stand-in for mlx5_core; and the functions of the real modules are attached to.

const mlx5Verbs = "mlx5:*_qp, mlx5:*_pd, mlx5:*_cq, mlx5:*_mr, mlx5:*_dmabuf"

// standIns are the ways in which a driver comes: made for this kernel or not, and with types or not.
var standIns = []struct {
	name, file string
	types      bool
}{
	{"types", "mlx5_ib.ko", true},
	{"no types", "mlx5_ib.ko", false},
	{"other signatures", "mlx5_ib_other.ko", true},
	{"other signatures, no types", "mlx5_ib_other.ko", false},
}

// forEachStandIn runs a test with each of them loaded.
func forEachStandIn(t *testing.T, test func(t *testing.T, types bool)) {
	for _, s := range standIns {
		t.Run(s.name, func(t *testing.T) {
			if _, err := os.Stat("/sys/kernel/btf/ib_core"); s.types && err != nil {
				t.Skip("this kernel has no types of modules")
			}
			loadStandIn(t, s.file, s.types)
			if _, err := os.Stat("/sys/kernel/btf/mlx5_ib"); (err == nil) != s.types {
				t.Fatalf("types of mlx5_ib: %v", err)
			}
			test(t, s.types)
		})
	}
}

// loadStandIn loads a module with types or without. The headers of newer kernels make them; else pahole does.
func loadStandIn(t *testing.T, file string, types bool) {
	t.Helper()
	source := filepath.Join(filepath.Dir(standIn(t)), file)
	ko := filepath.Join(t.TempDir(), file)
	sh(t, "cp %s %s", source, ko)
	if types {
		sh(t, "readelf -SW %s | grep -qw .BTF || pahole -J --btf_base /sys/kernel/btf/vmlinux %s", ko, ko)
	} else {
		sh(t, "objcopy -R .BTF -R .BTF.base %s", ko)
	}
	sh(t, "insmod %s", ko)
	name := strings.TrimSpace(sh(t, "modinfo -F name %s", ko))
	// A tracer that was killed may hold it for a moment.
	t.Cleanup(func() {
		sh(t, "for i in $(seq 100); do rmmod %s 2>/dev/null && exit; sleep 0.2; done; rmmod %s", name, name)
	})
}

// Real verbs, good ones and failed ones: the counts of each function and process equal the counts of bpftrace's kprobes on the same
// functions, and the events have what the programs print and the kernel lists. A program that uses only their results has the same counts.
func TestVMIbMlx5Verbs(t *testing.T) {
	forEachStandIn(t, func(t *testing.T, types bool) {
		trace := start(t, mlx5Verbs)
		checkMlx5Variants(t, trace.messages(t), types)
		results := startTool(t, "Attached", "trace", "--strict", mlx5Verbs+" { @[probe, pid, (int64)ret] = count() }")
		theirs := startTool(t, "attached", "bpftrace", "-e", "kprobe:"+strings.Join(mlx5Functions(t), ",kprobe:")+
			` { @[probe, pid] = count(); } interval:ms:100 { printf("attached\n"); }`)
		var sides []side
		for _, c := range connections {
			both := c.run(t)
			sides = append(sides, both[:]...)
		}
		server := waitingServer(t)
		failures := failToCreate(t)
		for _, fd := range []int{7, -1} {
			sh(t, "echo 4096 65536 0x7f0000001000 %d 0x100007 > /sys/module/mlx5_ib/parameters/dmabuf", fd)
		}
		counted := theirs.stop(t)
		returned := results.stop(t)
		events := trace.stop(t)
		checkMlx5Counts(t, counted, events)
		checkResults(t, returned, events)
		for _, s := range sides {
			checkMlx5Side(t, s, eventsOf(s.pid, events))
		}
		server.check(t, events)
		failures.check(t, events)
		checkMlx5Dmabuf(t, events)
	})
}

// An MR that the driver does not let go, and that is deregistered again when its process ends, has an owner both times: ib_core forgets
// it before it asks the driver.
func TestVMIbMlx5DeregTwice(t *testing.T) {
	loadStandIn(t, "mlx5_ib.ko", false)
	trace := start(t, "ib:dereg_mr")
	sh(t, "echo -16 > /sys/module/mlx5_ib/parameters/fail_dereg")
	program := exec.Command(buildVerbs(t))
	program.Stdin = strings.NewReader("\n")
	if out, err := program.CombinedOutput(); err == nil {
		t.Fatalf("deregisters its MR:\n%s", out)
	}
	pid := int64(program.Process.Pid)
	var results []string
	for _, e := range eventsOf(pid, trace.stop(t)) {
		results = append(results, e.text("ret"))
		if e.num(t, "owner.pid") != pid || e.at("owner.kernel") != nil {
			t.Errorf("owner of %v, want process %d", e, pid)
		}
	}
	if want := []string{"-16", "0"}; !slices.Equal(results, want) {
		t.Errorf("results are %v, want %v", results, want)
	}
}

// TestVMIbMlx5Monitor: with --driver mlx5 rdma_monitor counts the calls into the driver that succeed, for two cgroups at once, and reports
// of those that fail.
func TestVMIbMlx5Monitor(t *testing.T) {
	forEachStandIn(t, func(t *testing.T, _ bool) {
		in := newPair(t, "driver")
		monitor := start(t, "rdma_monitor", "-i", "1", "--driver", "mlx5")
		functions := map[string]string{}
		for _, f := range mlx5Functions(t) {
			name := "mlx5:" + strings.Replace(strings.TrimPrefix(f, "mlx5_ib_"), "create_user_cq", "create_cq", 1)
			functions[name] += " " + f
		}
		bpftrace := startKprobes(t, functions)
		for _, c := range connections {
			in.run(t, traffic{c.server, c.client, waitForListener}, func() { compareLive(t, monitor.lastReport(t, 2), c.name) })
		}
		failToCreate(t) // in the cgroup of the test
		report := monitor.lastReport(t, 2)
		checkMonitor(t, in, report, kprobeCounts(t, bpftrace))
		if report.times["create_qp -ENOMEM"] != 1 || report.times["create_qp -EPERM"] != 1 {
			t.Errorf("failures of create_qp are %v, want one of -ENOMEM and one of -EPERM", report.times)
		}
		monitor.endLosingLookups(t)
	})
}

// checkMlx5Counts compares the events with bpftrace's counts by function and process.
func checkMlx5Counts(t *testing.T, theirs []string, events []jsonEvent) {
	t.Helper()
	want, got := make(map[string]int), make(map[string]int)
	for _, m := range regexp.MustCompile(`@\[kprobe:mlx5_ib_(\w+), (\d+)\]: (\d+)`).FindAllStringSubmatch(strings.Join(theirs, "\n"), -1) {
		n, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		want[strings.Replace(m[1], "create_user_cq", "create_cq", 1)+" "+m[2]] += n
	}
	for _, e := range events {
		got[strings.TrimPrefix(e.text("probe"), "mlx5:")+" "+e.text("pid")]++
	}
	// Of four processes that connect, and one that waits for another, nine functions each; of that one all but modify_qp is here, too.
	if !maps.Equal(got, want) || len(want) < 4*9+9 {
		t.Errorf("%d counts of %v, bpftrace has %d of %v", len(got), got, len(want), want)
	}
}

// checkResults compares the events with counts by probe, process and result.
func checkResults(t *testing.T, returned []string, events []jsonEvent) {
	t.Helper()
	want := make(map[string]int)
	for _, e := range events {
		want[fmt.Sprintf("@[%s, %s, %d]", e.text("probe"), e.text("pid"), e.num(t, "ret"))]++
	}
	var lines []string
	for key, n := range want {
		lines = append(lines, fmt.Sprintf("%s: %d", key, n))
	}
	slices.Sort(lines)
	if !slices.Equal(returned, lines) {
		t.Errorf("results are counted as\n%s\nthe events say\n%s", strings.Join(returned, "\n"), strings.Join(lines, "\n"))
	}
}

// mlx5Functions are the driver's functions that this kernel has.
func mlx5Functions(t *testing.T) []string {
	t.Helper()
	return strings.Fields(sh(t, `grep -wohE 'mlx5_ib_(create_qp|modify_qp|destroy_qp|alloc_pd|dealloc_pd|create_cq|create_user_cq|destroy_cq|reg_user_mr|reg_user_mr_dmabuf|dereg_mr)' /proc/kallsyms | sort -u`))
}

// checkMlx5Variants wants fexit where there are types, except for what takes more arguments than registers hold.
func checkMlx5Variants(t *testing.T, said string, types bool) {
	t.Helper()
	for _, name := range []string{"alloc_pd", "create_cq", "create_qp", "dealloc_pd", "dereg_mr", "destroy_cq", "destroy_qp", "modify_qp"} {
		variant := "kprobe"
		if types && !preempting() {
			variant = "fexit"
		}
		if !strings.Contains(said, "mlx5:"+name+" "+variant) {
			t.Errorf("mlx5:%s not by %s: %s", name, variant, said)
		}
	}
	if !strings.Contains(said, "mlx5:reg_user_mr_dmabuf kprobe") {
		t.Errorf("mlx5:reg_user_mr_dmabuf not by kprobe: %s", said)
	}
}

// checkMlx5Side compares the events of a process with what it prints of itself.
func checkMlx5Side(t *testing.T, s side, events []jsonEvent) {
	t.Helper()
	var states []string
	for _, e := range events {
		if e.num(t, "ret") != 0 || e.num(t, "latency") <= 0 || e.text("dev") != "rxe0" {
			t.Errorf("not a success on rxe0: %v", e)
		}
		if e.num(t, "owner.pid") != s.pid || e.text("owner.comm") != e.text("comm") || e.at("owner.kernel") != nil {
			t.Errorf("owner of %v, want process %d", e, s.pid)
		}
		switch e.text("probe") {
		case "mlx5:create_qp", "mlx5:modify_qp", "mlx5:destroy_qp":
			if e.num(t, "qp.num") != s.qpn || e.text("qp.type") != "RC" {
				t.Errorf("QP of %v, want %d, RC", e, s.qpn)
			}
			states = append(states, e.text("qp.state"))
			if e.text("probe") == "mlx5:modify_qp" && e.text("qp.state") == "RTR" {
				checkReadyToReceive(t, s, e)
			}
		case "mlx5:create_cq", "mlx5:destroy_cq":
			if e.num(t, "cq.cqe") <= 0 {
				t.Errorf("CQ without room: %v", e)
			}
		}
	}
	if want := slices.Concat([]string{"RESET"}, s.states, s.states[len(s.states)-1:]); !slices.Equal(states, want) {
		t.Errorf("states of process %d are %v, want %v", s.pid, states, want)
	}
}

// waiting is a server without clients, and the kernel's list of its objects.
type waiting struct {
	pid    int64
	mr, cq map[string]any
}

func waitingServer(t *testing.T) waiting {
	t.Helper()
	server := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-r", "300", "-s", "12345")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitForListener(t)
	pid := server.Process.Pid
	w := waiting{int64(pid), resource(t, "mr", pid), resource(t, "cq", pid)}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Wait()
	sh(t, `for i in $(seq 200); do rdma -j res show pd | grep -q '"pid":%d[,}]' || exit 0; sleep 0.05; done; exit 1`, pid)
	return w
}

// check compares the events of CQs, PDs and MRs with the kernel's lists, and ends with beginnings.
func (w waiting) check(t *testing.T, events []jsonEvent) {
	t.Helper()
	e := make(map[string]jsonEvent)
	for _, x := range eventsOf(w.pid, events) {
		e[strings.TrimPrefix(x.text("probe"), "mlx5:")] = x
	}
	reg, dereg := e["reg_user_mr"], e["dereg_mr"]
	if reg.num(t, "mr.length") != 12345 || fmt.Sprint(w.mr["mrlen"]) != "12345" {
		t.Errorf("%d bytes, rdma shows %v", reg.num(t, "mr.length"), w.mr["mrlen"])
	}
	if reg.text("mr.access") != "LOCAL_WRITE" || reg.text("mr.start") != reg.text("mr.iova") {
		t.Errorf("MR %v", reg)
	}
	for _, key := range []string{"mr.lkey", "mr.rkey", "mr.iova"} {
		if reg.num(t, key) != dereg.num(t, key) {
			t.Errorf("%s of %v and %v", key, reg, dereg)
		}
	}
	for _, key := range []string{"lkey", "rkey"} {
		if text, ok := w.mr[key].(string); ok && strings.TrimPrefix(text, "0x") != fmt.Sprintf("%x", reg.num(t, "mr."+key)) {
			t.Errorf("%s is %#x, rdma shows %s", key, reg.num(t, "mr."+key), text)
		}
	}
	cqe := fmt.Sprint(w.cq["cqe"])
	if e["create_cq"].text("cq.cqe") != cqe || e["destroy_cq"].text("cq.cqe") != cqe || e["create_cq"].num(t, "cq.comp_vector") != 0 {
		t.Errorf("CQs %v and %v, rdma shows cqe %s", e["create_cq"], e["destroy_cq"], cqe)
	}
	pd := e["alloc_pd"].text("pd")
	if pd == "0" || pd != e["dealloc_pd"].text("pd") || pd != reg.text("pd") {
		t.Errorf("PDs %s, %s, %s", pd, e["dealloc_pd"].text("pd"), reg.text("pd"))
	}
	if e["destroy_qp"].text("qp.state") != "INIT" {
		t.Errorf("QP of %v, want INIT", e["destroy_qp"])
	}
}

// failedCreates are processes whose QP could not be created, by their numbers, and the error.
type failedCreates map[int64]string

// failToCreate makes the stand-in fail, with errors at both ends of their range.
func failToCreate(t *testing.T) failedCreates {
	t.Helper()
	const fail = "/sys/module/mlx5_ib/parameters/fail"
	failed := make(failedCreates)
	for _, errno := range []string{"-12", "-1", "-4095"} {
		sh(t, "echo %s > %s", errno, fail)
		program := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1")
		if out, err := program.CombinedOutput(); err == nil {
			t.Fatalf("creates a QP that fails with %s:\n%s", errno, out)
		}
		failed[int64(program.Process.Pid)] = errno
	}
	sh(t, "echo 0 > %s", fail)
	return failed
}

// check wants the error, whatever kind of result the driver gives, and no QP.
func (f failedCreates) check(t *testing.T, events []jsonEvent) {
	t.Helper()
	for pid, errno := range f {
		var results []string
		for _, e := range eventsOf(pid, events) {
			if e.text("probe") != "mlx5:create_qp" {
				continue
			}
			results = append(results, e.text("ret"))
			if e.text("dev") != "rxe0" || e.text("qp.type") != "RC" || e.at("qp.num") != nil {
				t.Errorf("failed QP %v", e)
			}
		}
		if !slices.Equal(results, []string{errno}) {
			t.Errorf("results of process %d are %v, want %s", pid, results, errno)
		}
	}
}

// checkMlx5Dmabuf: the stand-in registered two by itself, as the software device takes none; the second failed.
func checkMlx5Dmabuf(t *testing.T, all []jsonEvent) {
	t.Helper()
	events := slices.DeleteFunc(slices.Clone(all), func(e jsonEvent) bool { return e.text("probe") != "mlx5:reg_user_mr_dmabuf" })
	if len(events) != 2 {
		t.Fatalf("%d events of dmabufs, want 2: %v", len(events), events)
	}
	for i, want := range []struct {
		fd, ret    int64
		lkey, rkey string
	}{{7, 0, "4660", "22136"}, {-1, -9, "<nil>", "<nil>"}} {
		e := events[i]
		if e.num(t, "fd") != want.fd || e.num(t, "ret") != want.ret || e.text("mr.lkey") != want.lkey || e.text("mr.rkey") != want.rkey {
			t.Errorf("event %d is %v, want %v", i, e, want)
		}
		if e.num(t, "mr.offset") != 4096 || e.num(t, "mr.length") != 65536 || e.num(t, "mr.iova") != 0x7f0000001000 ||
			e.text("mr.access") != "LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|RELAXED_ORDERING" {
			t.Errorf("arguments of %v", e)
		}
		if e.text("dev") != "rxe0" || e.text("owner.kernel") != "mlx5_ib" || e.at("owner.pid") != nil {
			t.Errorf("device and owner of %v", e)
		}
	}
}

// Without the types of ib_core only fields that need none remain, and the result is still right.
func TestVMIbMlx5HiddenTypes(t *testing.T) {
	loadStandIn(t, "mlx5_ib_other.ko", false)
	hideTypes(t, "ib_core")
	trace := start(t, mlx5Verbs)
	sides := connections[0].run(t)
	failed := failToCreate(t)
	events := trace.stop(t)
	for _, e := range events {
		for _, name := range []string{"dev", "qp.num", "qp.type", "cq.cqe", "mr.lkey"} {
			if e.at(name) != nil {
				t.Errorf("%s is there without types: %v", name, e)
			}
		}
		// The caller, of objects that belong to nothing else.
		if owner := e.at("owner.pid"); owner != nil && fmt.Sprint(owner) != e.text("pid") {
			t.Errorf("owner of %v", e)
		}
		want := "0"
		if errno, fails := failed[e.num(t, "pid")]; fails && e.text("probe") == "mlx5:create_qp" {
			want = errno
			delete(failed, e.num(t, "pid"))
		}
		if e.text("ret") != want || e.num(t, "latency") <= 0 {
			t.Errorf("result of %v, want %s", e, want)
		}
	}
	if len(failed) > 0 {
		t.Errorf("no events of failures %v", failed)
	}
	for _, s := range sides {
		own := eventsOf(s.pid, events)
		i := slices.IndexFunc(own, func(e jsonEvent) bool { return e.text("probe") == "mlx5:reg_user_mr" })
		if i < 0 || own[i].num(t, "mr.length") != 4096 || own[i].text("mr.access") != "LOCAL_WRITE" || len(own) != 8+len(s.states) {
			t.Errorf("events of process %d: %v", s.pid, own)
		}
	}
}

// A command has the arguments that the stand-in sent, whichever function it called, and the answer that the stand-in gave.
func TestVMIbMlx5Commands(t *testing.T) {
	for _, types := range []bool{true, false} {
		t.Run(fmt.Sprintf("types %v", types), func(t *testing.T) {
			if _, err := os.Stat("/sys/kernel/btf/ib_core"); types && err != nil {
				t.Skip("this kernel has no types of modules")
			}
			loadStandIn(t, "mlx5_core.ko", types)
			trace := start(t, "mlx5:cmd")
			variant := map[bool]string{true: "mlx5:cmd fexit", false: "mlx5:cmd kprobe"}[types && !preempting()]
			if !strings.Contains(trace.messages(t), variant) {
				t.Errorf("not %s: %s", variant, trace.messages(t))
			}
			functions := strings.Fields(sh(t, `grep -wohE 'mlx5_cmd_(exec|do|exec_polling|exec_cb)' /proc/kallsyms | sort -u`))
			var want []string
			for _, f := range functions {
				want = append(want, runCommands(t, f)...)
			}
			var got []string
			for _, e := range trace.stop(t) {
				got = append(got, fmt.Sprint(e.at("opcode"), " ", e.at("op_mod"), " ", e.at("devx_uid"), " ", e.at("status"), " ", e.at("syndrome"), " ",
					e.at("ret"), " ", e.at("async")))
				// The firmware takes as long as that; the callback of an asynchronous command is hurried.
				if e.text("comm") != "sh" || e.num(t, "latency") < 200_000 && e.at("async") == false || e.num(t, "latency") <= 0 {
					t.Errorf("caller and latency of %v", e)
				}
				// Its types come from the stand-in; vmlinux has none.
				if types && e.text("dev") != "0000:3b:00.0" || !types && e.at("dev") != nil {
					t.Errorf("device of %v", e)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// runCommands sends commands by one function and returns their events: opcode, op_mod, devx_uid, status, syndrome, ret, async.
func runCommands(t *testing.T, function string) []string {
	t.Helper()
	async := function == "mlx5_cmd_exec_cb"
	// mlx5_cmd_do leaves the status to the caller, and so do callbacks of the kernels that have it.
	leaves := function == "mlx5_cmd_do" || async && strings.TrimSpace(sh(t, "grep -cw mlx5_cmd_do /proc/kallsyms || true")) != "0"
	var want []string
	for _, c := range []struct {
		args   string // opcode, op_mod, uid, result, status, syndrome
		event  string // all but ret and async
		result int    // of functions that look at the status
	}{
		{"0x503 0 0 0 0 0", "INIT2RTR_QP 0 0 OK 0", 0},
		{"0xa00 3 7 0 3 0xabcdef", "CREATE_GENERAL_OBJECT 3 7 BAD_PARAM_ERR 11259375", -22},
		{"0x200 0 0 0 8 1", "CREATE_MKEY 0 0 LIM_ERR 1", -12},
		{"0x500 0 0 0 6 2", "CREATE_QP 0 0 RES_BUSY 2", -16},
		{"0x504 0 0 0 16 3", "RTR2RTS_QP 0 0 BAD_QP_STATE_ERR 3", -22},
		{"0x105 0 0 0 15 0", "DISABLE_HCA 0 0 NO_RES_ERR 0", -11},
		{"0xfff 65535 65535 0 0x77 4", "4095 65535 65535 119 4", -5},
		{"0x100 0 0 -110 0 0", "QUERY_HCA_CAP 0 0 <nil> <nil>", -110},
	} {
		sh(t, "echo %s %s > /sys/module/mlx5_core/parameters/command", function, c.args)
		ret := c.result
		if leaves && ret != 0 && ret != -110 {
			ret = -121
		}
		want = append(want, fmt.Sprint(c.event, " ", ret, " ", async))
	}
	return want
}

// The probes find the functions of the real modules, which load without their device, and attach to all of them.
func TestVMIbMlx5Real(t *testing.T) {
	sh(t, "modprobe mlx5_ib")
	t.Cleanup(func() { sh(t, "modprobe -r mlx5_ib; ! lsmod | grep -w mlx5_core || modprobe -r mlx5_core") })
	trace := start(t, "mlx5:*")
	defer trace.stop(t)
	// The kernel shows what is attached: fexit programs by the first 15 characters of their names, kprobes in debugfs.
	time.Sleep(100 * time.Millisecond)
	kprobes := sh(t, "cat /sys/kernel/debug/kprobes/list")
	traced := sh(t, "cat /sys/kernel/tracing/enabled_functions")
	functions := append(mlx5Functions(t), strings.Fields(sh(t, `grep -wohE 'mlx5_cmd_(exec|do|exec_polling|exec_cb|exec_cb_handler)' /proc/kallsyms | sort -u`))...)
	if len(functions) < 13 { // of 5.10
		t.Fatalf("the modules have only %v", functions)
	}
	for _, f := range functions {
		word := regexp.MustCompile(`(?m)\b` + f + `\b`)
		if !word.MatchString(kprobes) && !word.MatchString(traced) {
			t.Errorf("nothing is attached to %s", f)
		}
	}
	for _, probe := range []string{"alloc_pd", "cmd", "create_cq", "create_qp", "dealloc_pd", "dereg_mr", "destroy_cq", "destroy_qp", "modify_qp",
		"reg_user_mr"} {
		variant := bestVariant()
		if probe == "reg_user_mr" && strings.Contains(sh(t, "mlx5_args() { bpftool btf dump file /sys/kernel/btf/mlx5_ib 2>/dev/null || true; }; mlx5_args"), "'dmah'") {
			variant = "kprobe" // seven arguments
		}
		if !strings.Contains(trace.messages(t), "mlx5:"+probe+" "+variant) {
			t.Errorf("mlx5:%s not by %s: %s", probe, variant, trace.messages(t))
		}
	}
}
