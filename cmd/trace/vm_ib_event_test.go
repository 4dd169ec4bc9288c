//go:build vm

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// eventNames are the names of enum ibv_event_type, without their prefix, by number, as verbs.h has them.
func eventNames(t *testing.T) []string {
	t.Helper()
	header, err := os.ReadFile("/usr/include/infiniband/verbs.h")
	if err != nil {
		t.Fatal(err)
	}
	_, enum, _ := strings.Cut(string(header), "enum ibv_event_type {")
	enum, _, _ = strings.Cut(enum, "}")
	var names []string
	for _, m := range regexp.MustCompile(`IBV_EVENT_(\w+)`).FindAllStringSubmatch(enum, -1) {
		names = append(names, m[1])
	}
	return names
}

// watched matches a line of ibv_asyncwatch: the number of the event, and the port.
var watched = regexp.MustCompile(`\((\d+)\), port (\d+)`)

// Events of the port are those that ibv_asyncwatch gets, one by one: the link goes down and comes back, once each, and an address comes and
// goes. A filter shows what it must, and what it must reject is counted.
func TestVMIbEventPort(t *testing.T) {
	trace, filtered := start(t, "ib:event"), start(t, "ib:event / event == PORT_ERR /")
	watch := startTool(t, "FD", "stdbuf", "-oL", "ibv_asyncwatch", "-d", "rxe0")
	seen := 0
	for _, change := range []string{"ip link set dummy0 down", "ip link set dummy0 up", "ip addr add 10.9.0.7/24 dev dummy0", "ip addr del 10.9.0.7/24 dev dummy0"} {
		sh(t, "%s", change)
		waitUntil(t, "ibv_asyncwatch prints "+change, func() bool {
			told := len(watched.FindAllString(watch.out.String(), -1))
			defer func() { seen = told }()
			return told > seen
		})
	}
	watch.cmd.Process.Kill()
	watch.cmd.Wait()
	var got, want []string
	for _, e := range trace.stop(t) {
		got = append(got, e.text("event")+" "+e.text("port"))
		if e.text("dev") != "rxe0" || e.at("pid") != nil || e.at("comm") != nil || e.at("qp.num") != nil || e.at("cq.id") != nil || e.at("srq.id") != nil {
			t.Errorf("event of a port: %v", e)
		}
	}
	names := eventNames(t)
	for _, m := range watched.FindAllStringSubmatch(watch.out.String(), -1) {
		number, _ := strconv.Atoi(m[1])
		want = append(want, names[number]+" "+m[2])
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are %q, ibv_asyncwatch has %q", got, want)
	}
	for _, once := range []string{"PORT_ERR 1", "PORT_ACTIVE 1"} {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(e string) bool { return e != once })); n != 1 {
			t.Errorf("%s comes %d times", once, n)
		}
	}
	if !slices.Contains(got, "GID_CHANGE 1") {
		t.Errorf("no change of a GID among %q", got)
	}
	if events := filtered.stop(t); len(events) != 1 || events[0].text("event") != "PORT_ERR" {
		t.Errorf("the filter shows %v", events)
	}
	if report := fmt.Sprintf("ib:event: %d seen, 1 printed, %d rejected, 0 lost", len(got), len(got)-1); !strings.Contains(filtered.messages(t), report) {
		t.Errorf("want %q in:\n%s", report, filtered.messages(t))
	}
}

// buildAsync compiles the program that has asynchronous events.
func buildAsync(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "async")
	sh(t, "gcc -Wall -Werror -o %s testdata/vm/async.c -libverbs", path)
	return path
}

// numberOf is what `rdma res show KIND` has as the number of a process's only object, or <nil> if the kernel keeps no account of these.
func numberOf(t *testing.T, kind, number string, pid int) string {
	t.Helper()
	for line := range strings.Lines(sh(t, "rdma res show %s || true", kind)) {
		if words := pairsOf(line); strings.Contains(line, fmt.Sprintf(" pid %d ", pid)) {
			return words[number]
		}
	}
	return "<nil>"
}

// Events of QPs, CQs and SRQs are those that the program itself gets, one by one, and belong to it.
func TestVMIbEventObjects(t *testing.T) {
	trace := start(t, "ib:event")
	cmd := exec.Command(buildAsync(t))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cq, srq := numberOf(t, "cq", "cqn", cmd.Process.Pid), numberOf(t, "srq", "srqn", cmd.Process.Pid)
	fmt.Fprintln(input)
	said, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}

	names := eventNames(t)
	var got, want []string
	for line := range strings.Lines(string(said)) {
		words := strings.Fields(line) // event NUMBER srq|cq, event NUMBER qp QPN
		number, _ := strconv.Atoi(words[1])
		about := map[string]string{"srq": "<nil> <nil> <nil> <nil> " + srq, "cq": "<nil> <nil> <nil> " + cq + " <nil>", "qp": strings.Join(words[3:], "") + " RC 1 <nil> <nil>"}
		want = append(want, names[number]+" "+about[words[2]])
	}
	for _, e := range trace.stop(t) {
		got = append(got, fmt.Sprint(e.text("event"), " ", e.text("qp.num"), " ", e.text("qp.type"), " ", e.text("port"), " ", e.text("cq.id"), " ", e.text("srq.id")))
		if e.text("dev") != "rxe0" || e.num(t, "pid") != int64(cmd.Process.Pid) || e.num(t, "tid") != int64(cmd.Process.Pid) || e.num(t, "uid") != 0 || e.text("comm") != "async" {
			t.Errorf("event of process %d: %v", cmd.Process.Pid, e)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nthe program has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, kind := range []string{"SRQ_LIMIT_REACHED", "CQ_ERR"} {
		if !strings.Contains(strings.Join(got, "\n"), kind) {
			t.Errorf("no %s", kind)
		}
	}
}
