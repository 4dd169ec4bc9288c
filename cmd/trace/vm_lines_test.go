//go:build vm

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trace/probes/event"
)

// These tests make recordings in which each probe has events, and measure their lines as TestLines does. make recordings puts them into
// testdata/lines. Recordings of rdma:, and of ib: except ib:event, are among the scripts' recordings.

// recordLines records what happens during some work that each of the probes sees.
func recordLines(t *testing.T, name, program string, work func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".rec")
	trace := startCommand(t, exec.Command("trace", "record", "-o", file, program))
	work()
	trace.end(t)
	lines := recordedLines(t, file)
	checkLines(t, lines)
	for _, p := range event.Match(loadCatalog(t), strings.Fields(program)[0]) {
		if lines[p.String()] == nil && !lineless(p) {
			t.Errorf("%v saw nothing", p)
		}
	}
	logRecording(t, file, "cmd/trace/testdata/lines/"+name+".rec")
}

func TestVMCmLines(t *testing.T) {
	while := nvmeOverRDMA(t)
	recordLines(t, "cm", "cm:*", func() {
		connectRping(t)
		while(connectKernel)
		serveOnce(t, []string{"ucmatose", "-b", "10.9.0.1", "-c", "1"}, "ucmatose -s 10.9.0.1 -c 2") // the second one is rejected
		serveOnce(t, []string{"udaddy", "-b", "10.9.0.1", "-c", "1"}, "udaddy -s 10.9.0.1 -c 1")
	})
}

// serve runs a server of rdma_cm, and then its client, which may fail.
func serveOnce(t *testing.T, server []string, client string) {
	t.Helper()
	listening := exec.Command(server[0], server[1:]...)
	if err := listening.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the server listens", func() bool {
		return strings.Contains(sh(t, "rdma res show cm_id"), fmt.Sprintf("pid %d ", listening.Process.Pid))
	})
	sh(t, "timeout 20 %s || true", client)
	listening.Process.Kill()
	listening.Wait()
}

func TestVMIbMlx5Lines(t *testing.T) {
	loadStandIn(t, "mlx5_core.ko", true)
	loadStandIn(t, "mlx5_ib.ko", true)
	recordLines(t, "mlx5", "mlx5:*", func() {
		pingPong(t, true)
		sh(t, "echo 4096 65536 0x7f0000001000 7 0x100007 > /sys/module/mlx5_ib/parameters/dmabuf")
		runCommands(t, "mlx5_cmd_exec")
	})
}

func TestVMIbEventLines(t *testing.T) {
	async := buildAsync(t)
	recordLines(t, "ib", "ib:event", func() {
		sh(t, "ip link set dummy0 down; ip link set dummy0 up; echo | %s", async)
		time.Sleep(time.Second) // what uverbs is told of the port comes by a queue
	})
}

func TestVMMoreLines(t *testing.T) {
	s := newSubsystem(t, "tcp", 2)
	s.connect(t, 0)
	s.connect(t, 1)
	disk, ctrls := s.disk(t), s.controllers(t)
	ctrl, slow := slowDisk(t)
	recordLines(t, "nvme", "nvme:*", func() {
		sh(t, "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=20 iflag=direct")
		sh(t, "nvme id-ctrl /dev/%s", ctrl)
		notices(t, ctrls[0], false)
		writeFile(t, s.ports[0]+"/ana_groups/1/ana_state", "inaccessible")
		sh(t, "dd if=/dev/%s of=/dev/null bs=4k count=20 iflag=direct", disk)
		notices(t, ctrls[0], true)
		writeFile(t, s.ports[0]+"/ana_groups/1/ana_state", "optimized")
		sh(t, "dd if=/dev/%s of=/dev/null bs=248k count=4 iflag=direct || true", slow)
	})
}

func TestVMLines(t *testing.T) {
	recordLines(t, "system", `syscall:* / comm == "ls" /; profile:99hz; sched:runq / comm == "ls" /`, func() {
		sh(t, "ls / >/dev/null; for i in $(seq 20000); do :; done")
	})
}

func TestVMCacheLines(t *testing.T) {
	f := coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64)
	recordLines(t, "cache", `cache:* / disk == "nvme0n1" /`, func() {
		readPages(t, f, 0, 1)
		drop(t, f)
		sh(t, "echo >> %s", f.Name())
		runMemory(t, f)
	})
}

func TestVMVmLines(t *testing.T) {
	f := coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64)
	recordLines(t, "vm", `vm:* / comm == "memory" || comm == "work" && (nsecs % 8 == 0 || probe == "vm:map") || probe == "vm:exit" || probe == "vm:size" && comm == "trace.test" /`, func() { runMemory(t, f) })
}

// runMemory runs the program of testdata/vm/memory.c.
func runMemory(t *testing.T, f *os.File) {
	t.Helper()
	m := startMemory(t, f.Name())
	m.goOn(t)
	m.end(t)
}

func TestVMRdmaQPLines(t *testing.T) {
	startDatapath(t, buildDatapath(t))
	recordLines(t, "rdma", "rdma:qp", func() { sh(t, "rdma res show qp") })
}

func TestVMVerbsLines(t *testing.T) {
	path := buildDatapath(t)
	failing, fine := startDatapath(t, path, "op=write", "fail=rkey", "count=5"), startDatapath(t, path, "type=ud", "op=send_imm", "count=5")
	recordLines(t, "verbs", "verbs:*", func() {
		failing.finish(t)
		fine.finish(t)
	})
}
