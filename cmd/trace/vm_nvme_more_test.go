//go:build vm

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These tests need the controllers that vmtest adds with -nvme.

// controller returns the name of the controller with a serial number, and of its first disk.
func controller(t *testing.T, serial string) (ctrl, disk string) {
	t.Helper()
	folders, _ := filepath.Glob("/sys/class/nvme/nvme*")
	for _, folder := range folders {
		if contains(t, folder+"/serial", serial) {
			ctrl = filepath.Base(folder)
			return ctrl, ctrl + "n1"
		}
	}
	t.Fatalf("there is no controller %s: run vmtest with -nvme", serial)
	return "", ""
}

// slowDisk is the disk that cannot give in time what is read from it: a command has a second. 5.10 gives a controller up if a command
// times out while it is being reset. Then it is brought back for the next test.
func slowDisk(t *testing.T) (ctrl, disk string) {
	t.Helper()
	ctrl, disk = controller(t, "slow")
	device, err := filepath.EvalSymlinks("/sys/class/nvme/" + ctrl + "/device")
	if err != nil {
		t.Fatal(err)
	}
	limit := "/sys/block/" + disk + "/queue/io_timeout"
	before := sh(t, "cat %s", limit)
	writeFile(t, limit, "1000")
	t.Cleanup(func() {
		gone := false
		waitUntil(t, ctrl+" is live, or given up", func() bool {
			state, err := os.ReadFile("/sys/class/nvme/" + ctrl + "/state")
			gone = errors.Is(err, os.ErrNotExist)
			return gone || string(state) == "live\n"
		})
		if !gone {
			writeFile(t, limit, before)
			return
		}
		sh(t, "echo %s > /sys/bus/pci/drivers_probe; until cat /sys/class/nvme/*/serial | grep -qw slow; do sleep 0.1; done", filepath.Base(device))
		_, disk := controller(t, "slow")
		sh(t, "until [ -b /dev/%s ]; do sleep 0.1; done", disk)
	})
	return ctrl, disk
}

// passthru is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type passthru struct {
	opcode, flags    uint8
	_                uint16
	nsid, cdw2, cdw3 uint32
	metadata, data   uint64
	metaBytes, bytes uint32
	cdw              [6]uint32 // 10 to 15
	timeout, result  uint32
}

// send hands a command to a controller, or to a disk, and returns what the device answers: 0, or a status.
func send(t *testing.T, device string, admin bool, cmd passthru) uint16 {
	t.Helper()
	f, err := os.OpenFile("/dev/"+device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	request := uintptr(0xc0484e43) // NVME_IOCTL_IO_CMD
	if admin {
		request = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&cmd)))
	if errno != 0 {
		t.Fatalf("%s: opcode %#x: %v", device, cmd.opcode, errno)
	}
	return uint16(status)
}

// TestVMMoreNvmeOpcodes sends every opcode to the I/O queues and to the admin queue, with dwords that no device takes for a valid command
// where that would change something: in any case we report the same as ftrace.
func TestVMMoreNvmeOpcodes(t *testing.T) {
	ctrl, disk := controller(t, "errors")
	tr := start(t, "nvme:setup_cmd, nvme:sq, nvme:complete_rq")
	stopFtrace := startFtrace(t)
	answers := map[uint16]int{}
	for opcode := range 256 {
		for _, admin := range []bool{false, true} {
			device := disk
			if admin {
				device = ctrl
			}
			if admin && (opcode == 0x0c || opcode == 0x7c) {
				continue // async_event waits for an event; dbbuf makes the device use the memory at 0 for doorbells
			}
			cmd := passthru{opcode: uint8(opcode), nsid: 1, timeout: 5000,
				cdw: [6]uint32{0xa1b2c3d4, 0x01020308, 0xde0b0605, 0x00010101, 0x0708090a, 0x0b0c0d0e}}
			answers[send(t, device, admin, cmd)]++
		}
	}
	lines := stopFtrace()
	events := tr.stop(t)
	matchFtrace(t, events, lines)
	if n := countOf(lines, "nvme:setup_cmd"); n < 2*256-2 {
		t.Errorf("ftrace saw %d commands", n)
	}
	ours := map[uint16]int{}
	for _, e := range where(events, fields{"probe": "nvme:complete_rq", "comm": "trace.test", "driver_flags": 2}) {
		ours[uint16(e.num(t, "raw_status"))]++
	}
	if fmt.Sprint(ours) != fmt.Sprint(answers) {
		t.Errorf("status of the completions by number: %v, the device answered %v", ours, answers)
	}
	if len(answers) < 4 {
		t.Errorf("only these answers: %v", answers)
	}
}

// TestVMMoreNvmeCommands compares what succeeds on QEMU's disks, zones included, with ftrace.
func TestVMMoreNvmeCommands(t *testing.T) {
	ctrl, disk := controller(t, "vmtest")
	zonedCtrl, zoned := controller(t, "zoned")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "zeroes"), make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	tr := start(t, "nvme:setup_cmd, nvme:sq, nvme:complete_rq")
	stopFtrace := startFtrace(t)
	for _, r := range []struct{ args, opcode string }{
		{"flush /dev/DISK -n 1", "flush"},
		{"write /dev/DISK -s 8 -c 7 -z 4096 -d zeroes", "write"},
		{"write /dev/DISK -s 8 -c 7 -z 4096 -d zeroes --force-unit-access", "write"},
		{"write /dev/DISK -s 8 -c 7 -z 4096 -d zeroes --limited-retry --dir-type=1 --dir-spec=3", "write"},
		{"read /dev/DISK -s 8 -c 7 -z 4096 --prinfo=0", "read"},
		{"compare /dev/DISK -s 8 -c 7 -z 4096 -d zeroes", "compare"},
		{"write-zeroes /dev/DISK -s 8 -c 7", "write_zeroes"},
		{"write-zeroes /dev/DISK -s 8 -c 7 --deac", "write_zeroes"},
		{"verify /dev/DISK -s 8 -c 7", "verify"},
		{"dsm /dev/DISK -d -s 64 -b 8", "dsm"},
		{"dsm /dev/DISK -d -w -r -s 64,128,256 -b 8,8,8", "dsm"},
		{"copy /dev/DISK -d 512 -s 8,16 -b 7,7", "copy"},
		{"id-ctrl /dev/CTRL", "identify"},
		{"list-ns /dev/CTRL", "identify"},
		{"get-log /dev/CTRL -i 1 -l 64", "get_log_page"},
		{"get-feature /dev/CTRL -f 7", "get_features"},
		{"set-feature /dev/CTRL -f 11 --value=0", "set_features"},
		{"admin-passthru /dev/CTRL -o 8 --cdw10=0x770001", "abort"},
		{"format /dev/DISK -l 0 --force", "format_nvm"},
		{"zns report-zones /dev/ZONED -d 2", "zone_mgmt_recv"},
		{"zns report-zones /dev/ZONED -d 2 -S 1 -p", "zone_mgmt_recv"},
		{"zns open-zone /dev/ZONED -s 0x100", "zone_mgmt_send"},
		{"zns close-zone /dev/ZONED -s 0x100", "zone_mgmt_send"},
		{"zns zone-append /dev/ZONED -s 0x200 -z 4096 -d zeroes", "zone_append"},
		{"zns finish-zone /dev/ZONED -s 0x200", "zone_mgmt_send"},
		{"zns reset-zone /dev/ZONED -s 0x200", "zone_mgmt_send"},
		{"zns reset-zone /dev/ZONED -a", "zone_mgmt_send"},
		{"id-ctrl /dev/ZCTRL", "identify"},
	} {
		args := strings.NewReplacer("ZCTRL", zonedCtrl, "CTRL", ctrl, "DISK", disk, "ZONED", zoned).Replace(r.args)
		cmd := exec.Command("nvme", strings.Fields(args)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nvme %s: %v\n%s", args, err, out)
		}
	}
	// The driver's own commands at a reset: it makes queues. Kernel 5.10 may no longer be seen there, traced or not: then what it sends
	// times out, so nothing is read afterwards.
	sh(t, "nvme reset /dev/%s", zonedCtrl)
	waitUntil(t, "the controller is back", func() bool { return contains(t, "/sys/class/nvme/"+zonedCtrl+"/state", "live") })
	lines := stopFtrace()
	events := tr.stop(t)
	matchFtrace(t, events, lines)
	for _, opcode := range strings.Fields(`flush write read compare write_zeroes verify dsm copy identify get_log_page get_features set_features abort
		format_nvm zone_mgmt_recv zone_mgmt_send zone_append create_sq create_cq`) {
		if len(where(events, fields{"probe": "nvme:setup_cmd", "opcode": opcode})) == 0 {
			t.Errorf("no %s", opcode)
		}
	}
	for _, want := range []fields{
		{"opcode": "write", "fua": true, "lr": false}, {"opcode": "write", "fua": false, "lr": true},
		{"opcode": "dsm", "ranges": 1, "attributes": "ad"}, {"opcode": "dsm", "ranges": 3, "attributes": "ad_idw_idr"},
		{"opcode": "copy", "ranges": 2, "slba": 512}, {"opcode": "write_zeroes", "deac": true}, {"opcode": "write_zeroes", "deac": false},
		{"opcode": "abort", "for_qid": 1, "for_cid": 0x77},
		{"opcode": "zone_mgmt_recv", "zone_action": "report", "zone_state": "any"},
		{"opcode": "zone_mgmt_recv", "zone_state": "empty", "zone_partial": true},
		{"opcode": "zone_mgmt_send", "zone_action": "open", "slba": 0x100}, {"opcode": "zone_mgmt_send", "zone_action": "close"},
		{"opcode": "zone_mgmt_send", "zone_action": "finish"}, {"opcode": "zone_mgmt_send", "zone_action": "reset", "zone_all": false},
		{"opcode": "zone_mgmt_send", "zone_action": "reset", "zone_all": true}, {"opcode": "zone_append", "slba": 0x200, "nlb": 1},
		{"opcode": "create_sq", "for_qid": 1}, {"opcode": "create_cq", "for_qid": 2},
	} {
		want["probe"] = "nvme:complete_rq"
		if len(where(events, want)) == 0 {
			t.Errorf("no completion with %v", want)
		}
	}
}

// sector reads or writes one sector of a disk, and reports whether that worked.
func sector(disk string, write bool, n int) bool {
	args := []string{"if=/dev/" + disk, "of=/dev/null", "iflag=direct", fmt.Sprint("skip=", n)}
	if write {
		args = []string{"if=/dev/zero", "of=/dev/" + disk, "oflag=direct", "conv=notrunc", fmt.Sprint("seek=", n)}
	}
	return exec.Command("dd", append(args, "bs=512", "count=1")...).Run() == nil
}

// checkChains checks that the events tell one story of each command: an attempt after the other, in the same request, for the same
// submitter, and how many there were. It returns the number of attempts of each command.
func checkChains(t *testing.T, events []jsonEvent) []int {
	t.Helper()
	type chain struct {
		attempt, retries, requeues int64
		comm                       string
		open                       bool // handed to the driver, and not ended
		total                      int64
	}
	chains := map[string]*chain{}
	var ended []int
	for _, e := range events {
		rq := e.text("rq")
		c := chains[rq]
		attempt, retries, requeues := e.num(t, "attempt"), e.num(t, "retries"), e.num(t, "requeues")
		if attempt != 1+retries+requeues {
			t.Fatalf("attempt %d is not 1 + %d retries + %d requeues in %v", attempt, retries, requeues, e)
		}
		switch e.text("probe") {
		case "nvme:setup_cmd":
			if attempt == 1 {
				if c != nil && c.open {
					t.Fatalf("a new command in a request that is in use: %v", e)
				}
				if c != nil {
					ended = append(ended, int(c.attempt))
				}
				c = &chain{comm: e.text("comm")}
				chains[rq] = c
			}
			if c == nil || attempt != c.attempt+1 || requeues > c.requeues != (c.open && attempt > 1) {
				t.Fatalf("after %+v comes %v", c, e)
			}
			c.attempt, c.retries, c.requeues, c.open = attempt, retries, requeues, true
		case "nvme:complete_rq":
			if c == nil || !c.open || attempt != c.attempt || retries != c.retries || requeues != c.requeues || e.text("comm") != c.comm {
				t.Fatalf("after %+v comes %v", c, e)
			}
			total, latency := e.num(t, "total_latency"), e.num(t, "latency")
			if total < latency || total < c.total || attempt == 1 && total != latency {
				t.Fatalf("total latency %d, %d before, latency %d in %v", total, c.total, latency, e)
			}
			c.open, c.total = false, total
		}
	}
	for _, c := range chains {
		if c.open {
			t.Errorf("not ended: %+v", c)
		}
		ended = append(ended, int(c.attempt))
	}
	return ended
}

// TestVMMoreNvmeRetries reads and writes blocks that fail: always, and once.
func TestVMMoreNvmeRetries(t *testing.T) {
	ctrl, disk := controller(t, "errors")
	data, err := os.ReadFile("/sys/module/nvme_core/parameters/max_retries")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	tr := start(t, "nvme:setup_cmd, nvme:sq, nvme:complete_rq")
	stopFtrace := startFtrace(t)
	if sector(disk, false, 2048) || !sector(disk, false, 4096) || sector(disk, true, 6144) || !sector(disk, true, 8192) {
		t.Error("blocks are as bad as they should not be")
	}
	status := send(t, disk, false, passthru{opcode: 2, nsid: 1, cdw: [6]uint32{0xfffffff0, 1}})
	lines := stopFtrace()
	all := tr.stop(t)
	matchFtrace(t, all, lines)
	var events []jsonEvent
	for _, e := range where(all, fields{"disk": disk}) {
		if e.text("probe") != "nvme:sq" {
			events = append(events, e)
		}
	}
	attempts := map[int]int{}
	for _, n := range checkChains(t, events) {
		attempts[n]++
	}
	if attempts[1+most] != 2 || attempts[2] != 2 {
		t.Errorf("commands by number of attempts: %v, want 2 that failed for good after %d, and 2 of 2 attempts", attempts, 1+most)
	}
	for slba, want := range map[int]string{2048: "read_error", 4096: "read_error", 6144: "write_fault", 8192: "write_fault"} {
		of := where(events, fields{"probe": "nvme:complete_rq", "slba": slba, "ctrl": ctrl})
		failed := where(of, fields{"status": want})
		if count := map[bool]int{true: 1 + most, false: 1}[slba == 2048 || slba == 6144]; len(failed) != count {
			t.Errorf("block %d: %d times %s, want %d, of %v", slba, len(failed), want, count, where(events, fields{"slba": slba}))
		}
	}
	if status&0x7ff != 0x80 || len(where(events, fields{"status": "lba_range", "attempt": 1, "dnr": true, "raw_status": status})) != 1 {
		t.Errorf("a block out of range: %#x", status)
	}
}

// TestVMMoreNvmeRequeues lets the driver run out of memory for DMA while the controller's interrupts are held back.
func TestVMMoreNvmeRequeues(t *testing.T) {
	const reads, size = 96, 128 << 10
	ctrl, disk := controller(t, "vmtest")
	writeFile(t, "/sys/block/"+disk+"/queue/nomerges", "2")
	program := fmt.Sprintf("nvme:setup_cmd / ctrl == %q && opcode == read /; nvme:complete_rq / ctrl == %[1]q && opcode == read /", ctrl)
	t.Cleanup(func() { maskInterrupts(t, ctrl, false) })
	var lines []ftraced
	events := untilWhole(t, program, func() {
		stopFtrace := startFtrace(t)
		maskInterrupts(t, ctrl, true)
		cmd := exec.Command("fio", "--name=x", "--filename=/dev/"+disk, "--rw=read", fmt.Sprint("--bs=", size), "--ioengine=libaio", "--direct=1",
			fmt.Sprint("--iodepth=", reads), fmt.Sprint("--number_ios=", reads), "--size=64M", "--minimal")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the driver has no memory left", func() bool { return strings.Count(sh(t, "cat %s/trace", tracefs), "nvme_cmd_read") > reads })
		maskInterrupts(t, ctrl, false)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		lines = stopFtrace()
	})
	commands, handed := 0, 0
	for _, n := range checkChains(t, events) {
		commands, handed = commands+1, handed+n
	}
	setups, ends := 0, 0
	for _, f := range lines {
		if f.disk == disk && strings.Contains(f.name, "read") && f.probe == "nvme:setup_cmd" {
			setups++
		}
		if f.disk == disk && f.probe == "nvme:complete_rq" {
			ends++
		}
	}
	if commands != ends || commands < reads || handed != setups || handed == commands {
		t.Errorf("%d commands in %d attempts; ftrace saw %d submissions and %d completions, of %d reads", commands, handed, setups, ends, reads)
	}
	t.Logf("%d commands in %d attempts", commands, handed)
}

// TestVMMoreNvmeDepth compares the commands in flight at each submission with those that ftrace saw begin and not end.
func TestVMMoreNvmeDepth(t *testing.T) {
	ctrl, disk := controller(t, "vmtest")
	tr := start(t, "nvme:setup_cmd")
	stopFtrace := startFtrace(t)
	out, err := exec.Command("fio", "--name=x", "--filename=/dev/"+disk, "--rw=randread", "--bs=4k", "--ioengine=libaio", "--direct=1", "--iodepth=16",
		"--number_ios=300", "--size=64M", "--minimal", "--cpus_allowed=0").CombinedOutput()
	if err != nil {
		t.Fatalf("fio: %v\n%s", err, out)
	}
	lines := stopFtrace()
	waiting := queueUp(t, tr.stop(t))
	queues, total, most, exact := map[uint64]int{}, 0, 0, 0
	for i, f := range lines {
		if f.ctrlName() != ctrl || f.num["qid"] == 0 {
			continue
		}
		switch f.probe {
		case "nvme:complete_rq":
			queues[f.num["qid"]]--
			total--
		case "nvme:setup_cmd":
			queues[f.num["qid"]]++
			total++
			most = max(most, total)
			e := waiting.next(t, f, f.slot())
			// What an interrupt ended after the event and before the line was in flight at the event.
			since := 0
			for j := i - 1; j >= 0 && lines[j].nsecs >= e.num(t, "nsecs")-clockError; j-- {
				if lines[j].probe == "nvme:complete_rq" && lines[j].ctrlName() == ctrl {
					since++
				}
			}
			queue, all := int(e.num(t, "queue_depth"))-queues[f.num["qid"]], int(e.num(t, "ctrl_depth"))-total
			if queue < 0 || queue > since || all < 0 || all > since {
				t.Fatalf("in flight %d on the queue and %d in all, and %d ended meanwhile: %v", queues[f.num["qid"]], total, since, e)
			}
			if queue == 0 && all == 0 {
				exact++
			}
		}
	}
	if most < 8 || most > 16 || exact < 100 {
		t.Errorf("at most %d commands in flight, fio keeps 16; %d of 300 times the very number", most, exact)
	}
}

var timeoutLine = regexp.MustCompile(`(nvme\d+): I/O .*timeout, (aborting|reset controller|completion polled)`)

// TestVMMoreNvmeTimeouts reads more than a slow disk gives in time.
func TestVMMoreNvmeTimeouts(t *testing.T) {
	ctrl, disk := slowDisk(t)
	tr := start(t, fmt.Sprintf("nvme:* / ctrl == %q /", ctrl))
	calls := countCalls(t, "nvme_timeout")
	stopFtrace := startFtrace(t)
	sh(t, "dmesg -C")
	// The first one spends the budget of many seconds, the second one waits for it. 5.10 may fail a read that was aborted.
	sh(t, "dd if=/dev/%s of=/dev/null bs=248k count=4 iflag=direct || true", disk)
	lines := stopFtrace()
	events := tr.stop(t)
	said := map[string]int{}
	for _, m := range timeoutLine.FindAllStringSubmatch(sh(t, "dmesg"), -1) {
		if m[1] == ctrl {
			said[m[2]]++
		}
	}
	t.Logf("the kernel logs %v", said)
	timeouts := where(events, fields{"probe": "nvme:timeout"})
	first, second := where(timeouts, fields{"timeouts": 1}), where(timeouts, fields{"timeouts": 2})
	// The kernel logs nothing where the controller is being reset, or has as many aborts to do as it takes.
	if n := calls(); int64(len(timeouts)) != n || said["aborting"] == 0 || len(first) < said["aborting"] || len(second) != said["reset controller"] {
		t.Errorf("%d timeouts, %d of them the first, %d the second; nvme_timeout was called %d times, the kernel logs %v", len(timeouts), len(first), len(second), n, said)
	}
	for _, e := range timeouts {
		e.expect(t, fields{"disk": disk, "opcode": "read", "comm": "dd"})
		if age := e.num(t, "age"); age < 1e9 || age > 60e9 {
			t.Errorf("after %d ns: %v", age, e)
		}
	}
	aborts := where(events, fields{"probe": "nvme:setup_cmd", "opcode": "abort"})
	if len(aborts) != said["aborting"] {
		t.Errorf("%d aborts, the kernel logs %v", len(aborts), said)
	}
	for _, e := range aborts {
		if len(where(first, fields{"qid": e.text("for_qid"), "cid": e.text("for_cid")})) == 0 {
			t.Errorf("no command that had timed out was aborted: %v", e)
		}
	}
	cancelled, want := map[uint64]int{}, map[uint64]int{}
	for _, e := range where(events, fields{"probe": "nvme:complete_rq", "cancelled": true}) {
		cancelled[uint64(e.num(t, "raw_status"))]++
		if latency := e.num(t, "latency"); e.text("opcode") == "read" && latency < 1e9 {
			t.Errorf("latency %d of %v", latency, e)
		}
		if e.num(t, "raw_status") == 0x371 {
			e.expect(t, fields{"device_latency": nil, "status": "host_aborted_cmd"})
		}
	}
	for _, f := range lines {
		if f.probe == "nvme:complete_rq" && f.ctrlName() == ctrl && f.num["flags"]&1 != 0 {
			want[f.num["status"]]++
		}
	}
	t.Logf("cancelled, by status: %v", want)
	if fmt.Sprint(cancelled) != fmt.Sprint(want) || said["reset controller"] > 0 && len(want) == 0 {
		t.Errorf("cancelled, by status: %v, ftrace saw %v", cancelled, want)
	}
	var chains []jsonEvent
	for _, e := range where(events, fields{"disk": disk}) {
		if p := e.text("probe"); p == "nvme:setup_cmd" || p == "nvme:complete_rq" {
			chains = append(chains, e)
		}
	}
	checkChains(t, chains)
}
