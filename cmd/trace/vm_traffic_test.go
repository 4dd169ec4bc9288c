//go:build vm

package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// traffic is a program that talks to itself.
type traffic struct {
	server, client []string
	wait           func(*testing.T) // until the server is ready
}

// rdmaTraffic is all that connects over rxe0: by sockets and by rdma_cm, with every type of QP that the device has, and with the old and
// the new API to post work.
func rdmaTraffic() (all []traffic) {
	add := func(wait func(*testing.T), args string) {
		server := strings.Fields(args)
		all = append(all, traffic{server, append(slices.Clone(server), "10.9.0.1"), wait})
	}
	for _, name := range []string{"rc", "uc", "ud", "srq"} {
		add(waitForListener, "ibv_"+name+"_pingpong -d rxe0 -g 1 -n 50")
	}
	for _, name := range []string{"ib_send_bw", "ib_write_lat", "ib_read_bw"} {
		add(waitForListener, name+" -F -d rxe0 -x 1 -n 50 -s 1024")
		add(waitForListener, name+" -F -d rxe0 -x 1 -n 50 -s 1024 --use_old_post_send")
	}
	add(waitForRping, "ib_send_bw -F -R -n 50 -s 1024")
	return append(all, traffic{
		[]string{"rping", "-s", "-a", "10.9.0.1", "-C", "3"}, []string{"rping", "-c", "-a", "10.9.0.1", "-C", "3"}, waitForRping,
	})
}

// pair is two cgroups, for two processes at once.
type pair struct {
	folders [2]*os.File
	ids     [2]uint64
	cgroups map[int]uint64 // by the processes that were in them
}

func newPair(t *testing.T, name string) *pair {
	t.Helper()
	p := &pair{cgroups: map[int]uint64{}}
	for i := range p.folders {
		p.folders[i], p.ids[i] = newCgroup(t, fmt.Sprint(name, i))
	}
	return p
}

// start starts a command on the CPU and in the cgroup of that number. A datagram that got lost must not hold it for ever.
func (p *pair) start(t *testing.T, i int, args ...string) *exec.Cmd {
	t.Helper()
	cmd := onCPU(i, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(p.folders[i].Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() { limit.Stop() })
	p.cgroups[cmd.Process.Pid] = p.ids[i]
	return cmd
}

// run runs both sides of a traffic, one in each cgroup; while is called when the server waits.
func (p *pair) run(t *testing.T, tr traffic, while func()) {
	t.Helper()
	server := p.start(t, 0, tr.server...)
	tr.wait(t)
	while()
	for _, cmd := range []*exec.Cmd{p.start(t, 1, tr.client...), server} {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", cmd.Args, err)
		}
	}
}

// verbProbes are the probes of verbs with the function of the driver that does the work.
func verbProbes() map[string]string {
	functions := map[string]string{"ib:create_qp": "rxe_create_qp", "ib:modify_qp": "rxe_modify_qp", "ib:destroy_qp": "rxe_destroy_qp"}
	maps.Copy(functions, objectProbes)
	return functions
}

// TestVMRdmaTraffic runs two processes in two cgroups at once, with each traffic: what each process does is counted as the driver's
// functions are called, event by event, and by rdma_monitor for the cgroup; and as long as the server has objects, rdma_monitor and
// `rdma res` have the same number of them.
func TestVMRdmaTraffic(t *testing.T) {
	in := newPair(t, "traffic")
	monitor := start(t, "rdma_monitor", "-i", "1")
	trace := start(t, "ib:*_qp, ib:*_pd, ib:*_cq, ib:*_mr, cm:send_req")
	functions := verbProbes()
	functions["cm:send_req"] = "tracepoint:rdma_cma:cm_send_req"
	functions["failed"] = "kretprobe:ib_modify_qp_with_udata / (int32)retval < 0 /"
	bpftrace := startKprobes(t, functions)
	hits := startHits(t)
	for _, tr := range rdmaTraffic() {
		in.run(t, tr, func() { compareLive(t, monitor.lastReport(t, 2), strings.Join(tr.server, " ")) })
	}
	sh(t, "ibv_devinfo -v -d rxe0") // makes no objects
	connected := len(in.cgroups)
	// Without a GID there is no connection, and modify_qp fails on both sides.
	failing := in.start(t, 0, "ibv_rc_pingpong", "-d", "rxe0")
	waitForListener(t)
	if in.start(t, 1, "ibv_rc_pingpong", "-d", "rxe0", "10.9.0.1").Wait() == nil || failing.Wait() == nil {
		t.Error("connected without a GID")
	}

	report := monitor.lastReport(t, 2)
	calls := hits()
	want := kprobeCounts(t, bpftrace)
	events := trace.stop(t)
	amend(t, want, trafficCounts(t, events), calls)
	checkTraffic(t, in, events, want, connected)
	checkMonitor(t, in, report, want)
	failed := 0
	for key, n := range want {
		if strings.HasPrefix(key, "failed ") {
			failed += n
		}
	}
	if got := report.times["modify_qp -EINVAL"]; failed == 0 || got != failed { // the other side may give up first
		t.Errorf("rdma_monitor has %d failures of modify_qp, bpftrace %d", got, failed)
	}
	monitor.end(t) // what it lost would show above
}

// compareLive wants rdma_monitor to have as many objects as rdma.
func compareLive(t *testing.T, report monitored, when string) {
	t.Helper()
	if want := liveResources(t); !maps.Equal(report.live, want) {
		t.Errorf("%s: rdma_monitor has %v, rdma res %v", when, report.live, want)
	}
}

// amend corrects bpftrace's counts where it missed calls without reporting it, as on 7.2: where ftrace counts more, as many as there are events,
// and no process has fewer of them.
func amend(t *testing.T, want, got, calls map[string]int) {
	t.Helper()
	for probe, n := range calls {
		all, seen, fewer := 0, 0, false
		for key := range merge(want, got) {
			if strings.HasPrefix(key, probe+" ") {
				all, seen, fewer = all+got[key], seen+want[key], fewer || got[key] < want[key]
			}
		}
		if seen == n || all != n || fewer {
			continue
		}
		t.Logf("bpftrace has %d of %d calls for %s", seen, n, probe)
		for key := range got {
			if strings.HasPrefix(key, probe+" ") {
				want[key] = got[key]
			}
		}
	}
}

// checkTraffic compares the events with bpftrace's counts by name, process and cgroup. Of the processes the first connected, which does
// not go without any verb.
func checkTraffic(t *testing.T, in *pair, events []jsonEvent, want map[string]int, connected int) {
	t.Helper()
	got := trafficCounts(t, events)
	for _, e := range events {
		if e.text("probe") != "cm:send_req" && (e.text("owner.pid") != e.text("pid") || e.at("owner.kernel") != nil || e.text("dev") != "rxe0" || e.num(t, "latency") <= 0) {
			t.Errorf("want an object of the caller on rxe0: %v", e)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("events by probe, process and cgroup are\n%v\nbpftrace counts the driver's functions\n%v", got, want)
	}
	whole, asked := 0, 0
	for pid, cgroup := range in.cgroups {
		missing := 0
		for probe := range verbProbes() {
			if want[fmt.Sprint(probe, " ", pid, " ", cgroup)] == 0 {
				missing++
			}
		}
		if missing == 0 {
			whole++
		}
		asked += want[fmt.Sprint("cm:send_req ", pid, " ", cgroup)]
	}
	if whole < connected || asked < 2 { // by rping and ib_send_bw -R
		t.Errorf("bpftrace saw all verbs of %d processes of %d, and %d requests for a connection", whole, connected, asked)
	}
}

// trafficCounts counts the events by name, process and cgroup; failed verbs are called failed.
func trafficCounts(t *testing.T, events []jsonEvent) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, e := range events {
		name := e.text("probe")
		if e.at("ret") != nil && e.num(t, "ret") < 0 {
			name = "failed"
		}
		counts[fmt.Sprint(name, " ", e.text("pid"), " ", e.text("cgroup.id"))]++
	}
	return counts
}

// checkMonitor compares what rdma_monitor counts for each cgroup.
func checkMonitor(t *testing.T, in *pair, report monitored, want map[string]int) {
	t.Helper()
	for i, id := range in.ids {
		sums := map[string]int{}
		for key, n := range want {
			if m := regexp.MustCompile(`^\w+:(\w+) \d+ (\d+)$`).FindStringSubmatch(key); m != nil && m[2] == fmt.Sprint(id) {
				sums[m[1]] += n
			}
		}
		got := maps.Clone(report.ops[in.path(i)])
		for _, lookup := range []string{"get_gid", "gid_ndev"} { // which are not among what bpftrace counts here
			delete(got, lookup)
		}
		if len(sums) == 0 || !maps.Equal(got, sums) {
			t.Errorf("%s: rdma_monitor has %v, bpftrace %v", in.path(i), got, sums)
		}
	}
}

// path of a cgroup.
func (p *pair) path(i int) string { return strings.TrimPrefix(p.folders[i].Name(), "/sys/fs/cgroup") }

// TestVMNvmeTraffic runs fio in two cgroups at once, on a disk each, then nvme-cli, and fio on a disk of a target: the commands that are
// handed to the driver, by process and cgroup, are the calls of its function, and each of them ends once.
func TestVMNvmeTraffic(t *testing.T) {
	small, large := namespaces(t)
	remote := remoteDisk(t)
	in := newPair(t, "commands")
	trace := start(t, "nvme:setup_cmd, nvme:complete_rq")
	bpftrace := startKprobes(t, map[string]string{"nvme:setup_cmd": "nvme_setup_cmd"})
	together := func(first, second []string) {
		t.Helper()
		for _, cmd := range []*exec.Cmd{in.start(t, 0, first...), in.start(t, 1, second...)} {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%q: %v", cmd.Args, err)
			}
		}
	}
	fio := func(disk, rw string) []string {
		return append([]string{"fio"}, fioArgs(namespace{disk: disk}, "--output=/dev/null --name=x --iodepth=8 --number_ios=100 --rw="+rw)...)
	}
	together(fio(small.disk, "randread"), fio(large.disk, "randwrite"))
	together(fio(remote, "randwrite"), fio(remote, "randread"))
	together([]string{"nvme", "id-ctrl", "/dev/nvme0"}, []string{"nvme", "flush", "/dev/" + small.disk, "-n", "1"})
	together([]string{"nvme", "smart-log", "/dev/nvme0"}, []string{"nvme", "get-feature", "/dev/nvme0", "-f", "7"})
	want := in.only(kprobeCounts(t, bpftrace))
	events, lost := trace.stopAll(t)
	for _, probe := range []string{"nvme:setup_cmd", "nvme:complete_rq"} {
		got, missing := map[string]int{}, 0
		for key, n := range in.only(eventCounts(where(events, fields{"probe": probe}))) {
			got[strings.Replace(key, probe, "nvme:setup_cmd", 1)] = n
		}
		for key := range merge(got, want) {
			if missing += want[key] - got[key]; got[key] > want[key] {
				missing = math.MaxInt
				break
			}
		}
		if missing > lost[probe] {
			t.Errorf("%s by the process and cgroup of the submitter, without %d that were lost:\n%v\nbpftrace counts commands\n%v", probe, lost[probe], got, want)
		}
	}
	if len(want) != len(in.cgroups) {
		t.Errorf("bpftrace saw commands of %d processes, there were %d: %v", len(want), len(in.cgroups), want)
	}
	if len(where(events, fields{"probe": "nvme:setup_cmd", "comm": "fio", "mpath": true})) == 0 {
		t.Error("no command came to the disk of the target")
	}
}

// remoteDisk connects a disk by nvme-loop or, as Debian's 5.10 is without it, by TCP.
func remoteDisk(t *testing.T) string {
	t.Helper()
	if exec.Command("modprobe", "-n", "nvme-loop").Run() != nil {
		s := newSubsystem(t, "tcp", 1)
		s.connect(t, 0)
		return s.disk(t)
	}
	s := newSubsystem(t, "loop", 1)
	sh(t, "nvme connect -t loop -n %s", s.nqn)
	return s.disk(t)
}

// only leaves the counts of processes that were in the cgroups. Others have commands at any time, like those that keep a connection alive.
func (p *pair) only(counts map[string]int) map[string]int {
	maps.DeleteFunc(counts, func(key string, _ int) bool {
		var pid int
		_, err := fmt.Sscanf(key[strings.Index(key, " "):], " %d", &pid)
		return err != nil || p.cgroups[pid] == 0
	})
	return counts
}
