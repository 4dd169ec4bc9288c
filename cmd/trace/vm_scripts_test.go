//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trace/lang"
	"trace/probes/event"
	"trace/scripts"
)

// TestVMScriptsAttach runs every script that comes with trace on this kernel, in its long form with each flag that is on or off, too: all of it
// loads, and what has no map or function of user space runs in the kernel.
func TestVMScriptsAttach(t *testing.T) {
	for _, s := range scripts.All() {
		params, err := lang.Params(s.Name, s.Text)
		if err != nil {
			t.Fatal(err)
		}
		runs := [][]string{{s.Name}}
		for _, p := range params {
			if p.Type.Kind == event.Bool && full() {
				runs = append(runs, []string{s.Name, "--" + p.Name})
			}
		}
		for _, args := range runs {
			out, err := exec.Command("trace", append([]string{"--timeout", "1s"}, args...)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Attached") || strings.Contains(string(out), "bug in trace") {
				t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
}

// printed is what the printfs among events wrote, a string for each.
func printed(events []jsonEvent) []string {
	var lines []string
	for _, e := range events {
		if e.text("type") == "printf" {
			lines = append(lines, e.text("data"))
		}
	}
	return lines
}

// nvmeLine matches a line of nvme_trace; the names of the groups are names of fields.
var nvmeLine = regexp.MustCompile(`^[0-9:.]+ (?P<disk>\S+) +(Submit|Complete) +(?P<ctrl>\w+): (.*)\n$`)

// traced reads a line of nvme_trace as an event of the probe that it is of.
func traced(t *testing.T, line string) jsonEvent {
	t.Helper()
	m := nvmeLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("not a line of nvme_trace: %q", line)
	}
	e := jsonEvent{"probe": map[string]string{"Submit": "nvme:setup_cmd", "Complete": "nvme:complete_rq"}[m[2]], "ctrl": m[3], "disk": any(m[1])}
	for part := range strings.SplitSeq(m[4], ", ") {
		name, value, pair := strings.Cut(part, "=")
		value, in, named := strings.Cut(value, " (")
		switch {
		case !pair: // who sent it
			comm, _, _ := strings.Cut(part, "/")
			e["comm"] = comm
			continue
		case name == "cdw10":
			for i, dword := range strings.Fields(part[len("cdw10="):]) {
				e[fmt.Sprint("cdw", 10+i)] = number(t, "0x"+dword)
			}
			continue
		case named:
			e[name], name = strings.TrimSuffix(in, ")"), "raw_"+name
		case name == "res":
			name = "result"
		case name == "flags" && m[2] == "Complete":
			name = "driver_flags"
		case name == "meta":
			e[name] = value == "0x1"
			continue
		}
		if value == "true" || value == "false" {
			e[name] = value == "true"
		} else {
			e[name] = number(t, strings.TrimSuffix(value, "us"))
		}
	}
	for name, value := range e {
		if value == "-" {
			e[name] = nil
		}
	}
	return e
}

// number is a number of a line as JSON has it; a dash is none.
func number(t *testing.T, text string) any {
	t.Helper()
	if text == "-" {
		return nil
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return json.Number(fmt.Sprint(n))
}

// only keeps the fields that a line has.
func (e jsonEvent) only(all fields) fields {
	some := fields{}
	for name, value := range all {
		if _, ok := e[name]; ok {
			some[name] = value
		}
	}
	return some
}

// workNvme makes commands of many kinds. Some fail.
func workNvme(t *testing.T, ns namespace) {
	t.Helper()
	fio(t, ns, 60, 40)
	sh(t, "nvme id-ctrl /dev/nvme0; nvme smart-log /dev/nvme0; nvme flush /dev/%[1]s; nvme write-zeroes /dev/%[1]s -s 8 -c 7; "+
		"nvme dsm /dev/%[1]s -d -s 8 -b 8 || true; nvme get-feature /dev/nvme0 -f 7", ns.disk)
	sh(t, "! nvme read /dev/%s -s 99999999999 -c 0 -z 4096 >/dev/null 2>&1", ns.disk)
}

// TestVMScriptNvmeTrace compares each line with ftrace's line for the same command.
func TestVMScriptNvmeTrace(t *testing.T) {
	small, _ := namespaces(t)
	trace := start(t, "nvme_trace")
	failures := start(t, "nvme_trace", "--errors")
	filtered := start(t, "nvme_trace", "--nsid", "1", "--opcode", "read", "--ctrl_id", "0")
	admin := start(t, "nvme_trace", "--qid", "0")
	read := startFtrace(t)
	workNvme(t, small)
	lines := read()
	var events []jsonEvent
	for _, line := range printed(trace.stop(t)) {
		events = append(events, traced(t, line))
	}
	waiting := queueUp(t, events)
	submitted := map[string]ftraced{}
	var all, failed, reads, ofAdmin int
	for _, f := range lines {
		switch f.probe {
		case "nvme:setup_cmd":
			e := waiting.next(t, f, f.slot())
			submitted[f.slot()] = f
			e.expect(t, e.only(f.request()), e.only(f.submission()))
		case "nvme:complete_rq":
			e := waiting.next(t, f, f.slot())
			e.expect(t, e.only(f.request()), e.only(f.completion()))
			e.expect(t, fields{"opcode": submitted[f.slot()].submission()["opcode"], "driver_flags": f.num["flags"]})
			if f.num["status"] != 0 {
				failed++
				if e.text("status") == "success" {
					t.Errorf("a failed command has succeeded: %v", e)
				}
			}
		default:
			continue
		}
		all++
		if submitted[f.slot()].submission()["opcode"] == "read" && submitted[f.slot()].num["nsid"] == 1 {
			reads++
		}
		if f.num["qid"] == 0 {
			ofAdmin++
		}
	}
	if all != len(events) || all < 2*107 || failed == 0 || ofAdmin == 0 {
		t.Errorf("%d lines, ftrace has %d, %d of failures, %d of the admin queue", len(events), all, failed, ofAdmin)
	}
	for _, test := range []struct {
		trace *recorder
		want  int
	}{{failures, failed}, {filtered, reads}, {admin, ofAdmin}} {
		if got := len(printed(test.trace.stop(t))); got != test.want {
			t.Errorf("%q: %d lines, ftrace has %d", test.trace.cmd.Args, got, test.want)
		}
	}
}

// withoutParams returns the text of a script without the params of these names.
func withoutParams(t *testing.T, name string, params ...string) string {
	t.Helper()
	s, ok := scripts.Find(name)
	if !ok {
		t.Fatalf("no script %s", name)
	}
	for _, p := range params {
		s.Text = regexp.MustCompile(`(?m)^param `+p+` .*\n`).ReplaceAllString(s.Text, "")
	}
	return s.Text
}

// TestVMScriptNvmeLatency puts the latencies that nvme_trace prints into the buckets of nvme_bpf's nvme_latency, by its algorithm
// (histogram.bpf.h of commit 5dcf5b9), and compares with what the script counts of the same events.
func TestVMScriptNvmeLatency(t *testing.T) {
	small, large := namespaces(t)
	both := filepath.Join(t.TempDir(), "both.trace")
	text := withoutParams(t, "nvme_latency") + withoutParams(t, "nvme_trace", "ctrl_id", "nsid")
	if err := os.WriteFile(both, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ least, shift int }{{20, 0}, {0, 3}, {200, 1}, {10_000_000, 0}} {
		trace := start(t, both, "--nsid", fmt.Sprint(small.nsid), fmt.Sprint("--lat_min_us=", test.least), fmt.Sprint("--lat_shift=", test.shift), "-i", "60")
		fio(t, small, 300, 200)
		fio(t, large, 10, 10)            // another namespace
		sh(t, "nvme id-ctrl /dev/nvme0") // an admin command
		events := trace.stop(t)
		want := map[string]map[string]int{}
		total := 0
		for _, line := range printed(events) {
			if e := traced(t, line); e.text("probe") == "nvme:complete_rq" && e.num(t, "qid") > 0 {
				key := e.text("opcode")
				if want[key] == nil {
					want[key] = map[string]int{}
				}
				want[key][nvmeBpfBucket(int(e.num(t, "latency")), test.least, test.shift)]++
				total++
			}
		}
		if total < 500 {
			t.Fatalf("%d completions", total)
		}
		got := map[string]map[string]int{}
		for _, m := range events {
			if m.text("name") != "@us" {
				continue
			}
			for _, entry := range m["entries"].([]any) {
				e := jsonEvent(entry.(map[string]any))
				counts := map[string]int{}
				for _, bucket := range e["value"].([]any) {
					b := jsonEvent(bucket.(map[string]any))
					if n := int(b.num(t, "n")); n > 0 {
						counts[strings.Replace(b.text("lo"), "<nil>", "0", 1)+".."+b.text("hi")] = n
					}
				}
				got[fmt.Sprint(e["key"].([]any)[1])] = counts
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("from %dus, shift %d:\n got %v\nwant %v", test.least, test.shift, got, want)
		}
		t.Logf("from %dus, shift %d: %v", test.least, test.shift, got)
	}
}

// nvmeBpfBucket is where nvme_bpf counts a latency of v us.
func nvmeBpfBucket(v, least, shift int) string {
	if v < least {
		return fmt.Sprintf("0..%d", least)
	}
	k := bits.Len(uint(v-least) >> shift)
	if k == 0 {
		return fmt.Sprintf("%d..%d", least, least+1<<shift)
	}
	return fmt.Sprintf("%d..%d", least+1<<(shift+k-1), least+1<<(shift+k))
}

// TestVMScriptNvmeStuck holds completions back.
func TestVMScriptNvmeStuck(t *testing.T) {
	small, large := namespaces(t)
	for _, ns := range []namespace{small, large} { // a command that waits long must not be polled for
		writeFile(t, "/sys/block/"+ns.disk+"/queue/io_timeout", "120000")
	}
	trace := start(t, "nvme_stuck", "--longer", "2s")
	fio(t, small, 20, 20) // none of them is stuck
	maskInterrupts(t, "nvme0", true)
	t.Cleanup(func() { maskInterrupts(t, "nvme0", false) })
	var readers []*exec.Cmd
	for i, block := range []int{5, 3} {
		dd := exec.Command("dd", "if=/dev/"+small.disk, "of=/dev/null", "bs=4k", "count=1", fmt.Sprint("skip=", block), "iflag=direct", "status=none")
		if err := dd.Start(); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, dd)
		waitUntil(t, "the read is in flight", func() bool { return contains(t, "/sys/block/"+small.disk+"/inflight", fmt.Sprint(i+1)) })
	}
	stuck := func() string {
		data, err := os.ReadFile(trace.events)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	waitUntil(t, "both are stuck", func() bool { return strings.Count(stuck(), "dd/") >= 4 })
	maskInterrupts(t, "nvme0", false)
	for _, dd := range readers {
		if err := dd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	seen := len(stuck())
	time.Sleep(3 * time.Second)
	if more := stuck()[seen:]; strings.Count(more, "dd/") > 2 { // a look at the very end
		t.Errorf("they have completed:\n%s", more)
	}
	line := regexp.MustCompile(`^\d\d:\d\d:\d\d nvme0 qid=\d+ cid=\d+ dd/(\d+) read of (\S+) nsid=1 slba=(\d+) nlb=8, in flight for (\S+)\n$`)
	// In a look the older one comes first, and then the other; so from that to the next line the look changes.
	var within, between []time.Duration
	var lastAge time.Duration
	var lastPID string
	for _, text := range printed(trace.stop(t)) {
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("a line is %q", text)
		}
		age, err := time.ParseDuration(m[4])
		pid := m[1]
		older := pid == fmt.Sprint(readers[0].Process.Pid)
		block := map[bool]string{true: "40", false: "24"}[older]
		if err != nil || age < 2*time.Second || m[2] != small.disk || m[3] != block || !older && pid != fmt.Sprint(readers[1].Process.Pid) {
			t.Errorf("a line is %q, want the read of block 40 by %d or of block 24 by %d", text, readers[0].Process.Pid, readers[1].Process.Pid)
		}
		switch {
		case lastPID == "" || pid == lastPID:
		case older:
			between = append(between, age-lastAge)
		default:
			within = append(within, lastAge-age)
		}
		lastAge, lastPID = age, pid
	}
	if len(within) == 0 || len(between) > 0 && slices.Min(between) < slices.Max(within)+500*time.Millisecond {
		t.Errorf("the two differ by %v within a look, and by %v from one to the next", within, between)
	}
}

// TestVMScriptRdmaFlows compares the lines with what the programs print about their connection.
func TestVMScriptRdmaFlows(t *testing.T) {
	trace := start(t, "rdma_flows")
	other := start(t, "rdma_flows", "--device", "rxe7")
	sides := connections[0].run(t)
	time.Sleep(100 * time.Millisecond)
	events := trace.stop(t)
	lines := strings.Join(printed(events), "")
	for _, s := range sides {
		ready := fmt.Sprintf(" ready rxe0 RC %s qp %d -> %s qp %d mtu=1024 ibv_rc_pingpong/%d cgroup=", s.gid, s.qpn, s.peerGID, s.peerQPN, s.pid)
		ended := regexp.MustCompile(fmt.Sprintf(` ended rxe0 qp %d after [\d.]+m?s: destroyed in RTS by ibv_rc_pingpong/%d\n`, s.qpn, s.pid))
		if strings.Count(lines, ready) != 1 || len(ended.FindAllString(lines, -1)) != 1 {
			t.Errorf("no line %q, or none like %s, in:\n%s", ready, ended, lines)
		}
	}
	if n := strings.Count(lines, "ready"); n != 2 || strings.Count(lines, "ended") != 2 || !strings.Contains(lines, "\n0 connections are still there\n") {
		t.Errorf("%d connections became ready:\n%s", n, lines)
	}
	want := `[["ib:create_qp"] 2] [["ib:destroy_qp"] 2] [["ib:modify_qp"] 6]`
	if got := mapOf(t, events, "@calls"); got != want {
		t.Errorf("calls are %s, want %s", got, want)
	}
	if got := printed(other.stop(t)); len(got) != 1 {
		t.Errorf("lines of a device that there is not:\n%s", got)
	}
}

// TestVMScriptRdmaFlowsTable shows a connection while it exists.
func TestVMScriptRdmaFlowsTable(t *testing.T) {
	c := connections[0]
	c.server, c.client = slices.Clone(c.server), slices.Clone(c.client)
	for _, args := range [][]string{c.server, c.client} { // long enough for a look
		args[slices.Index(args, "200")] = "5000"
	}
	trace := start(t, "rdma_flows", "--table")
	sides := c.run(t)
	time.Sleep(2 * time.Second)
	lines := printed(trace.stop(t))
	for _, s := range sides {
		row := regexp.MustCompile(fmt.Sprintf(`^rxe0 +%d +RC +%s +%d +%s +1024 +ibv_rc_pingpong +%d [\d.]+m?s\n$`, s.qpn, s.gid, s.peerQPN, s.peerGID, s.pid))
		if !slices.ContainsFunc(lines, row.MatchString) {
			t.Errorf("no line like %s in:\n%s", row, strings.Join(lines, ""))
		}
	}
	// The last look is from after the end.
	last := len(lines) - 1
	for ; last > 0 && !strings.HasPrefix(lines[last], "DEVICE"); last-- {
	}
	if rest := lines[last+1:]; len(rest) != 1 || !strings.HasPrefix(rest[0], "\n0 connections") {
		t.Errorf("the last look shows\n%s", strings.Join(rest, ""))
	}
	if strings.Contains(strings.Join(lines, ""), "ready") {
		t.Error("--table shows lines, too")
	}
}

// TestVMScriptRdmaFlowsFromBefore has the connections that are there, until they end, and no QP that is not connected.
func TestVMScriptRdmaFlowsFromBefore(t *testing.T) {
	path := buildDatapath(t)
	program := startDatapath(t, path)
	startDatapath(t, path, "type=ud")
	pid := program.cmd.Process.Pid
	lines, table := start(t, "rdma_flows"), start(t, "rdma_flows", "--table")
	waitUntil(t, "there is a table", func() bool { return strings.Count(table.wrote(t), " over ") > 1 })
	program.finish(t)
	time.Sleep(2 * time.Second)
	text, rows := strings.Join(printed(lines.stop(t)), ""), strings.Join(printed(table.stop(t)), "")
	flow := `::ffff:10\.9\.0\.1 qp \d+ -> ::ffff:10\.9\.0\.1 qp \d+ mtu=1024 datapath`
	for shown, wants := range map[string]map[string]int{
		text: {
			fmt.Sprintf(`(?m)^\S+ there rxe0 RC %s/%d cgroup=/`, flow, pid):                                       2,
			fmt.Sprintf(`(?m)^\S+ ended rxe0 qp \d+ after over \S+s: destroyed (in [A-Z]+ )?by datapath/%d`, pid): 2,
			` there rxe0| ended | ready `:        4,
			`(?m)^0 connections are still there`: 1,
		},
		rows: {` there rxe0| ended | ready `: 0, `(?m)^0 connections are still there`: 1},
	} {
		for want, n := range wants {
			if got := len(regexp.MustCompile(want).FindAllString(shown, -1)); got != n {
				t.Errorf("%d times %s, want %d:\n%s", got, want, n, shown)
			}
		}
	}
	for _, qp := range regexp.MustCompile(`there rxe0 RC \S+ qp (\d+) -> \S+ qp (\d+)`).FindAllStringSubmatch(text, -1) {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^rxe0 +%s +RC +::ffff:10\.9\.0\.1 +%s +::ffff:10\.9\.0\.1 +1024 +datapath +%d over [\d.]+m?s$`, qp[1], qp[2], pid))
		if !row.MatchString(rows) {
			t.Errorf("no line like %s in:\n%s", row, rows)
		}
	}
}

// mapOf is the last print of a map, its entries in the order of their text.
func mapOf(t *testing.T, events []jsonEvent, name string) string {
	t.Helper()
	var entries []string
	for _, e := range events {
		if e.text("name") != name {
			continue
		}
		entries = nil
		for _, entry := range e["entries"].([]any) {
			m := entry.(map[string]any)
			key, err := json.Marshal(m["key"])
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, fmt.Sprintf("[%s %v]", key, m["value"]))
		}
	}
	slices.Sort(entries)
	return strings.Join(entries, " ")
}
