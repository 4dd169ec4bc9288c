//go:build vm

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// subsystem is a target of ours on this machine, reached by TCP at 127.0.0.1 or by nvme-loop.
type subsystem struct {
	nqn, folder string
	ports       []string // their folders; port i of TCP listens at 4420 + i
}

const nvmetFolder = "/sys/kernel/config/nvmet/"

// newSubsystem makes a target with one namespace, a disk that forgets.
func newSubsystem(t *testing.T, transport string, ports int) subsystem {
	t.Helper()
	sh(t, "modprobe -a nvmet nvme-%s; modprobe null_blk nr_devices=1 queue_mode=2; mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config", transport)
	s := subsystem{nqn: "vmtest-" + strings.ToLower(strings.TrimPrefix(t.Name(), "TestVM"))}
	s.folder = nvmetFolder + "subsystems/" + s.nqn
	t.Cleanup(func() {
		exec.Command("nvme", "disconnect", "-n", s.nqn).Run()
		for _, port := range s.ports {
			os.Remove(port + "/subsystems/" + s.nqn)
			os.Remove(port)
		}
		writeFile(t, s.folder+"/namespaces/1/enable", "0")
		os.Remove(s.folder + "/namespaces/1")
		os.Remove(s.folder)
	})
	mkdir(t, s.folder)
	writeFile(t, s.folder+"/attr_allow_any_host", "1")
	mkdir(t, s.folder+"/namespaces/1")
	writeFile(t, s.folder+"/namespaces/1/device_path", "/dev/nullb0")
	writeFile(t, s.folder+"/namespaces/1/enable", "1")
	for i := range ports {
		port := fmt.Sprint(nvmetFolder, "ports/", i+1)
		mkdir(t, port)
		s.ports = append(s.ports, port)
		writeFile(t, port+"/addr_trtype", transport)
		if transport == "tcp" {
			sh(t, "modprobe nvmet-tcp")
			for file, value := range map[string]string{"adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": fmt.Sprint(4420 + i)} {
				writeFile(t, port+"/addr_"+file, value)
			}
		}
		if err := os.Symlink(s.folder, port+"/subsystems/"+s.nqn); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func mkdir(t *testing.T, folder string) {
	t.Helper()
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
}

// connect makes a controller of the target; it may fail.
func connect(nqn string, port int) ([]byte, error) {
	const host = "2bd1bd1d-44d5-4a17-9e8e-0a5e1b6a4d0e"
	return exec.Command("nvme", "connect", "-t", "tcp", "-a", "127.0.0.1", "-s", fmt.Sprint(4420+port), "-n", nqn, "-k", "2",
		"--hostnqn", "nqn.2014-08.org.nvmexpress:uuid:"+host, "--hostid", host).CombinedOutput()
}

func (s subsystem) connect(t *testing.T, port int) {
	t.Helper()
	if out, err := connect(s.nqn, port); err != nil {
		t.Fatalf("nvme connect: %v\n%s%s", err, out, sh(t, "dmesg | tail -20"))
	}
}

// disk waits for the disk of the target.
func (s subsystem) disk(t *testing.T) string {
	t.Helper()
	var disk string
	waitUntil(t, "the target's disk is there", func() bool {
		folders, _ := filepath.Glob("/sys/class/nvme-subsystem/*")
		for _, folder := range folders {
			if contains(t, folder+"/subsysnqn", s.nqn) {
				disk = "nvme" + strings.TrimPrefix(filepath.Base(folder), "nvme-subsys") + "n1"
			}
		}
		_, err := os.Stat("/dev/" + disk)
		return disk != "" && err == nil
	})
	return disk
}

// TestVMMoreNvmeFabrics compares the commands of a connection over TCP with ftrace.
func TestVMMoreNvmeFabrics(t *testing.T) {
	s := newSubsystem(t, "tcp", 1)
	var lines []ftraced
	events := untilWhole(t, "nvme:setup_cmd, nvme:sq, nvme:complete_rq", func() {
		stopFtrace := startFtrace(t)
		s.connect(t, 0)
		sh(t, "dd if=/dev/%s of=/dev/null bs=4k count=8 iflag=direct", s.disk(t))
		if out, err := connect("no-such-target", 0); err == nil {
			t.Errorf("connected to nothing: %s", out)
		}
		time.Sleep(3 * time.Second) // longer than the keep alive timeout
		sh(t, "nvme disconnect -n %s", s.nqn)
		lines = stopFtrace()
	})
	matchFtrace(t, events, lines)
	for _, want := range []fields{
		{"opcode": "connect", "for_qid": 0, "status": "success", "raw_opcode": 0x7f, "fctype": 1, "nsid": nil},
		{"opcode": "connect", "for_qid": 1, "status": "success"},
		{"opcode": "connect", "for_qid": 0, "status": "connect_invalid_param", "raw_status": 0x4182, "dnr": true},
		{"opcode": "property_get", "property": "cap", "status": "success"},
		{"opcode": "property_get", "property": "csts"},
		{"opcode": "property_set", "property": "cc"},
		{"opcode": "keep_alive", "status": "success", "fctype": nil},
		{"opcode": "read", "status": "success", "comm": "dd", "device_latency": nil},
	} {
		want["probe"] = "nvme:complete_rq"
		if len(where(events, want)) == 0 {
			t.Errorf("no completion with %v", want)
		}
	}
}

var pathName = regexp.MustCompile(`^nvme\d+c\d+n1$`)

// controllers waits for the controllers of the target, and returns them in the order of its ports.
func (s subsystem) controllers(t *testing.T) []string {
	t.Helper()
	found := make([]string, len(s.ports))
	folders, _ := filepath.Glob("/sys/class/nvme/nvme*")
	for _, folder := range folders {
		for port := range s.ports {
			if contains(t, folder+"/subsysnqn", s.nqn) && contains(t, folder+"/address", fmt.Sprint("trsvcid=", 4420+port)) {
				found[port] = filepath.Base(folder)
			}
		}
	}
	return found
}

// notices lets the target tell a controller of changes of its paths, or keeps it from that (NVMe 1.4, 5.21.1.11).
func notices(t *testing.T, ctrl string, on bool) {
	t.Helper()
	cmd := passthru{opcode: 9, cdw: [6]uint32{11}}
	if on {
		cmd.cdw[1] = 1<<8 | 1<<11
	}
	if status := send(t, ctrl, true, cmd); status != 0 {
		t.Fatalf("%s: set features: status %#x", ctrl, status)
	}
}

// TestVMMoreNvmeFailover removes the paths to a disk, one after the other, while fio reads from it through both. The target does not notify
// the controllers, so commands fail.
func TestVMMoreNvmeFailover(t *testing.T) {
	s := newSubsystem(t, "tcp", 2)
	s.connect(t, 0)
	s.connect(t, 1)
	disk, ctrls := s.disk(t), s.controllers(t)
	sh(t, "echo round-robin > /sys/class/nvme-subsystem/$(basename $(dirname $(grep -lx %s /sys/class/nvme-subsystem/*/subsysnqn)))/iopolicy", s.nqn)
	state := func(port int, state string) { writeFile(t, s.ports[port]+"/ana_groups/1/ana_state", state) }
	tr := start(t, "nvme:failover; nvme:complete_rq / mpath && status != success /")
	bpftrace := startKprobes(t, map[string]string{"failover": "nvme_failover_req"})
	only := func(event, filter string) { writeFile(t, tracefs+"/events/nvme/"+event+"/filter", filter) }
	only("nvme_setup_cmd", "qid == 0")
	only("nvme_complete_rq", "status != 0")
	t.Cleanup(func() { only("nvme_setup_cmd", "0"); only("nvme_complete_rq", "0") })
	stopFtrace := startFtrace(t)
	fio := exec.Command("fio", "--name=x", "--filename=/dev/"+disk, "--rw=randread", "--bs=4k", "--ioengine=libaio", "--direct=1", "--iodepth=8",
		"--thread", "--time_based", "--runtime=600", "--output-format=json")
	var out bytes.Buffer
	fio.Stdout = &out
	if err := fio.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fio.Process.Kill() })
	failures := func() int { return strings.Count(sh(t, "cat %s/trace", tracefs), " nvme_complete_rq: ") }
	for _, port := range []int{0, 1, 0, 1} {
		before := failures()
		notices(t, ctrls[port], false)
		state(port, "inaccessible")
		waitUntil(t, "a command has failed", func() bool { return failures() > before })
		notices(t, ctrls[port], true)
		state(port, "optimized")
		waitUntil(t, "the path is back", func() bool {
			return strings.TrimSpace(sh(t, "cat /sys/class/nvme/%s/nvme*c*n1/ana_state", ctrls[port])) == "optimized"
		})
	}
	if err := fio.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	fio.Wait() // it means that it was interrupted
	if !strings.Contains(out.String(), `"error" : 0,`) {
		t.Errorf("each read was done by the other path, but fio reports\n%s", out.String())
	}
	want := 0 // a status of the path, of a command that came through multipath
	for _, f := range stopFtrace() {
		if f.probe == "nvme:complete_rq" && f.num["status"]>>8&7 == 3 && pathName.MatchString(f.disk) {
			want++
		}
	}
	calls := 0
	for _, n := range kprobeCounts(t, bpftrace) {
		calls += n
	}
	events, lost := tr.stopAll(t)
	failovers := where(events, fields{"probe": "nvme:failover"})
	if len(failovers)+lost["nvme:failover"] != want || len(failovers) == 0 || calls != want {
		t.Errorf("%d failovers, ftrace saw %d commands whose path failed, and bpftrace %d calls of nvme_failover_req", len(failovers), want, calls)
	}
	failed := 0
	for _, e := range where(events, fields{"probe": "nvme:complete_rq"}) {
		if strings.HasPrefix(e.text("status"), "ana_") {
			failed++
		}
	}
	if failed+lost["nvme:complete_rq"] != want {
		t.Errorf("%d completions with a status of the path, %d failovers", failed, want)
	}
	paths := map[string]int{}
	for _, e := range failovers {
		e.expect(t, fields{"mpath": true, "opcode": "read", "comm": "fio", "pid": fio.Process.Pid})
		if !pathName.MatchString(e.text("disk")) || !strings.HasPrefix(e.text("status"), "ana_") || e.num(t, "latency") <= 0 {
			t.Errorf("no path, or no reason, or no latency: %v", e)
		}
		paths[e.text("disk")]++
	}
	if len(paths) != 2 {
		t.Errorf("failovers by the path that failed: %v, want two paths", paths)
	}
	t.Logf("failovers by the path that failed: %v", paths)
}
