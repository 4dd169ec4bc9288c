//go:build vm

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trace/lang/run"
)

// quiet is the program of testdata/vm/quiet.c.
type quiet struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
	qps []string
}

// startQuiet returns when its QPs are in RTS, if it makes any.
func startQuiet(t *testing.T, path string, args ...string) *quiet {
	t.Helper()
	cmd := exec.Command(path, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	q := &quiet{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	words := strings.Fields(q.line(t))
	if len(words) == 0 || words[0] != "ready" {
		t.Fatalf("%v prints %q", args, words)
	}
	q.qps = words[1:]
	return q
}

func (q *quiet) line(t *testing.T) string {
	t.Helper()
	line, err := q.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// next lets it do what a line of input asks for.
func (q *quiet) next(t *testing.T) {
	t.Helper()
	fmt.Fprintln(q.in)
	q.line(t)
}

func buildQuiet(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quiet")
	sh(t, "gcc -Wall -Werror -O2 -o %s testdata/vm/quiet.c -libverbs", path)
	return path
}

// providerIn returns the library of rxe's provider that a process maps, and its build id as readelf shows it.
func providerIn(t *testing.T, pid int) (library, buildID string) {
	t.Helper()
	library = strings.TrimSpace(sh(t, "grep -o '/.*librxe.*' /proc/%d/maps | sort -u", pid))
	buildID = strings.TrimSpace(sh(t, "readelf -n %s | sed -n 's/.*Build ID: //p'", library))
	if !strings.HasPrefix(library, "/") || len(buildID) != 40 {
		t.Fatalf("library %q, build id %q", library, buildID)
	}
	return library, buildID
}

// Programs that have the device open before trace and after it are shown with the library that they use, each once for each device that it opens.
func TestVMVerbsOpen(t *testing.T) {
	path, data := buildQuiet(t), buildDatapath(t)
	before := map[*quiet]string{startQuiet(t, path, "open"): "OLD", startQuiet(t, path, "post"): "OLD"}
	built, extended := startDatapath(t, data, "api=wr"), startDatapath(t, data, "api=wr", "cq=ex")
	trace := start(t, "verbs:open")
	trace.waitToSay(t, "Attached")
	after := map[*quiet]int{startQuiet(t, path, "open"): 1, startQuiet(t, path, "silent"): 1}
	again := startQuiet(t, path, "reopen")
	count := func() int { return strings.Count(trace.wrote(t), `"verbs:open"`) }
	waitUntil(t, "seven programs are seen", func() bool { return count() == 7 })
	again.next(t)
	waitUntil(t, "the eighth is seen", func() bool { return count() == 8 })
	after[again] = 2
	const short = 20
	for range short {
		sh(t, "ibv_devinfo -d rxe0")
	}
	built.finish(t)
	extended.finish(t)
	time.Sleep(time.Second)
	events, lost := trace.stopAll(t)
	byPID := make(map[int64][]jsonEvent)
	devinfos := 0
	for _, e := range events {
		if e.text("comm") == "ibv_devinfo" {
			devinfos++
		}
		byPID[e.num(t, "pid")] = append(byPID[e.num(t, "pid")], e)
	}
	// ibv_devinfo closes the device at once: it is seen, or counted as not seen.
	if got := devinfos + lost["verbs:open"]; got != short || len(lost) > 1 {
		t.Errorf("ibv_devinfo opened the device %d times, want %d: %v", got, short, lost)
	}
	check := func(pid, n int, seeded bool, interfaces string) {
		t.Helper()
		if len(byPID[int64(pid)]) != n {
			t.Errorf("process %d: want %d events: %v", pid, n, byPID[int64(pid)])
		}
		for _, e := range byPID[int64(pid)] {
			var library, buildID string
			if pid != built.cmd.Process.Pid && pid != extended.cmd.Process.Pid { // these have ended
				library, buildID = providerIn(t, pid)
			} else {
				library, buildID = providerIn(t, again.pid)
			}
			for name, want := range map[string]any{
				"comm": filepath.Base(e.text("comm")), "dev": "rxe0", "provider": "rxe", "library": library, "build_id": buildID, "interfaces": interfaces,
				"seeded": seeded, "uid": 0,
			} {
				if e.text(name) != fmt.Sprint(want) {
					t.Errorf("process %d: %s is %s, want %v", pid, name, e.text(name), want)
				}
			}
		}
	}
	for q, interfaces := range before {
		check(q.pid, 1, true, interfaces)
	}
	check(built.cmd.Process.Pid, 1, true, "OLD|WR")
	check(extended.cmd.Process.Pid, 1, true, "OLD|WR|CQ_EX")
	for q, n := range after {
		check(q.pid, n, false, "OLD")
	}
	// A filter of processes leaves only theirs.
	only := start(t, "-p", fmt.Sprint(again.pid), "verbs:open")
	waitUntil(t, "it is seen", func() bool { return strings.Contains(only.wrote(t), `"verbs:open"`) })
	if events := only.stop(t); len(events) != 1 || events[0].num(t, "pid") != int64(again.pid) {
		t.Errorf("with -p %d: %v", again.pid, events)
	}
}

// A library that DPDK or UCX has: its name is what counts.
func writerLibrary(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, strings.Repeat("\x00", 4096))
	return path
}

const ucxWrites = "libuct_ib_mlx5.so.0: UCX writes the queues of rc_x, dc_x and ud_x itself (rc_v and ud_v are seen)"

// doctor verbs names each program with an open device: with its library, and by which means its functions were found; or why not; or that it may
// write the device's queues itself.
func TestVMVerbsDoctor(t *testing.T) {
	path, data := buildQuiet(t), buildDatapath(t)
	open, posted := startQuiet(t, path, "open"), startQuiet(t, path, "post")
	silent, mapped := startQuiet(t, path, "silent"), startQuiet(t, path, "silent", writerLibrary(t, "libuct_ib_mlx5.so.0"))
	abi, pointer := startQuiet(t, path, "abi"), startQuiet(t, path, "pointer")
	busy, built := startDatapath(t, data, "count=10000", "pause=20000"), startDatapath(t, data, "api=wr", "count=10000", "pause=20000")
	posted.next(t)
	fmt.Fprintln(busy.in)
	fmt.Fprintln(built.in)
	began := time.Now()
	text, err := exec.Command("trace", "doctor", "verbs").CombinedOutput()
	if took := time.Since(began); err != nil || took < 10*time.Second || took > 5*time.Minute {
		t.Fatalf("%v after %v: %s", err, took, text)
	}
	out, err := exec.Command("trace", "doctor", "verbs", "-f", "json").Output()
	var d run.VerbsDiagnosis
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(out)).Decode(&d)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	library, buildID := providerIn(t, open.pid)
	const nothing = "it called none of poll_cq, post_recv, post_send in 10 s: it is only the target of RDMA, or waits, or writes the device's queues itself"
	context := "poll_cq post_recv post_send post_srq_recv"
	for pid, want := range map[int]struct {
		qps             int
		refused, unseen string
		wr              bool
	}{
		open.pid:              {},
		posted.pid:            {qps: 2, unseen: nothing},
		silent.pid:            {qps: 2, unseen: nothing},
		mapped.pid:            {qps: 2, unseen: "it maps " + ucxWrites},
		abi.pid:               {refused: "abi_compat of its struct ibv_context is 0x"},
		pointer.pid:           {qps: 2, refused: "post_recv of its struct ibv_context is 0x"},
		busy.cmd.Process.Pid:  {qps: 2},
		built.cmd.Process.Pid: {qps: 2, wr: true},
	} {
		found := false
		for _, p := range d.Processes {
			if p.PID != pid {
				continue
			}
			found = true
			name := fmt.Sprintf("process %d (%s)", pid, p.Comm)
			if p.QPs != want.qps || p.CanSend != want.qps || len(p.Devices) != 1 {
				t.Errorf("%s: %+v, want %d QPs", name, p, want.qps)
				continue
			}
			o := p.Devices[0]
			if !strings.HasPrefix(o.Refused, want.refused) || (o.Refused == "") != (want.refused == "") || o.Device != "rxe0" {
				t.Errorf("%s: %+v, want %q", name, o, want.refused)
			}
			if o.Refused == "" && (o.Library != library || o.BuildID != buildID || o.Provider != "rxe" || strings.Join(o.Context, " ") != context || (o.QPs != nil) != want.wr) {
				t.Errorf("%s: %+v, want %s with build id %s", name, o, library, buildID)
			}
			if unseen := strings.Join(p.Unseen, "\n"); !strings.HasPrefix(unseen, want.unseen) || (unseen == "") != (want.unseen == "") {
				t.Errorf("%s: %q, want %q", name, unseen, want.unseen)
			}
		}
		if !found {
			t.Errorf("process %d is missing", pid)
		}
	}
	if len(d.Processes) != 8 || d.Notes != nil || d.TrapsUnknown != "" || len(d.Traps) != 3 {
		t.Errorf("%d processes, notes %q, traps %v %s", len(d.Processes), d.Notes, d.Traps, d.TrapsUnknown)
	}
	for _, trap := range d.Traps {
		if trap.Cost < 100*time.Nanosecond || trap.Cost > time.Millisecond {
			t.Errorf("a trap (%s) costs %v", trap.Name, trap.Cost)
		}
	}
	for _, line := range []string{
		fmt.Sprintf(`(?m)^%d quiet\n  rxe0 \(descriptor \d+\): %s, build id %s\n    by the context in memory: %s\n  2 QPs, 2 in RTS\n  not seen: it called none of `, silent.pid, library, buildID, context),
		fmt.Sprintf(`(?m)^%d quiet\n  rxe0 \(descriptor \d+\): not followed: abi_compat of`, abi.pid),
		fmt.Sprintf(`(?m)^%d datapath\n.*\n.*\n    by QPs in memory: wr_.*\n  2 QPs, 2 in RTS$`, built.cmd.Process.Pid),
		`(?m)^entry and return +\d+ ns$`,
	} {
		if !regexp.MustCompile(line).Match(text) {
			t.Errorf("want %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
	if left := sh(t, "bpftool -p perf show | grep -c '\"uprobe' || true"); strings.TrimSpace(left) != "0" {
		t.Errorf("%s uprobes are left", left)
	}
	busy.cmd.Process.Kill()
	built.cmd.Process.Kill()
}

// Who cannot be seen is reported, once, and nobody else is.
func TestVMVerbsUnseen(t *testing.T) {
	path := buildQuiet(t)
	library := writerLibrary(t, "libuct_ib_mlx5.so.0")
	early, idle := startQuiet(t, path, "silent", library), startQuiet(t, path, "open", library)
	trace := start(t, `verbs:post_send, verbs:post_recv { @[pid] = count() }`)
	silent, posts, open := startQuiet(t, path, "silent"), startQuiet(t, path, "post"), startQuiet(t, path, "open")
	posts.next(t) // before its 10 s are over
	mapped := startQuiet(t, path, "silent", library)
	abi, pointer, foreign := startQuiet(t, path, "abi"), startQuiet(t, path, "pointer"), startQuiet(t, path, "foreign")
	want := map[string]int{
		fmt.Sprintf("verbs: process %d (quiet) called none of post_recv, post_send in the 10 s since its QP ", silent.pid): 1,
		fmt.Sprintf("verbs: process %d (quiet) maps %s", early.pid, ucxWrites):                                             1,
		fmt.Sprintf("verbs: process %d (quiet) maps %s", mapped.pid, ucxWrites):                                            1,
		fmt.Sprintf("verbs: process %d is not followed: abi_compat of its struct ibv_context is 0x", abi.pid):              1,
		fmt.Sprintf("verbs: process %d is not followed: post_recv of its struct ibv_context is 0x", pointer.pid):           1,
		fmt.Sprintf("verbs: process %d: ibv_wr_* of QP ", foreign.pid):                                                     2,
	}
	for text := range want {
		trace.waitToSay(t, text)
	}
	time.Sleep(3 * time.Second)
	events := trace.stop(t)
	said := trace.messages(t)
	for text, n := range want {
		if got := strings.Count(said, text); got != n {
			t.Errorf("%d times %q, want %d", got, text, n)
		}
	}
	// It is reported once for both of its QPs, which may come at once.
	if !regexp.MustCompile(fmt.Sprintf(`process %d .* since its QP (%s) could send: it is only`, silent.pid, strings.Join(silent.qps, "|"))).MatchString(said) {
		t.Errorf("want one of its QPs, %v", silent.qps)
	}
	if strings.Contains(said, fmt.Sprintf("process %d (quiet) called none", mapped.pid)) {
		t.Errorf("process %d is named twice", mapped.pid)
	}
	for _, q := range []*quiet{idle, posts, open} {
		if regexp.MustCompile(fmt.Sprintf(`process %d (is not|\(quiet\) (maps|called none))`, q.pid)).MatchString(said) {
			t.Errorf("process %d is named", q.pid)
		}
	}
	if refused := "verbs: refused: 2 QPs at other addresses, 1 contexts of an old ABI, 1 functions outside of code"; !strings.Contains(said, refused) {
		t.Errorf("want %q", refused)
	}
	if !strings.Contains(fmt.Sprint(events), fmt.Sprint(posts.pid)) {
		t.Errorf("its posts are not seen: %v", events)
	}
	if t.Failed() {
		t.Log(said)
	}
}
