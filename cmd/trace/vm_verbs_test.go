//go:build vm

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// datapath is the program of testdata/vm/datapath.c, which waits before its first post.
type datapath struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// ready is its first line.
	ready string
}

// buildDatapath compiles it.
func buildDatapath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "datapath")
	sh(t, "gcc -Wall -Werror -O2 -o %s testdata/vm/datapath.c -libverbs -lpthread", path)
	return path
}

// startDatapath returns when it is connected.
func startDatapath(t *testing.T, path string, args ...string) *datapath {
	t.Helper()
	return startDatapathBy(t, exec.Command(path, append(args, "wait=1")...))
}

// startDatapathBy starts it by another command.
func startDatapathBy(t *testing.T, cmd *exec.Cmd) *datapath {
	t.Helper()
	d := &datapath{cmd: cmd}
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in, d.out = in, bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.cmd.Process.Kill() })
	if d.ready, err = d.out.ReadString('\n'); err != nil || !strings.Contains(d.ready, `"ready"`) {
		t.Fatalf("%v prints %q: %v", cmd.Args, d.ready, err)
	}
	return d
}

// queueTotals is what it counted of one queue: completions are by opcode and status, refused requests by errno.
type queueTotals struct {
	Posts, Bytes, Retired, Completed uint64
	CompletedBytes                   uint64 `json:"completed_bytes"`
	By, Errors                       map[string]uint64
}

// datapathTotals is what it counted.
type datapathTotals struct {
	Polls, Empty uint64
	EmptyBefore  uint64 `json:"empty_before"` // empty polls of each thread, until its last completion
	QPs          []struct {
		Sender, Receiver uint64
		Type             string
		Sends, Receives  queueTotals
	}
	SRQ queueTotals
}

// finish makes it post, and returns what it counted.
func (d *datapath) finish(t *testing.T) datapathTotals {
	t.Helper()
	totals, _ := d.finishLines(t)
	return totals
}

// A datapathRequest is a line of the program about a completed request, with lines=1. Times are in ns.
type datapathRequest struct {
	Type, Kind, Opcode, Status string
	QP, Number                 int64
	Trap                       bool // the function that posts had a breakpoint at A
	// A and B are before and after the post, C and D before and after the poll that returns the completion.
	A, B, C, D int64
	// What the thread that polls had waited for a CPU at C and D, and before and after its poll before.
	RunqC      int64 `json:"runq_c"`
	RunqD      int64 `json:"runq_d"`
	RunqBefore int64 `json:"runq_before"`
	RunqLast   int64 `json:"runq_last"`
}

// finishLines makes it post, and returns what it counted, and the lines about completed requests.
func (d *datapath) finishLines(t *testing.T) (totals datapathTotals, requests []datapathRequest) {
	t.Helper()
	fmt.Fprintln(d.in)
	for {
		line, err := d.out.ReadBytes('\n')
		var r datapathRequest
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err == nil && r.Type == "request" {
			requests = append(requests, r)
			continue
		}
		if err == nil {
			err = json.Unmarshal(line, &totals)
		}
		if err != nil {
			t.Fatalf("datapath prints %q: %v", line, err)
		}
		break
	}
	if err := d.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return totals, requests
}

// expected returns the totals as the maps of verbsTotals print them. Of a program that reads nothing of its completions, cq=bare, only the status is
// known.
func (totals datapathTotals) expected(options, opcode string) map[string]uint64 {
	want := make(map[string]uint64)
	add := func(name string, n uint64) {
		if n > 0 {
			want[name] += n
		}
	}
	for _, qp := range totals.QPs {
		add(fmt.Sprintf("@sends[rxe0, %d, %s, %s]", qp.Sender, qp.Type, opcode), qp.Sends.Posts)
		add(fmt.Sprintf("@sent[%d]", qp.Sender), qp.Sends.Bytes)
		add(fmt.Sprintf("@receives[%d, false]", qp.Receiver), qp.Receives.Posts)
		for of, q := range map[string]queueTotals{fmt.Sprint(qp.Sender): qp.Sends, fmt.Sprint(qp.Receiver): qp.Receives} {
			if strings.Contains(options, "cq=bare") {
				of = "-"
			}
			for by, n := range q.By {
				add(fmt.Sprintf("@completions[%s, %s]", of, strings.Replace(by, " ", ", ", 1)), n)
			}
		}
	}
	add("@receives[-, true]", totals.SRQ.Posts)
	return want
}

const verbsTotals = `
	verbs:post_send { @sends[dev, qp.num, qp.type, opcode] = count(); @sent[qp.num] = sum((uint64)bytes) }
	verbs:post_recv { @receives[qp.num, srq] = count() }
	verbs:poll_cq { @completions[qp.num, opcode, status] = count() }`

// verbsRuns are the options of datapath, and the opcode that it posts.
var verbsRuns = []struct{ options, opcode string }{
	{"count=200", "SEND"},
	{"op=write batch=7 signal=7 count=210 sges=3", "RDMA_WRITE"},
	{"op=read", "RDMA_READ"},
	{"op=fadd", "ATOMIC_FETCH_AND_ADD"},
	{"op=write_imm", "RDMA_WRITE_WITH_IMM"},
	{"type=ud op=send_imm", "SEND_WITH_IMM"},
	{"srq=1 qps=2", "SEND"},
	{"threads=4 ids=same count=400 onecq=1", "SEND"},
	{"api=wr count=200", "SEND"},
	{"api=wr op=write batch=7 signal=7 count=210 sges=3", "RDMA_WRITE"},
	{"api=wr op=write_imm sges=16 inline=1 size=8", "RDMA_WRITE_WITH_IMM"},
	{"api=wr op=read", "RDMA_READ"},
	{"api=wr op=fadd", "ATOMIC_FETCH_AND_ADD"},
	{"api=wr type=ud op=send_imm", "SEND_WITH_IMM"},
	{"api=wr qps=4 threads=3 batch=4 entries=1 count=120", "SEND"},
	{"op=write fail=rkey count=20", "RDMA_WRITE"},
	{"fail=rnr count=20", "SEND"},
	{"qps=4 threads=3 batch=4 entries=1 count=120", "SEND"},
	{"cq=ex type=ud op=send_imm", "SEND_WITH_IMM"},
	{"cq=bare op=write fail=rkey count=20", "RDMA_WRITE"},
}

// What a program posts and polls is what it counts itself, however it posts, whether it began before trace or after. All programs have their
// QPs before the first one posts, so the numbers of QPs say which program an amount is of.
func TestVMVerbs(t *testing.T) {
	path := buildDatapath(t)
	begin := func() (programs []*datapath) {
		for _, run := range verbsRuns {
			programs = append(programs, startDatapath(t, path, strings.Fields(run.options)...))
		}
		return programs
	}
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			var programs []*datapath
			if running {
				programs = begin()
			}
			trace := startTool(t, "ttached", "trace", verbsTotals)
			if !running {
				programs = begin()
				// The library itself; ibv_wr_* and ibv_start_poll are found apart.
				for _, text := range []string{"trace: verbs: /", "verbs: ibv_wr_* of ", "verbs: ibv_start_poll of "} {
					waitUntil(t, "the library is found", func() bool { return strings.Contains(trace.out.String(), text) })
				}
			}
			want := make(map[string]uint64)
			for i, run := range verbsRuns {
				totals := programs[i].finish(t)
				for name, n := range totals.expected(run.options, run.opcode) {
					want[name] += n
				}
				for _, qp := range totals.QPs {
					t.Logf("QPs %d and %d: %s", qp.Sender, qp.Receiver, run.options)
				}
			}
			got := countsOf(trace.stop(t))
			for _, name := range slices.Sorted(maps.Keys(got)) {
				if _, found := want[name]; !found {
					t.Errorf("trace counts %s: %d", name, got[name])
				}
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if got[name] != want[name] {
					t.Errorf("trace counts %s: %d, the program %d", name, got[name], want[name])
				}
			}
			if t.Failed() {
				t.Log(trace.out.String())
			}
		})
	}
}

// Of a chain the first 32 requests are seen, and each longer one is counted as a loss.
func TestVMVerbsCut(t *testing.T) {
	d := startDatapath(t, buildDatapath(t), "op=write", "batch=40", "count=120")
	trace := startTool(t, "ttached", "trace", "verbs:post_send { @posts = count(); @bytes = sum((uint64)bytes) } verbs:complete { @retired = sum(retired) }")
	totals := d.finish(t)
	trace.end(t)
	text := trace.out.String()
	got := countsOf(mapsOf(text))
	if sends := totals.QPs[0].Sends; sends.Posts != 120 || got["@posts"] != 96 || got["@bytes"] != 96*64 || got["@retired"] != 96 {
		t.Errorf("of %+v trace sees %v", sends, got)
	}
	const beyond = "or more at the ends of lists with more than 32"
	for _, want := range []string{"trace: lost 3 verbs:post_send events: 3 " + beyond, "verbs:complete events: 24 whose beginning was not seen, before the filter ran, 3 " + beyond} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

// A filter shows what it must, and what it must reject is counted.
func TestVMVerbsFilter(t *testing.T) {
	path := buildDatapath(t)
	d := startDatapath(t, path, "op=write", "fail=rkey", "count=20")
	trace := start(t, "verbs:poll_cq / status not in [SUCCESS, WR_FLUSH_ERR] /")
	totals := d.finish(t)
	failed, all, status := uint64(0), uint64(0), "" // REM_ACCESS_ERR, on 5.10 RETRY_EXC_ERR
	for _, qp := range totals.QPs {
		for by, n := range qp.Sends.By {
			all += n
			if !strings.HasSuffix(by, " SUCCESS") && !strings.HasSuffix(by, " WR_FLUSH_ERR") {
				failed += n
				_, status, _ = strings.Cut(by, " ")
			}
		}
		for _, n := range qp.Receives.By {
			all += n
		}
	}
	if failed == 0 {
		t.Fatalf("nothing failed: %+v", totals)
	}
	events := trace.stop(t)
	if uint64(len(events)) != failed || events[0].text("status") != status || events[0].at("opcode") != nil || events[0].at("bytes") != nil ||
		events[0].text("dev") != "rxe0" || events[0].num(t, "pid") != int64(d.cmd.Process.Pid) || events[0].num(t, "qp.num") != int64(totals.QPs[0].Sender) {
		t.Errorf("%d failed; events: %v", failed, events)
	}
	if report := fmt.Sprintf("verbs:poll_cq: %d seen, %d printed, %d rejected, 0 lost", all, failed, all-failed); !strings.Contains(trace.messages(t), report) {
		t.Errorf("the report lacks %q:\n%s", report, trace.messages(t))
	}
}

// With -p the others do not even run the programs: nothing is rejected.
func TestVMVerbsProcess(t *testing.T) {
	path := buildDatapath(t)
	wanted, other := startDatapath(t, path, "count=50", "op=write"), startDatapath(t, path, "count=70", "op=write")
	pid := wanted.cmd.Process.Pid
	trace := startTool(t, "ttached", "trace", "-v", "-p", fmt.Sprint(pid), "verbs:post_send { @posts[pid] = count() } verbs:complete { @retired[pid] = sum(retired) }")
	other.finish(t)
	wanted.finish(t)
	waitUntil(t, "trace ends with the process", func() bool { return ended(t, trace.cmd) })
	trace.cmd.Wait()
	text := trace.out.String()
	want := map[string]uint64{fmt.Sprintf("@posts[%d]", pid): 50, fmt.Sprintf("@retired[%d]", pid): 50}
	if got := countsOf(mapsOf(text)); !maps.Equal(got, want) {
		t.Errorf("trace counts %v, want %v", got, want)
	}
	for _, report := range []string{"verbs:post_send: 50 seen, 0 printed, 0 rejected, 0 lost", "verbs:complete: 50 seen, 0 printed, 0 rejected, 0 lost"} {
		if !strings.Contains(text, report) {
			t.Errorf("the report lacks %q:\n%s", report, text)
		}
	}
}

// With filters by cgroup, process group, pid namespace and descent, too, the others do not even run the programs. A process that moves to the
// cgroup is seen from then on.
func TestVMVerbsChosen(t *testing.T) {
	path := buildDatapath(t)
	const cgroup = "/sys/fs/cgroup/chosen"
	sh(t, "mkdir -p %s/below", cgroup)
	t.Cleanup(func() { sh(t, "rmdir %s/below %[1]s", cgroup) })
	inCgroup := func(pid int) { sh(t, "echo %d > %s/below/cgroup.procs", pid, cgroup) }
	command := func(script string) *datapath {
		return startDatapathBy(t, exec.Command("sh", "-ec", fmt.Sprintf(script, path+" count=50 op=write wait=1")))
	}
	for _, test := range []struct {
		name, wanted string
		filter       func(pid int) []string
		later        func(pid int)
	}{
		{name: "cgroup", wanted: "echo $$ > " + cgroup + "/below/cgroup.procs; exec %s", filter: func(int) []string { return []string{"--cgroup", "/chosen"} }},
		{name: "moved", wanted: "exec %s", filter: func(int) []string { return []string{"--cgroup", "/chosen"} }, later: inCgroup},
		{name: "group", wanted: "exec setsid %s", filter: func(pid int) []string { return []string{"--pgid", fmt.Sprint(pid)} }},
		{name: "children", wanted: "%s; true", filter: func(pid int) []string { return []string{"-p", fmt.Sprint(pid), "--children"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			wanted, other := command(test.wanted), startDatapath(t, path, "count=70", "op=write")
			pid := wanted.cmd.Process.Pid
			trace := startTool(t, "ttached", "trace", append(test.filter(pid), "-v", "verbs:post_send { @posts = count() }")...)
			if test.later != nil {
				test.later(pid)
				waitUntil(t, "the process is followed", func() bool { return strings.Contains(trace.out.String(), fmt.Sprintf("as process %d uses it", pid)) })
			}
			other.finish(t)
			wanted.finish(t)
			trace.stop(t)
			if text := trace.out.String(); !strings.Contains(text, "@posts: 50") || !strings.Contains(text, "verbs:post_send: 50 seen, 0 printed, 0 rejected, 0 lost") {
				t.Errorf("of 50 posts that are wanted and 70 others trace sees:\n%s", text)
			}
		})
	}
}

// An ordinary user sees the data path of all processes with the capabilities that docs/privileges.md lists. A missing one is named.
func TestVMVerbsCapabilities(t *testing.T) {
	path := buildDatapath(t)
	sh(t, "chmod 755 %s %s", filepath.Dir(path), filepath.Dir(filepath.Dir(path)))
	for caps, missing := range map[string]string{"bpf,perfmon,sys_ptrace": "CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH", "sys_admin": "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"} {
		if out, err := asNobody(t, caps, "verbs:post_send").CombinedOutput(); err == nil || !strings.Contains(string(out), missing) {
			t.Errorf("with %s: %v\n%s", caps, err, out)
		}
	}
	d := startDatapath(t, path, "count=50")
	trace := startAsNobody(t, "sys_admin,sys_ptrace,dac_read_search", "verbs:post_send")
	totals := d.finish(t)
	if events := trace.stop(t); uint64(len(events)) != totals.QPs[0].Sends.Posts {
		t.Errorf("%d events of %d posts:\n%s", len(events), totals.QPs[0].Sends.Posts, trace.messages(t))
	}
}

// Containers from one image have overlays of their own over one file: each event is counted once. A container with a copy of the library is
// seen, too.
func TestVMVerbsContainers(t *testing.T) {
	path := buildDatapath(t)
	dir := t.TempDir()
	const libraries = "/usr/lib/x86_64-linux-gnu/libibverbs"
	sh(t, "mount -t tmpfs none %s && mkdir %[1]s/lower %[1]s/empty && cp %s/* %[1]s/lower", dir, libraries)
	t.Cleanup(func() { sh(t, "umount -l %s", dir) })
	overlay := fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s/lower:%[1]s/empty %s", dir, libraries)
	contained := func(mount string) *datapath {
		return startDatapathBy(t, exec.Command("unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec", mount+"; exec "+path+" count=50 wait=1"))
	}
	before := []*datapath{contained(overlay), contained(overlay)}
	trace := startTool(t, "ttached", "trace", verbsTotals)
	after := []*datapath{contained(overlay), contained("true")}
	waitUntil(t, "the library outside is found", func() bool { return strings.Contains(trace.out.String(), "is followed from now on") })
	want := make(map[string]uint64)
	for _, d := range append(before, after...) {
		for name, n := range d.finish(t).expected("", "SEND") {
			want[name] += n
		}
	}
	if got := countsOf(trace.stop(t)); !maps.Equal(got, want) {
		t.Errorf("trace counts\n%v\nthe programs\n%v\n%s", got, want, trace.out.String())
	}
}

// countsOf reads maps of numbers from lines of text.
func countsOf(lines []string) map[string]uint64 {
	counts := make(map[string]uint64)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		var n uint64
		fmt.Sscan(value, &n)
		counts[name] = n
	}
	return counts
}
