//go:build vm

package probes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

var full = flag.Bool("full", false, "attach every variant fifty times in all ways, and try every field of every probe alone")

// Every variant of every probe and helper that this host does not rule out loads and attaches, with all fields and all of the stack, and
// leaves nothing behind. It takes one of the ways of the program's code, on kernels of another major version the next one; -full takes all
// of them, again and again. The table is printed: VARIANT, probe, kernel, variant, yes or no and why.
func TestVMLoad(t *testing.T) {
	times := 1
	if *full {
		times = 50
	}
	if runtime.GOARCH == "arm64" {
		shell(t, "modprobe ib_uverbs") // nothing there makes an RDMA device
	}
	shell(t, "modprobe mlx5_ib") // which loads without its device
	h := detect(t)
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		t.Fatal(err)
	}
	next := int(host.Release[0])
	for _, p := range h.catalog.Probes() {
		seen := make(map[string]bool)
		for i, v := range h.variantsOf(p) {
			name := v.name()
			// The second alternative of the functions has variants of the same names, and so has another mix of programs.
			if seen[name] {
				name += " (other programs)"
			}
			seen[name] = true
			answer, err := "yes", v.check()
			if err != nil {
				answer = "no: " + err.Error()
			}
			fmt.Printf("VARIANT\t%s\t%s\t%s\t%s\n", p, os.Getenv("VMTEST_KERNEL"), name, answer)
			if err != nil {
				continue
			}
			next++
			t.Run(p.String()+"/"+name, func(t *testing.T) {
				ways := wantAll(t, h, p).ways()
				if !*full {
					way := next % len(ways)
					ways = ways[way : way+1]
				}
				for _, w := range ways {
					reqs, o := requestsFor(w)
					cycle(t, times, func() (*Session, error) { return attachOnly(h, i, reqs[0], o) })
				}
			})
		}
	}
}

// Programs of functions, of the kernel's own and of modules'. 5.10 does not describe modules.
func TestVMLoadBound(t *testing.T) {
	h := detect(t)
	if n := loadBoundOf(t, h, "vm:map"); n < 2 {
		t.Errorf("%d programs are loaded for functions of the kernel", n)
	}
	if n := loadBoundOf(t, h, "ib:modify_qp"); n < 1 && exists("/sys/kernel/btf/ib_core") {
		t.Errorf("%d programs are loaded for functions of modules", n)
	}
}

func TestVMTypelessVariant(t *testing.T) { TestTypelessVariant(t) }

// In events of the process itself, and in events of an interrupt, which have the process that sent the command.
func TestVMOfTask(t *testing.T) {
	checkOfTask(t, "syscall:*", "exec true")
	checkOfTask(t, "nvme:[cs]*", "exec "+readDisk)
	checkOfTask(t, "ib:create_*", "exec ibv_rc_pingpong -d rxe0 -g 1 -n 5 10.9.0.1")
	checkOfTask(t, "rdma:resource", "exec ibv_devinfo -d rxe0")
}

// The kernel itself reports what is in the VM already.
func TestVMNothingIsMissing(t *testing.T) {
	shell(t, "modprobe mlx5_ib")
	h := detect(t)
	for _, p := range h.catalog.Probes() {
		if s := h.Status(p); s.Variant == "" && !(p.Name == "reg_user_mr_dmabuf" && !inSymbols(t, "mlx5_ib_reg_user_mr_dmabuf")) {
			t.Errorf("%s is not available: %s", p, s.Reason)
		}
		// A module's own BTF has all of its types: what it lacks, this kernel lacks, and no file would give it.
		if notes := strings.Join(h.Status(p).Notes, "\n"); exists("/sys/kernel/btf/ib_core") && strings.Contains(notes, "no types of") {
			t.Errorf("%s asks for types that this kernel does not have: %s", p, notes)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inSymbols reports whether the kernel lists a function: 5.10 has no dmabufs for RDMA.
func inSymbols(t *testing.T, function string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), " "+function+"\t")
}

// Workloads. Nothing else uses the disk and the RDMA device.
const (
	readDisk = "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=2 iflag=direct"
	readGID  = "cat /sys/class/infiniband/rxe0/ports/1/gids/1 /sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1"
	pingpong = "taskset -c 0 ibv_rc_pingpong -d rxe0 -g 1 -n 5 & until taskset -c 1 ibv_rc_pingpong -d rxe0 -g 1 -n 5 10.9.0.1; do sleep 0.2; done; wait"
)

// Each field can be captured quite alone. Fields of one probe share their macros with the next, so two probes will do;
// -full does all.
func TestVMFieldsAlone(t *testing.T) {
	workloads := map[string]string{"nvme:complete_rq": readDisk, "ib:modify_qp": pingpong}
	if *full {
		workloads = map[string]string{"nvme:[cs]*": readDisk, "ib:*_[cmpq]?": pingpong, "ib:get_gid": readGID, "ib:gid_ndev": readGID}
	}
	h := detect(t)
	for glob, workload := range workloads {
		for _, p := range h.catalog.Match(glob) {
			t.Run(p.String(), func(t *testing.T) {
				compareAlone(t, h, p, func() job { return job{run: func() { shell(t, workload) }} })
			})
		}
	}
}

// A call whose beginning there was no room to remember is lost, and counted.
func TestVMUnseen(t *testing.T) {
	h, err := Detect(load(t), HostOptions{FullTables: true})
	if err != nil {
		t.Fatal(err)
	}
	p := h.catalog.Match("ib:modify_qp")[0]
	s := attachWants(t, h, want{probe: p, fields: p.Fields})
	fill(t, s, "modify_calls")
	events := collect(t, s, func() { shell(t, pingpong) })
	if l := lossesOf(t, s)[0]; len(events) != 0 || l.Unseen == 0 || l.InFlightFull != l.Unseen || l.Lost() != l.Unseen {
		t.Errorf("%d events, counted %+v", len(events), l)
	}
}

// The beginning of a call is seen only if a field of it is wanted; the calls are the same.
func TestVMEntryOfCalls(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("ib:modify_qp")[0]
	wants := []string{"ret", "latency"}
	programs := map[string]int{"ret": 2, "latency": 4}
	if h.Status(p).Variant == (kprobe{}).String() && !h.kernel.ReportsMissed() {
		programs["ret"] = programs["latency"] // so that we can tell
	}
	s := attachWants(t, h, want{probe: p, fields: []*event.Field{p.Field(wants[0])}}, want{probe: p, fields: []*event.Field{p.Field(wants[1])}})
	seen := make(map[string]int)
	for _, e := range collect(t, s, func() { shell(t, pingpong) }) {
		for _, field := range wants {
			if _, ok := e[field]; ok {
				seen[field]++
			}
		}
	}
	for i, field := range wants {
		if got := len(s.requests[i].attached); got != programs[field] {
			t.Errorf("%d programs for %s, want %d", got, field, programs[field])
		}
	}
	if seen["ret"] < 6 || seen["ret"] != seen["latency"] {
		t.Errorf("calls by what is wanted of them: %v; of two QPs three changes each are seen at least", seen)
	}
	checkNoneLost(t, s)
}

// What the kernel skips of a program of a raw tracepoint is counted, run by run: with it there are as many as at the perf event of the
// same tracepoint, which skips none. The crowd has CPU 0 for itself, and only the system calls of that CPU are compared: no count
// changes while another one is read. Ten times as many calls as in other tests make sure that some task is preempted inside a program.
func TestVMCrowdSkipped(t *testing.T) {
	crowd := t.TempDir() + "/crowd"
	shell(t, "gcc -O2 -o "+crowd+" ../cmd/trace/testdata/vm/crowd.c -libverbs")
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	none := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	sessions := make(map[string]*Session)
	for i, v := range h.variantsOf(p) {
		if err := v.check(); err != nil {
			t.Skipf("%s: %v", v.name(), err)
		}
		s, err := attachOnly(h, i, Request{Probe: p, Code: &Code{Filter: none, Action: none}, Counted: true}, AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sessions[v.name()] = s
	}
	leaveCPU0(t)
	before, after := make(map[string]cpu0Counts), make(map[string]cpu0Counts)
	for name, s := range sessions {
		before[name] = countCPU0(t, s)
	}
	shell(t, "taskset -c 0 chrt --other 0 "+crowd+" syscalls 6 1000")
	for name, s := range sessions {
		after[name] = countCPU0(t, s)
	}
	events := func(name string) uint64 { return after[name].events - before[name].events }
	skipped := func(name string) uint64 { return after[name].skipped - before[name].skipped }
	t.Logf("raw_tp: %d events, %d skipped; by perf events %d", events("raw_tp"), skipped("raw_tp"), events(ftraceEvent{}.String()))
	if n, whole := events("raw_tp")+skipped("raw_tp"), events(ftraceEvent{}.String()); n != whole || whole < 600000 {
		t.Errorf("raw_tp: %d system calls, by perf events %d", n, whole)
	}
	if skips := skipped("raw_tp") > 0; skips != h.kernel.PreemptsTracepoints() {
		t.Errorf("skips programs: %v, preempts them: %v", skips, h.kernel.PreemptsTracepoints())
	}
	if n := skipped(ftraceEvent{}.String()); n > 0 {
		t.Errorf("%d runs by perf events were skipped", n)
	}
}

// leaveCPU0 keeps this process on CPU 1 until the test ends. The kernel counts the runs that it skips of all CPUs together, so there must
// be none on this one: the threads get the same real-time priority, with which none preempts another one inside a program.
func leaveCPU0(t *testing.T) {
	t.Helper()
	onAllThreads := func(command string) { shell(t, fmt.Sprintf("%s %d >/dev/null", command, os.Getpid())) }
	t.Cleanup(func() {
		onAllThreads("chrt --all-tasks --other --pid 0")
		onAllThreads("taskset --all-tasks --pid ffffffff")
	})
	onAllThreads("taskset --all-tasks --pid 2")
	onAllThreads("chrt --all-tasks --fifo --pid 1")
}

// cpu0Counts are the events that the programs of a session counted on CPU 0, and the runs that the kernel skipped.
type cpu0Counts struct{ events, skipped uint64 }

func countCPU0(t *testing.T, s *Session) cpu0Counts {
	t.Helper()
	var perCPU [][counters]uint64
	if err := s.requests[0].counts.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	return cpu0Counts{perCPU[0][countPassed] + perCPU[0][countRejected], lossesOf(t, s)[0].Missed}
}

// A helper that requests share goes on when the one that it was attached for is removed.
func TestVMSessionKeepsHelpers(t *testing.T) {
	const shared = "nvme_inflight"
	h := detect(t)
	var wants []want
	for _, name := range []string{"nvme:setup_cmd", "nvme:complete_rq"} {
		p := h.catalog.Match(name)[0]
		w := want{probe: p}
		for _, f := range p.Fields {
			if slices.Contains(h.catalog.origin(p).needs[f.Name], shared) {
				w.fields = append(w.fields, f)
			}
		}
		wants = append(wants, w)
	}
	reqs, o := requestsFor(wants...)
	s := attachWith(t, h, reqs, o)
	helps := func(r *request) bool {
		return slices.ContainsFunc(r.attached, func(a *attached) bool { return a.hook == shared })
	}
	if !helps(s.requests[0]) || helps(s.requests[1]) {
		t.Fatalf("%s was not attached for the first of the requests alone", shared)
	}
	if err := s.Remove(reqs[0]); err != nil {
		t.Fatal(err)
	}
	if len(s.requests) != 1 || !helps(s.requests[0]) {
		t.Errorf("%s does not go on for the other request", shared)
	}
	events := collect(t, s, func() { shell(t, readDisk) })
	matched := slices.DeleteFunc(slices.Clone(events), func(e snapshot) bool { return e["latency"] == "-" })
	if len(matched) == 0 || len(matched) != len(events) {
		t.Errorf("%d of %d commands have a latency", len(matched), len(events))
	}
	checkNoneLost(t, s)
}

// Objects that were there before are also reported to a later request, and removing that does not affect the first one.
func TestVMSessionAddsObjects(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("rdma:resource")[0]
	reqs, o := requestsFor(want{probe: p, fields: p.Fields}, want{probe: p, fields: p.Fields})
	s := attachWith(t, h, reqs[:1], o)
	seen := make(map[int]int) // by layout
	var objects int
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		read <- s.Read(ctx, func(e *event.Event) error {
			seen[e.Layout().ID]++
			return nil
		})
	}()
	if err := s.Add(ctx, reqs[1:], AddOptions{}); err != nil {
		t.Fatal(err)
	}
	objects = len(s.correction.inventories)
	shell(t, pingpong)
	if err := s.Remove(reqs[1]); err != nil {
		t.Fatal(err)
	}
	if objects != 2 || len(s.correction.inventories) != 1 {
		t.Errorf("%d inventories, after removing %d", objects, len(s.correction.inventories))
	}
	cancel()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if seen[0] == 0 || seen[0] != seen[1] {
		t.Errorf("events of the first request and of the second one: %v, want as many", seen)
	}
}

func shell(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.WaitDelay = time.Second // for what it leaves in the background
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}
