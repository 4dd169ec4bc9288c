//go:build vm

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Many processes on one CPU are preempted anywhere in their calls, and also inside the programs where the kernel allows it. They print what
// they did.

// buildCrowd compiles the helper program.
func buildCrowd(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crowd")
	sh(t, "gcc -Wall -Werror -O2 -o %s testdata/vm/crowd.c -libverbs", path)
	return path
}

// crowdCounts are the numbers that the program prints: "name number …".
func crowdCounts(t *testing.T, output string) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, m := range regexp.MustCompile(`([a-z_]+) ([0-9]+)`).FindAllStringSubmatch(output, -1) {
		counts[m[1]], _ = strconv.Atoi(m[2])
	}
	return counts
}

// traceCrowd runs trace with the crowd as its command, and returns what both print, and what trace reports.
func traceCrowd(t *testing.T, crowd, program string) (out, notes string) {
	t.Helper()
	cmd := exec.Command("trace", "-c", crowd, program)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// mapLine matches a line of a map of counts by probe.
var mapLine = regexp.MustCompile(`(?m)^@\[\w+:(\w+)\]: (\d+)$`)

// verbs is the crowd that calls verbs: six processes. Where a kretprobe has one instance for each CPU (kprobe.attach in probes), only that
// many processes make all their calls.
func verbs(t *testing.T) string {
	t.Helper()
	if fewReturns() {
		return buildCrowd(t) + " verbs 2 60"
	}
	return buildCrowd(t) + " verbs 6 20"
}

func fewReturns() bool { return os.Getenv("VMTEST_KERNEL") == "5.10" }

// A return without an instance of the kretprobe is lost, which is reported. The last return of each process may be among them.
func TestVMCrowdReturns(t *testing.T) {
	if !fewReturns() {
		t.Skip("the kernel sees the returns of more calls")
	}
	// Whether anything is wanted of their beginnings or not.
	for _, filter := range []string{`comm == "crowd"`, `comm == "crowd" && latency > 0s`} {
		out, notes := traceCrowd(t, buildCrowd(t)+" verbs 6 20", "ib:modify_qp / "+filter+" / { @[probe] = count() }")
		seen, lost := 0, 0
		for _, m := range mapLine.FindAllStringSubmatch(out, -1) {
			seen, _ = strconv.Atoi(m[2])
		}
		const counted = "trace: lost " // the last one counts
		if at := strings.LastIndex(notes, counted); at >= 0 {
			fmt.Sscan(notes[at+len(counted):], &lost)
		}
		t.Logf("%s: %d seen, %d lost", filter, seen, lost)
		if lost == 0 || seen+lost > 360 || seen+lost < 360-6 || !strings.Contains(notes, "too many calls were in progress") {
			t.Errorf("%s: %d of 360 calls seen\n%s", filter, seen, notes)
		}
	}
}

// Every call of a verb is one event, whether it is refused or not, and none is of another process.
func TestVMCrowdVerbs(t *testing.T) {
	out, notes := traceCrowd(t, verbs(t), `ib:*_qp, ib:*_pd, ib:*_cq, ib:*_mr / comm == "crowd" / { @[probe] = count() }
		ib:*_qp, ib:*_pd, ib:*_cq, ib:*_mr / comm != "crowd" / { @others = count() }`)
	got := make(map[string]int)
	for _, m := range mapLine.FindAllStringSubmatch(out, -1) {
		got[m[1]], _ = strconv.Atoi(m[2])
	}
	want := crowdCounts(t, strings.SplitN(out[strings.Index(out, "alloc_pd "):], "\n", 2)[0])
	if len(want) != 9 || want["destroy_cq"] != 6*20*31 {
		t.Fatalf("the processes say %v", want)
	}
	for verb, n := range want {
		if got[verb] != n {
			t.Errorf("ib:%s: %d events, %d calls", verb, got[verb], n)
		}
	}
	if len(got) != len(want) || !strings.Contains(out, "@others: 0\n") || strings.Contains(notes, "lost") {
		t.Errorf("%v\n%s\n%s", got, out, notes)
	}
}

// Each connection that becomes ready ends.
func TestVMCrowdFlows(t *testing.T) {
	out, notes := traceCrowd(t, verbs(t), "rdma_flows")
	ready, ended := strings.Count(out, " ready rxe0 "), strings.Count(out, " ended rxe0 ")
	if ready != 6*20 || ended != ready || !strings.Contains(out, "\n0 connections are still there") || strings.Contains(notes, "lost") {
		t.Errorf("%d ready, %d ended\n%s\n%s", ready, ended, out, notes)
	}
}

// System calls, too, are seen one by one; those that the filter rejects are not.
func TestVMCrowdSyscalls(t *testing.T) {
	out, notes := traceCrowd(t, buildCrowd(t)+" syscalls 6 100", `syscall:enter, syscall:exit / comm == "crowd" && nr == getppid / { @[probe] = count() }
		syscall:exit / comm == "crowd" && nr == getppid && latency != nil / { @latencies = count() } syscall:enter / comm == "crowd" && nr == getuid / { @[probe] = count() }`)
	for _, want := range []string{"getppid 60000", "@[syscall:enter]: 60000", "@[syscall:exit]: 60000", "@latencies: 60000"} {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			t.Errorf("no %q in\n%s\n%s", want, out, notes)
		}
	}
	if strings.Contains(notes, "lost") {
		t.Error(notes)
	}
}

// The doctor prints the reason.
func TestVMCrowdDoctor(t *testing.T) {
	said := sh(t, "trace doctor")
	if got := strings.Contains(said, "so functions are traced by kprobe"); got != preempting() {
		t.Errorf("preempting is %v:\n%s", preempting(), said)
	}
	again := sh(t, "unshare -m sh -c 'umount -l /sys/kernel/debug; trace doctor'")
	if line := regexp.MustCompile(`(?m)^preemption .*$`); line.FindString(again) != line.FindString(said) {
		t.Errorf("without debugfs: %s\nwith it: %s", line.FindString(again), line.FindString(said))
	}
}

// Where the kernel skips the program at a submission, nothing is known of the command later: it is not taken for the one that was in its
// request before.
func TestVMCrowdNvme(t *testing.T) {
	const each, skipped = 8000, "nvme:sq: the kernel skipped the beginning of "
	writeFile(t, "/sys/block/nvme0n1/queue/nomerges", "2")
	writeFile(t, "/sys/block/nvme0n1/queue/io_timeout", "3000") // QEMU loses a command now and then
	fio := strings.Join(append([]string{"fio --output=/dev/null --iodepth=4 --cpus_allowed=0 --norandommap --io_size=1g"},
		fioArgs(namespace{disk: "nvme0n1"}, fmt.Sprintf("--number_ios=%d --name=r1 --rw=randread --name=r2 --rw=randread --name=w1 --rw=randwrite --name=w2 --rw=randwrite", each/2))...), " ")
	for range 5 {
		out, notes := traceCrowd(t, fio, `nvme:sq / disk == "nvme0n1" / { @all = count() } nvme:sq / disk == "nvme0n1" && opcode == read / { @read = count() }
			nvme:sq / disk == "nvme0n1" && opcode == write / { @write = count() } nvme:sq / disk == "nvme0n1" && opcode == nil / { @unknown = count() }`)
		got := make(map[string]int)
		for _, m := range regexp.MustCompile(`(?m)^@(\w+): (\d+)$`).FindAllStringSubmatch(out, -1) {
			got[m[1]], _ = strconv.Atoi(m[2])
		}
		if got["all"] != 2*each {
			t.Logf("again: the driver repeated a command\n%s\n%s", out, notes)
			continue
		}
		missed := 0
		if _, rest, ok := strings.Cut(notes, skipped); ok {
			fmt.Sscan(rest, &missed)
		}
		t.Logf("%v, %d beginnings skipped", got, missed)
		if got["read"] > each || got["write"] > each || got["read"]+got["write"]+missed != 2*each || got["unknown"] != missed {
			t.Errorf("%v, %d beginnings skipped; fio made %d of each\n%s", got, missed, each, notes)
		}
		return
	}
	t.Error("the driver repeated commands each time")
}
