//go:build vm

package probes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

var full = flag.Bool("full", false, "attach every variant fifty times, and try every field of every probe alone")

// Every variant of every probe and helper that this host does not rule out loads and attaches, with all fields and all of the stack, again
// and again, and leaves nothing behind. The table is printed: VARIANT, probe, kernel, variant, yes or no and why.
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
	for _, p := range h.catalog.Probes() {
		seen := make(map[string]bool)
		for i, v := range h.variants(p.Group, h.catalog.source(p).hook) {
			name := v.name
			// The second alternative of the functions has variants of the same names.
			if seen[name] {
				name += " (other functions)"
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
			t.Run(p.String()+"/"+name, func(t *testing.T) {
				for _, w := range wantAll(t, h, p).ways() {
					reqs, o := requestsFor(w)
					cycle(t, times, func() (*Session, error) { return attachOnly(h, i, reqs[0], o) })
				}
			})
		}
	}
}

func TestVMTypelessVariant(t *testing.T) { TestTypelessVariant(t) }

// What is in the VM already, and what it takes to be there, the kernel says itself.
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

// inSymbols tells whether the kernel lists a function: 5.10 has no dmabufs for RDMA.
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

// Each field can be captured quite alone. Those of one probe share their macros with those of the next, so two probes will do;
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
	h := detect(t)
	p := h.catalog.Match("ib:modify_qp")[0]
	s := attachWants(t, h, want{probe: p, fields: p.Fields})
	fill(t, s, "modify_calls")
	events := collect(t, s, func() { shell(t, pingpong) })
	if l := lossesOf(t, s)[0]; len(events) != 0 || l.Unseen == 0 || l.InFlightFull != l.Unseen || l.Lost() != l.Unseen {
		t.Errorf("%d events, counted %+v", len(events), l)
	}
}

// The beginning of a call is seen only where somebody wants to know of it; the calls are the same.
func TestVMEntryOfCalls(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("ib:modify_qp")[0]
	wants := []string{"ret", "latency"}
	programs := map[string]int{"ret": 2, "latency": 4}
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
// same tracepoint, of which none is skipped.
func TestVMCrowdSkipped(t *testing.T) {
	crowd := t.TempDir() + "/crowd"
	shell(t, "gcc -O2 -o "+crowd+" ../cmd/trace/testdata/vm/crowd.c -libverbs")
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	none := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	sessions := make(map[string]*Session)
	for i, v := range h.variants(p.Group, h.catalog.source(p).hook) {
		if err := v.check(); err != nil {
			t.Skipf("%s: %v", v.name, err)
		}
		s, err := attachOnly(h, i, Request{Probe: p, Code: &Code{Filter: none, Action: none}, Counted: true}, AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sessions[v.name] = s
	}
	before, after := make(map[string]Losses), make(map[string]Losses)
	for name, s := range sessions {
		before[name] = lossesOf(t, s)[0]
	}
	shell(t, crowd+" syscalls 6 100")
	for name, s := range sessions {
		after[name] = lossesOf(t, s)[0]
	}
	all := func(name string) uint64 {
		return after[name].Events + after[name].Missed - before[name].Events - before[name].Missed
	}
	t.Logf("%+v", after)
	const asked = 200 // system calls of this process, between the questions
	whole := after[recordKind].Events - before[recordKind].Events
	if n := all("raw_tp"); n+asked < whole || n > whole+asked || whole < 60000 {
		t.Errorf("raw_tp: %d system calls, by perf events %d", n, whole)
	}
	if skips := after["raw_tp"].Missed > 0; skips != h.preemptsTracepoints() {
		t.Errorf("skips programs: %v, preempts them: %v", skips, h.preemptsTracepoints())
	}
	if n := after[recordKind].Missed; n > 0 {
		t.Errorf("%d runs by perf events were skipped", n)
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
