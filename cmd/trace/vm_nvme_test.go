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
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const tracefs = "/sys/kernel/tracing"

// ftraced is a line of ftrace's own text about a command, the oracle of these tests.
type ftraced struct {
	comm  string
	tid   int64
	nsecs int64 // CLOCK_BOOTTIME, rounded to 1000
	probe string
	ctrl  uint64
	disk  string
	name  string // of the command, as in nvme_cmd_read, or its code
	num   map[string]uint64
	args  map[string]uint64 // of the command, as far as the kernel explains them
	bytes []byte            // dwords 10 to 15, of commands that the kernel does not explain
	line  string
}

// fields are names of an event with the values that it must have; nil is for an absent one.
type fields map[string]any

// startFtrace switches the kernel's events on; the returned function switches them off and reads them.
func startFtrace(t *testing.T) func() []ftraced {
	t.Helper()
	set := func(file, value string) {
		t.Helper()
		writeFile(t, filepath.Join(tracefs, file), value)
	}
	var enables []string
	for _, name := range []string{"nvme_setup_cmd", "nvme_sq", "nvme_complete_rq"} {
		enables = append(enables, "events/nvme/"+name+"/enable")
	}
	off := func() {
		t.Helper()
		for _, file := range enables {
			set(file, "0")
		}
	}
	set("buffer_size_kb", "4096")
	set("trace_clock", "boot") // the clock of the field nsecs
	set("trace", "")
	t.Cleanup(off)
	for _, file := range enables {
		set(file, "1")
	}
	return func() []ftraced {
		t.Helper()
		off()
		return readFtrace(t)
	}
}

func writeFile(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

var (
	ftraceHeader = regexp.MustCompile(`(?m)^# entries-in-buffer/entries-written: (\d+)/(\d+)`)
	ftraceLine   = regexp.MustCompile(`^ *(.+)-(\d+) +\[\d+\] \S+ +(\d+)\.(\d{6}): nvme_(\w+): nvme(\d+): (?:disk=(\w+), )?(.*)$`)
	ftraceBytes  = regexp.MustCompile(`(?:cdw10|specific)=((?:[0-9a-f]{2} ?){24})`)
	ftraceNumber = regexp.MustCompile(`(\w+)=(0x[0-9a-f]+|\d+)`)
)

func readFtrace(t *testing.T) []ftraced {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tracefs, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	if h := ftraceHeader.FindSubmatch(text); h == nil || !bytes.Equal(h[1], h[2]) {
		t.Fatalf("ftrace lost events: %q", h)
	}
	var lines []ftraced
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, parseFtrace(t, strings.TrimSpace(line)))
		}
	}
	return lines
}

func parseFtrace(t *testing.T, line string) ftraced {
	t.Helper()
	m := ftraceLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("not a line of ftrace: %s", line)
	}
	number := func(digits string) uint64 {
		n, err := strconv.ParseUint(digits, 0, 64)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		return n
	}
	f := ftraced{
		comm: m[1], tid: int64(number(m[2])), nsecs: int64(number(strings.TrimLeft(m[3]+m[4], "0"))) * 1000,
		probe: "nvme:" + m[5], ctrl: number(m[6]), disk: m[7], num: map[string]uint64{}, args: map[string]uint64{}, line: line,
	}
	rest, args, _ := strings.Cut(m[8], "cmd=(")
	f.name, args, _ = strings.Cut(args, " ")
	if raw := ftraceBytes.FindStringSubmatchIndex(args); raw != nil {
		if _, err := fmt.Sscanf(strings.ReplaceAll(args[raw[2]:raw[3]], " ", ""), "%x", &f.bytes); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		args = args[:raw[0]]
	}
	for _, pair := range ftraceNumber.FindAllStringSubmatch(rest, -1) {
		f.num[pair[1]] = number(pair[2])
	}
	for _, pair := range ftraceNumber.FindAllStringSubmatch(args, -1) {
		f.args[pair[1]] = number(pair[2])
	}
	return f
}

// tagBits of a command id are the slot; those above count its uses. Kernel 5.10 shows them at submission only.
const tagBits = 0xfff

// unsavedComm stands where ftrace did not save a thread's name: it does so when the thread leaves a CPU, unless another CPU is at it.
const unsavedComm = "<...>"

// slot names what a queue uses for one command at a time.
func slot(ctrl string, qid, cid uint64) string {
	return fmt.Sprintf("%s queue %d slot %d", ctrl, qid, cid&tagBits)
}

func (f ftraced) slot() string { return slot(f.ctrlName(), f.num["qid"], f.num["cmdid"]) }

func (f ftraced) ctrlName() string { return fmt.Sprint("nvme", f.ctrl) }

// request are the fields in every line.
func (f ftraced) request() fields {
	want := fields{"ctrl": f.ctrlName(), "ctrl_id": f.ctrl, "disk": nil, "qid": f.num["qid"]}
	if f.disk != "" {
		want["disk"] = f.disk
	}
	return want
}

// submission are the fields of the command in the line of a submission.
func (f ftraced) submission() fields {
	want := fields{
		"tid": f.tid, "cid": f.num["cmdid"], "nsid": f.num["nsid"], "flags": f.num["flags"],
		"meta": f.num["meta"] != 0, "fctype": nil,
	}
	if f.comm != unsavedComm {
		want["comm"] = f.comm
	}
	f.addOpcode(want)
	f.addDecoded(want)
	return want
}

// completion are the fields in the line of a completion.
func (f ftraced) completion() fields {
	status := f.num["status"]
	return fields{
		"result": f.num["res"], "retries": f.num["retries"], "cancelled": f.num["flags"]&1 != 0, "driver_flags": f.num["flags"],
		"raw_status": status,
		"sc":         status & 0xff, "sct": status >> 8 & 7, "crd": status >> 11 & 3, "more": status>>13&1 != 0, "dnr": status>>14&1 != 0,
	}
}

// expect checks fields of an event; one that is wrong ends the test, since many others would be, too.
func (e jsonEvent) expect(t *testing.T, wants ...fields) {
	t.Helper()
	right := true
	for _, want := range wants {
		for name, value := range want {
			if got := e.text(name); got != fmt.Sprint(value) {
				t.Errorf("%s is %s, want %v in %v", name, got, value, e)
				right = false
			}
		}
	}
	if !right {
		t.FailNow()
	}
}

// queued are events that wait for the line of ftrace about the same.
type queued map[string][]jsonEvent

// queueUp sorts events by what they are matched by: the slot, or the queue where ftrace does not show the slot.
func queueUp(t *testing.T, events []jsonEvent) queued {
	t.Helper()
	q := queued{}
	for _, e := range events {
		key := slot(e.text("ctrl"), uint64(e.num(t, "qid")), uint64(e.num(t, "cid")))
		if e.text("probe") == "nvme:sq" {
			key = e.text("ctrl") + " " + e.text("qid")
		}
		key = e.text("probe") + " " + key
		q[key] = append(q[key], e)
	}
	return q
}

// next takes the first event of a probe that waits under a key.
func (q queued) next(t *testing.T, f ftraced, key string) jsonEvent {
	t.Helper()
	key = f.probe + " " + key
	if len(q[key]) == 0 {
		t.Fatalf("no event of %s for %+v", key, f)
	}
	e := q[key][0]
	q[key] = q[key][1:]
	return e
}

// clockError is more than what rounding and the faster way in which ftrace reads the clock can make of the order of two times.
const clockError = int64(10 * time.Microsecond)

// matchFtrace checks that the events and ftrace's lines match one to one, with the same values. Trace must have been attached before ftrace
// was: then the kernel calls it first at each tracepoint.
func matchFtrace(t *testing.T, events []jsonEvent, lines []ftraced) {
	t.Helper()
	waiting := queueUp(t, events)
	submitted, answered, failed := map[string]ftraced{}, map[string]ftraced{}, map[string]*ftraced{}
	for i, f := range lines {
		var e jsonEvent
		var earliest ftraced // what came before the event
		switch f.probe {
		case "nvme:setup_cmd":
			e = waiting.next(t, f, f.slot())
			e.expect(t, f.request(), f.submission())
			f.checkDwords(t, e)
			if again := failed[f.slot()]; again != nil {
				// The sender of a retried command is its first sender.
				f.comm, f.tid = again.comm, again.tid
			}
			submitted[f.slot()] = f
			delete(answered, f.slot())
		case "nvme:sq":
			e = waiting.next(t, f, fmt.Sprint(f.ctrlName(), " ", f.num["qid"]))
			place := slot(f.ctrlName(), f.num["qid"], uint64(e.num(t, "cid")))
			earliest, answered[place] = submitted[place], f
			e.expect(t, f.request(), submitted[place].submission(), fields{"sq_head": f.num["head"], "sq_tail": f.num["tail"]})
		case "nvme:complete_rq":
			e = waiting.next(t, f, f.slot())
			var seen bool
			earliest, seen = answered[f.slot()]
			e.expect(t, f.request(), submitted[f.slot()].submission(), f.completion())
			if seen {
				checkLatency(t, e, earliest.nsecs-submitted[f.slot()].nsecs)
			} else {
				e.expect(t, fields{"device_latency": nil}) // fabrics, or cancelled
			}
			failed[f.slot()] = nil
			if first := submitted[f.slot()]; f.retried(lines[i+1:]) {
				failed[f.slot()] = &first
			}
		}
		if at := e.num(t, "nsecs"); at > f.nsecs+clockError || at < earliest.nsecs-clockError {
			t.Fatalf("nsecs is %d, want from %d to %d in %v", at, earliest.nsecs, f.nsecs, e)
		}
	}
	for key, left := range waiting {
		if len(left) > 0 {
			t.Errorf("%s: ftrace did not see %v", key, left)
		}
	}
}

// checkLatency checks the latencies of a completion: they include the time between ftrace's lines about the submission and about the
// completion queue entry.
func checkLatency(t *testing.T, e jsonEvent, least int64) {
	t.Helper()
	latency, device := e.num(t, "latency"), e.num(t, "device_latency")
	if device <= 0 || latency < device || latency < least-clockError {
		t.Fatalf("latency %d, device latency %d, at least %d in %v", latency, device, least, e)
	}
}

// countOf returns how many events of a probe ftrace saw.
func countOf(lines []ftraced, probe string) int {
	n := 0
	for _, f := range lines {
		if f.probe == probe {
			n++
		}
	}
	return n
}

// where returns the events with these fields.
func where(events []jsonEvent, want fields) []jsonEvent {
	var found []jsonEvent
next:
	for _, e := range events {
		for name, value := range want {
			if e.text(name) != fmt.Sprint(value) {
				continue next
			}
		}
		found = append(found, e)
	}
	return found
}

// namespace is a disk of the guest.
type namespace struct {
	disk      string // the kernel scans side by side, so that the number in the name need not be the id
	nsid      int
	blockSize int64
}

// namespaces returns the disk with blocks of 512 bytes and the one with blocks of 4096 bytes; their ids are 1 and 2.
func namespaces(t *testing.T) (small, large namespace) {
	t.Helper()
	find := func(blockSize int64, nsid int) namespace {
		t.Helper()
		for _, disk := range []string{"nvme0n1", "nvme0n2"} {
			folder := filepath.Join("/sys/block", disk)
			if contains(t, folder+"/nsid", fmt.Sprint(nsid)) && contains(t, folder+"/queue/logical_block_size", fmt.Sprint(blockSize)) {
				return namespace{disk, nsid, blockSize}
			}
		}
		t.Fatalf("there is no namespace %d with blocks of %d bytes", nsid, blockSize)
		return namespace{}
	}
	return find(512, 1), find(4096, 2)
}

// contains reports whether a file of the kernel contains a text.
func contains(t *testing.T, name, text string) bool {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), text)
}

// fioRun is fio's report of a run.
type fioRun struct {
	pid  int // its threads belong to one process
	Jobs []struct {
		Name        string `json:"jobname"` // is the opcode
		Read, Write fioSide
	}
}

// fioSide is what fio measured from before it submitted an operation until after it got the result: more than any latency of ours.
type fioSide struct {
	Total   int `json:"total_ios"`
	Latency struct {
		Min, Max, Mean float64
	} `json:"lat_ns"`
}

// fioArgs are random reads or writes of a size of 4 to 16 KiB; fio measures them with the clock that the kernel uses for ours.
func fioArgs(ns namespace, jobs ...string) []string {
	args := strings.Fields("--output-format=json --thread --ioengine=libaio --direct=1 --bsrange=4k-16k --size=16M --clocksource=clock_gettime")
	return append(append(args, "--filename=/dev/"+ns.disk), strings.Fields(strings.Join(jobs, " "))...)
}

// fio makes exactly so many reads and writes at the same time, each on a CPU of its own, so that the counts are exact: where the kernel can
// preempt a program of a tracepoint, as 7.2 can, it skips the program for another process that submits on that CPU meanwhile. trace counts
// what is skipped.
func fio(t *testing.T, ns namespace, reads, writes int) fioRun {
	t.Helper()
	writeFile(t, "/sys/block/"+ns.disk+"/queue/nomerges", "2")
	cmd := exec.Command("fio", fioArgs(ns, "--iodepth=8",
		fmt.Sprintf("--name=read --rw=randread --cpus_allowed=0 --number_ios=%d", reads),
		fmt.Sprintf("--name=write --rw=randwrite --cpus_allowed=1 --number_ios=%d", writes))...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	run := fioRun{pid: cmd.Process.Pid}
	if err := json.Unmarshal(out, &run); err != nil {
		t.Fatal(err)
	}
	if run.Jobs[0].Read.Total != reads || run.Jobs[1].Write.Total != writes {
		t.Fatalf("fio made %d reads and %d writes", run.Jobs[0].Read.Total, run.Jobs[1].Write.Total)
	}
	return run
}

// checkFio checks the completions of a run of fio.
func checkFio(t *testing.T, events []jsonEvent, run fioRun, ns namespace) {
	t.Helper()
	for _, job := range run.Jobs {
		side := job.Read
		if job.Name == "write" {
			side = job.Write
		}
		ours := where(events, fields{"probe": "nvme:complete_rq", "pid": run.pid, "opcode": job.Name})
		if len(ours) != side.Total {
			t.Fatalf("%d completions of %s on %s, fio made %d", len(ours), job.Name, ns.disk, side.Total)
		}
		var least, most, sum float64
		for i, e := range ours {
			e.expect(t, fields{"disk": ns.disk, "nsid": ns.nsid, "comm": "fio", "status": "success", "bytes": e.num(t, "nlb") * ns.blockSize})
			latency := float64(e.num(t, "latency"))
			if i == 0 {
				least = latency
			}
			least, most, sum = min(least, latency), max(most, latency), sum+latency
		}
		if mean, fio := sum/float64(len(ours)), side.Latency; least > fio.Min || most > fio.Max || mean > fio.Mean {
			t.Errorf("%s on %s: latencies from %v to %v, mean %v, fio measured %v", job.Name, ns.disk, least, most, mean, fio)
		}
	}
}

// nvmeRuns are runs of nvme-cli, on namespace 1 where they name NS1; the last command of each is known, those before it can only be
// identify.
var nvmeRuns = []struct {
	args string
	last fields
}{
	{"flush NS1", fields{"opcode": "flush", "status": "success", "nsid": 1, "bytes": 0}},
	{"id-ctrl /dev/nvme0", fields{"opcode": "identify", "status": "success", "cdw10": 1, "bytes": 4096}},
	{"smart-log /dev/nvme0", fields{"opcode": "get_log_page", "status": "success", "nsid": 0xffffffff, "bytes": 512}},
	{"get-feature /dev/nvme0 -f 7", fields{"opcode": "get_features", "status": "success", "cdw10": 7}},
	{"dsm NS1 -d -s 64 -b 8", fields{"opcode": "dsm", "status": "success", "bytes": 16}},
	{"write-zeroes NS1 -s 8 -c 7", fields{"opcode": "write_zeroes", "status": "success", "slba": 8, "nlb": 8}},
	{"compare NS1 -s 8 -c 7 -z 4096 -d zeroes", fields{"opcode": "compare", "status": "success", "slba": 8, "nlb": 8}},
	{"compare NS1 -s 8 -c 7 -z 4096 -d others", fields{"opcode": "compare", "status": "compare_failed", "dnr": false}},
	{"io-passthru NS1 -o 2 -n 1 --cdw10=0xfffffff0 --cdw11=1 -l 512 -r",
		fields{"opcode": "read", "status": "lba_range", "dnr": true, "slba": 0x1fffffff0, "nlb": 1, "bytes": 512}},
	{"admin-passthru /dev/nvme0 -o 0xee", fields{"opcode": 0x1ee, "raw_opcode": 0xee, "status": "invalid_opcode", "dnr": true, "disk": nil}},
}

// TestVMNvmeCountsAndFields compares every command with the output of ftrace, fio and nvme-cli.
func TestVMNvmeCountsAndFields(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"zeroes": "\x00", "others": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(content), 4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	small, large := namespaces(t)
	tr := start(t, "nvme:*")
	stopFtrace := startFtrace(t)
	onSmall, onLarge := fio(t, small, 60, 40), fio(t, large, 40, 60)
	var pids []int
	for _, r := range nvmeRuns {
		cmd := exec.Command("nvme", strings.Fields(strings.ReplaceAll(r.args, "NS1", "/dev/"+small.disk))...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if failed := r.last["status"] != "success"; failed != (err != nil) {
			t.Errorf("nvme %s: %v\n%s", r.args, err, out)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	lines := stopFtrace()
	events := tr.stop(t)

	matchFtrace(t, events, lines)
	checkFio(t, events, onSmall, small)
	checkFio(t, events, onLarge, large)
	for i, r := range nvmeRuns {
		ours := where(events, fields{"probe": "nvme:complete_rq", "pid": pids[i], "comm": "nvme"})
		if len(ours) == 0 {
			t.Errorf("nvme %s: no completion", r.args)
			continue
		}
		for _, e := range ours[:len(ours)-1] {
			e.expect(t, fields{"opcode": "identify", "status": "success", "bytes": 4096})
		}
		ours[len(ours)-1].expect(t, r.last)
	}
}

var reportLine = regexp.MustCompile(`(?m)^trace: (\w+:\w+): (\d+) seen, (\d+) printed, (\d+) rejected, (\d+) lost$`)

// tallies returns by probe what was seen, printed, rejected and lost, from the report at the end.
func tallies(t *testing.T, notes string) map[string][4]int {
	t.Helper()
	found := map[string][4]int{}
	for _, m := range reportLine.FindAllStringSubmatch(notes, -1) {
		var n [4]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[2+i])
		}
		found[m[1]] = n
	}
	return found
}

// TestVMNvmeFilterCountsRejected checks that a filter prints what it should, and that the rest is counted.
func TestVMNvmeFilterCountsRejected(t *testing.T) {
	small, large := namespaces(t)
	tr := start(t, "nvme:complete_rq / opcode == write && nsid == 2 /")
	stopFtrace := startFtrace(t)
	fio(t, small, 30, 20)
	run := fio(t, large, 20, 30)
	total := countOf(stopFtrace(), "nvme:complete_rq")
	events := tr.stop(t)
	wanted := where(events, fields{"probe": "nvme:complete_rq", "opcode": "write", "nsid": 2, "disk": large.disk, "pid": run.pid})
	if len(events) != 30 || len(wanted) != 30 {
		t.Errorf("%d events, %d of them of the 30 writes", len(events), len(wanted))
	}
	if got, want := tallies(t, tr.messages(t))["nvme:complete_rq"], [4]int{total, 30, total - 30, 0}; got != want {
		t.Errorf("report has %v, want %v:\n%s", got, want, tr.messages(t))
	}
}

// waitUntil polls a condition that something else brings about.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(120 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after two minutes", what)
		}
	}
}

// TestVMNvmeLost stops the reader of a tiny buffer: what is delivered and what is reported as lost make up what ftrace saw.
func TestVMNvmeLost(t *testing.T) {
	small, _ := namespaces(t)
	tr := start(t, "--strict", "--buffer-size", "4KiB", "nvme:*")
	stopFtrace := startFtrace(t)
	if err := tr.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "trace is stopped", func() bool {
		return contains(t, fmt.Sprintf("/proc/%d/status", tr.cmd.Process.Pid), "T (stopped)")
	})
	// fio keeps 16 commands in flight: their beginnings alone could fill the buffer before the first completion. One at a time cannot.
	if out, err := exec.Command("dd", "if=/dev/"+small.disk, "of=/dev/null", "iflag=direct", "bs=4096", "count=1").CombinedOutput(); err != nil {
		t.Fatalf("dd: %v\n%s", err, out)
	}
	fio(t, small, 60, 40)
	lines := stopFtrace()
	for _, s := range []os.Signal{unix.SIGCONT, os.Interrupt} {
		if err := tr.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	tr.cmd.Wait()
	if status := tr.cmd.ProcessState.ExitCode(); status != exitLost {
		t.Errorf("exit status %d", status)
	}
	data, err := os.ReadFile(tr.events)
	if err != nil {
		t.Fatal(err)
	}
	events, notes := decodeLines(t, bytes.NewReader(data)), tr.messages(t)
	for _, probe := range []string{"nvme:setup_cmd", "nvme:sq", "nvme:complete_rq"} {
		total, delivered := countOf(lines, probe), len(where(events, fields{"probe": probe}))
		lost := total - delivered
		if lost == 0 || delivered == 0 {
			t.Errorf("%s: %d delivered of %d", probe, delivered, total)
		}
		if got, want := tallies(t, notes)[probe], [4]int{total, delivered, 0, lost}; got != want {
			t.Errorf("%s: report has %v, want %v", probe, got, want)
		}
		if line := fmt.Sprintf("trace: lost %d of %d %s events: %[1]d ring buffer full", lost, total, probe); !strings.Contains(notes, line) {
			t.Errorf("no line %q in:\n%s", line, notes)
		}
	}
}

// maskInterrupts holds back what the NVMe controller wants to tell the driver, or lets it through again: the function mask of its
// MSI-X capability (PCI Local Bus Specification 3.0, 6.8.2).
func maskInterrupts(t *testing.T, ctrl string, masked bool) {
	t.Helper()
	const (
		firstCapability, msix = 0x34, 0x11
		control, functionMask = 3, 1 << 6 // upper byte of the message control register
	)
	config, err := os.OpenFile("/sys/class/nvme/"+ctrl+"/device/config", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	var space [256]byte
	if _, err := config.ReadAt(space[:], 0); err != nil {
		t.Fatal(err)
	}
	at := space[firstCapability]
	for at != 0 && space[at] != msix {
		at = space[at+1]
	}
	if at == 0 {
		t.Fatal("the controller has no MSI-X")
	}
	value := space[at+control] &^ functionMask
	if masked {
		value |= functionMask
	}
	if _, err := config.WriteAt([]byte{value}, int64(at)+control); err != nil {
		t.Fatal(err)
	}
}

// TestVMNvmeUnmatched attaches while commands are in flight, whose submission trace cannot have seen.
func TestVMNvmeUnmatched(t *testing.T) {
	const before = 32
	small, _ := namespaces(t)
	// A command that waits long must not be polled for.
	writeFile(t, "/sys/block/"+small.disk+"/queue/io_timeout", "120000")
	maskInterrupts(t, "nvme0", true)
	t.Cleanup(func() { maskInterrupts(t, "nvme0", false) })
	early := exec.Command("fio", fioArgs(small, fmt.Sprintf("--name=read --rw=randread --iodepth=%d --number_ios=%[1]d", before))...)
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "commands are in flight", func() bool { return contains(t, "/sys/block/"+small.disk+"/inflight", fmt.Sprint(before)) })
	tr := start(t, "nvme:*")
	maskInterrupts(t, "nvme0", false)
	if err := early.Wait(); err != nil {
		t.Fatal(err)
	}
	late := fio(t, small, 10, 10)
	events, notes := tr.stop(t), tr.messages(t)

	// Without the types of the driver trace uses its guessed offsets only after it has checked them at a submission.
	ctrl, successes := any("nvme0"), before+20
	if _, err := os.Stat("/sys/kernel/btf/nvme_core"); err != nil {
		ctrl, successes = nil, 20
	}
	for _, probe := range []string{"nvme:sq", "nvme:complete_rq"} {
		unmatched := where(events, fields{"probe": probe, "cid": nil})
		if len(unmatched) != before {
			t.Errorf("%s: %d without submission, want %d", probe, len(unmatched), before)
		}
		for _, e := range unmatched {
			e.expect(t, fields{"latency": nil, "device_latency": nil, "pid": nil, "comm": nil, "opcode": nil, "bytes": nil,
				"nsid": nil, "disk": small.disk, "ctrl": ctrl})
		}
		if line := fmt.Sprintf("trace: %s: the beginning of %d events was not seen", probe, before); !strings.Contains(notes, line) {
			t.Errorf("no line %q in:\n%s", line, notes)
		}
	}
	if ok := where(events, fields{"probe": "nvme:complete_rq", "status": "success"}); len(ok) != successes {
		t.Errorf("%d successful completions, want %d", len(ok), successes)
	}
	checkFio(t, events, late, small)
}

// TestVMNvmeCapabilities runs trace as an ordinary user with the two capabilities that it needs, and with none.
func TestVMNvmeCapabilities(t *testing.T) {
	small, _ := namespaces(t)
	run := func(caps string) (events []jsonEvent, notes string, status int) {
		var out, errs bytes.Buffer
		cmd := asNobody(t, caps, "-f", "json", "-n", "1", "-c", fmt.Sprintf("dd if=/dev/%s of=/dev/null bs=4k count=1 iflag=direct status=none", small.disk),
			"nvme:complete_rq")
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Run()
		return decodeLines(t, &out), errs.String(), cmd.ProcessState.ExitCode()
	}
	sh(t, "chmod o+r /dev/%s", small.disk)

	events, notes, status := run("bpf,perfmon")
	if status != exitOK || len(events) != 1 {
		t.Errorf("with CAP_BPF and CAP_PERFMON: exit status %d, %d events:\n%s", status, len(events), notes)
	}
	for _, e := range events {
		e.expect(t, fields{"opcode": "read", "status": "success", "comm": "dd", "uid": 65534, "disk": small.disk, "bytes": 4096})
		checkLatency(t, e, 0)
	}

	events, notes, status = run("")
	clear := regexp.MustCompile(`^trace: .*CAP_BPF.*CAP_PERFMON.*\n$`)
	if status != exitFailed || len(events) != 0 || !clear.MatchString(notes) || strings.Contains(notes, "support") {
		t.Errorf("without capabilities: exit status %d, %d events:\n%s", status, len(events), notes)
	}
}

// TestVMNvmeLoadedLater: a missing module does not affect other probes, and its probes work once it is loaded.
func TestVMNvmeLoadedLater(t *testing.T) {
	sh(t, "modprobe -r nvme nvme_core")
	reload := func() { sh(t, "modprobe nvme; until [ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ]; do sleep 0.1; done") }
	t.Cleanup(reload)
	out, err := exec.Command("trace", "nvme:complete_rq").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "module nvme_core is not loaded (modprobe nvme)") {
		t.Errorf("%v\n%s", err, out)
	}
	others := start(t, "ib:modify_qp, nvme:*, syscall:*")
	if !strings.Contains(others.messages(t), "leaving out nvme:async_event") || !strings.Contains(others.messages(t), "Attached 3 probes") {
		t.Errorf("beside others:\n%s", others.messages(t))
	}
	reload()
	waitUntil(t, "a note about the module", func() bool { return strings.Contains(others.messages(t), "module nvme_core was loaded at ") })
	others.cmd.Process.Kill()

	trace := start(t, "nvme:complete_rq / opcode == identify /")
	sh(t, "nvme id-ctrl /dev/nvme0 >/dev/null")
	if len(trace.stop(t)) == 0 {
		t.Error("no event after the module was loaded")
	}
}

// TestVMNvmeHiddenTypes: the places that trace guesses without the driver's types hold on every kernel.
func TestVMNvmeHiddenTypes(t *testing.T) {
	hideTypes(t, "nvme_core")
	small, _ := namespaces(t)
	trace := start(t, "nvme:complete_rq")
	sh(t, "dd if=/dev/%s of=/dev/null bs=4k count=20 iflag=direct", small.disk)
	events := trace.stop(t)
	if len(events) < 20 {
		t.Errorf("%d events, dd alone reads 20 times", len(events))
	}
	unknown := 0
	for _, e := range events {
		// A command whose generation counter is 0 cannot confirm the places; the next one does.
		if e.at("status") == nil {
			unknown++
			continue
		}
		e.expect(t, fields{"ctrl": "nvme0", "ctrl_id": 0, "status": "success", "retries": 0, "cancelled": false})
	}
	if unknown > 2 {
		t.Errorf("%d of %d events have no status", unknown, len(events))
	}
}
