//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mockRuns are options of testdata/vm/mock.c.
var mockRuns = []string{
	"qps=4 nested=1 recv=1",
	"chain=20 signal=5 qps=3 recv=1",
	"read=flags recv=1",
	"read=wallclock recv=1",
	"read=none qps=3 chain=6 signal=2 recv=1 fail=5",
	"read=none ids=same qps=3 chain=8 lives=1 rounds=40",
}

// Each completion of an extended CQ has what the program reads of it, and nothing else, with many of them in one iteration. It is joined with its
// post, also if the program does not read the QP.
func TestVMVerbsMock(t *testing.T) {
	path := buildMock(t)
	for i, options := range mockRuns {
		running := i%3 != 1 // or trace is
		t.Run(fmt.Sprintf("%s running=%t", options, running), func(t *testing.T) { traceMock(t, path, options, running) })
	}
}

func buildMock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, `cd %s
gcc -Wall -Werror -O2 -shared -fPIC -o libmock-rdmav34.so "$OLDPWD"/testdata/vm/mock.c -libverbs
echo 'int provide(int n, char **a); int main(int n, char **a) { return provide(n, a); }' >main.c
gcc -Wall -Werror -o mock main.c -L. -lmock-rdmav34 -Wl,-rpath,'$ORIGIN'`, dir)
	return filepath.Join(dir, "mock")
}

// traceMock compares all events with the program's own lines.
func traceMock(t *testing.T, path, options string, running bool) {
	t.Helper()
	mock := func() *datapath {
		return startDatapathBy(t, exec.Command(path, append(strings.Fields(options), "wait=1")...))
	}
	var d *datapath
	if running {
		d = mock()
	}
	trace := start(t, "verbs:poll_cq\nverbs:complete")
	if !running {
		d = mock()
		waitUntil(t, "the CQ is found", func() bool { return strings.Contains(trace.messages(t), "verbs: ibv_start_poll of ") })
	}
	var ready struct{ Kilohertz uint64 }
	if err := json.Unmarshal([]byte(d.ready), &ready); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(d.in)
	lines := decodeLines(t, d.out)
	if err := d.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	events := trace.stop(t)
	of := func(probe string) []jsonEvent {
		return slices.DeleteFunc(slices.Clone(events), func(e jsonEvent) bool { return e["probe"] != probe })
	}
	checkGiven(t, lines, of("verbs:poll_cq"), ready.Kilohertz)
	checkMockCompleted(t, options, lines, of("verbs:complete"))
}

// checkGiven compares what was read of each completion. Program and events have the same order.
func checkGiven(t *testing.T, lines, events []jsonEvent, kilohertz uint64) {
	t.Helper()
	if len(lines) == 0 || len(lines) != len(events) {
		t.Fatalf("%d events of %d completions", len(events), len(lines))
	}
	for i, line := range lines {
		want := make(map[string]any)
		for _, field := range []string{"wr_id", "status", "qp.num", "vendor_err", "opcode", "bytes", "imm", "src_qp", "hw_ticks"} {
			want[field] = line[field]
		}
		want["hw_time"] = line["wallclock"]
		if ticks := line["hw_ticks"]; ticks != nil && kilohertz > 0 {
			want["hw_time"] = uint64(line.num(t, "hw_ticks")) * 1000000 / kilohertz
		}
		for field, value := range want {
			if got := events[i].at(field); fmt.Sprint(got) != fmt.Sprint(value) {
				t.Fatalf("completion %d: %s is %v, want %v\nof %v\nof %v", i, field, got, value, line, events[i])
			}
		}
	}
}

// checkMockCompleted compares what the completions of sends retire. Where it cannot be known whose completion it is, sums are right.
func checkMockCompleted(t *testing.T, options string, lines, events []jsonEvent) {
	t.Helper()
	sends := slices.DeleteFunc(slices.Clone(lines), func(l jsonEvent) bool { return l.num(t, "retired") == 0 })
	if len(sends) == 0 || len(sends) != len(events) {
		t.Fatalf("%d events of %d completions of sends", len(events), len(sends))
	}
	if strings.Contains(options, "read=none ids=same") {
		sum := func(of []jsonEvent, field string) (n int64) {
			for _, e := range of {
				n += e.num(t, field)
			}
			return n
		}
		if sum(events, "retired") != sum(sends, "retired") || sum(events, "bytes") != sum(sends, "retired_bytes") {
			t.Errorf("%d requests of %d bytes are retired, want %d of %d", sum(events, "retired"), sum(events, "bytes"), sum(sends, "retired"), sum(sends, "retired_bytes"))
		}
		return
	}
	for i, line := range sends {
		e := events[i]
		for field, value := range map[string]any{"qp.num": line["sent_by"], "wr_id": line["wr_id"], "status": line["status"], "opcode": "RDMA_WRITE",
			"retired": line["retired"], "bytes": line["retired_bytes"], "vendor_err": line["vendor_err"]} {
			if got := e.at(field); fmt.Sprint(got) != fmt.Sprint(value) {
				t.Fatalf("completion %d: %s is %v, want %v\nof %v\nof %v", i, field, got, value, line, e)
			}
		}
		shortest, longest := line.num(t, "c")-line.num(t, "b"), line.num(t, "d")-line.num(t, "a")
		if latency := e.num(t, "latency"); latency < shortest || latency > longest {
			t.Fatalf("the latency of %v is not from %d to %d", e, shortest, longest)
		}
	}
}
