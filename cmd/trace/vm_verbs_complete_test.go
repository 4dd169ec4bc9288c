//go:build vm

package main

import (
	"fmt"
	"strings"
	"testing"
)

// completeRuns are the options of datapath, and the opcode that it posts.
var completeRuns = []struct{ options, opcode string }{
	{"count=200 lines=1", "SEND"},
	{"op=write batch=7 signal=7 count=210 sges=3 lines=1", "RDMA_WRITE"},
	{"op=write ids=same signal=5 count=300 entries=1 lines=1", "RDMA_WRITE"},
	{"type=ud op=send_imm lines=1", "SEND_WITH_IMM"},
	{"threads=8 count=100 onecq=1 lines=1", "SEND"},
	{"threads=4 ids=same count=400", "SEND"},
	{"qps=4 threads=3 batch=4 entries=1 signal=4 count=120 lines=1", "SEND"},
	{"api=wr op=write_imm batch=7 signal=7 count=210 lines=1", "RDMA_WRITE_WITH_IMM"},
	{"api=wr qps=2 threads=4 batch=2 count=100 lines=1", "SEND"},
	{"pollers=3 threads=3 op=write count=300 lines=1", "RDMA_WRITE"},
	{"op=write fail=rkey count=20 signal=5 lines=1", "RDMA_WRITE"},
	{"cq=ex srq=1 qps=2 onecq=1 lines=1", "SEND"},
	{"cq=ex fail=rnr count=20 signal=20 ids=same lines=1", "SEND"},
	{"cq=bare api=wr op=write qps=2 threads=4 batch=2 count=100 lines=1", "RDMA_WRITE"},
	{"op=write_imm signal=20 count=400 lines=1", "RDMA_WRITE_WITH_IMM"},
	{"op=read ids=same lines=1", "RDMA_READ"},
	{"srq=1 qps=2 onecq=1 lines=1", "SEND"},
	{"op=write fail=rkey count=20 lines=1", "RDMA_WRITE"},
	{"fail=rnr count=20 signal=20 ids=same lines=1", "SEND"},
}

// Each completion of a send queue is joined with the post of its request, whatever asks for a completion, and however many threads post and
// poll: the latency is between what the program measured inside and around the calls, and what is retired are all requests.
func TestVMVerbsComplete(t *testing.T) {
	path := buildDatapath(t)
	var programs []*datapath
	for _, run := range completeRuns {
		programs = append(programs, startDatapath(t, path, strings.Fields(run.options)...))
	}
	trace := start(t, "verbs:complete")
	totals, requests := make([]datapathTotals, len(programs)), make([][]datapathRequest, len(programs))
	for i, d := range programs {
		totals[i], requests[i] = d.finishLines(t)
	}
	events := make(map[int64][]jsonEvent) // by process
	for _, e := range trace.stop(t) {
		pid := e.num(t, "pid")
		events[pid] = append(events[pid], e)
	}
	for i, run := range completeRuns {
		t.Run(run.options, func(t *testing.T) {
			pid := int64(programs[i].cmd.Process.Pid)
			own := events[pid]
			delete(events, pid)
			checkCompleted(t, totals[i], run.opcode, own)
			if strings.Contains(run.options, "lines=1") {
				checkLatencies(t, requests[i], own, strings.Contains(run.options, "ids=same"))
			}
		})
	}
	for pid, other := range events {
		t.Errorf("%d events of another process, %d", len(other), pid)
	}
}

// checkCompleted compares the numbers of each QP.
func checkCompleted(t *testing.T, totals datapathTotals, opcode string, events []jsonEvent) {
	t.Helper()
	got, want := make(map[string]int64), make(map[string]int64)
	for _, e := range events {
		qp := e.num(t, "qp.num")
		got[fmt.Sprintf("%d %s %s", qp, e.text("opcode"), e.text("status"))]++
		got[fmt.Sprintf("%d retired", qp)] += e.num(t, "retired")
		got[fmt.Sprintf("%d bytes", qp)] += e.num(t, "bytes")
		got[fmt.Sprintf("%d depth", qp)] = e.num(t, "depth") // of the last
	}
	for _, qp := range totals.QPs {
		for by, n := range qp.Sends.By {
			_, status, _ := strings.Cut(by, " ")
			want[fmt.Sprintf("%d %s %s", qp.Sender, opcode, status)] += int64(n)
		}
		want[fmt.Sprintf("%d retired", qp.Sender)] = int64(qp.Sends.Retired)
		want[fmt.Sprintf("%d bytes", qp.Sender)] = int64(qp.Sends.Bytes)
		want[fmt.Sprintf("%d depth", qp.Sender)] = int64(qp.Sends.Posts - qp.Sends.Retired)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("trace sees\n%v\nthe program\n%v", got, want)
	}
}

// checkLatencies compares each event with the program's line of the same request. Each line must have one. With the same wr_id on all, both are
// in the queue's order.
func checkLatencies(t *testing.T, requests []datapathRequest, events []jsonEvent, same bool) {
	t.Helper()
	waits := 0
	pending := make(map[int64][]datapathRequest) // by QP
	for _, r := range requests {
		if r.Kind == "send" {
			pending[r.QP] = append(pending[r.QP], r)
		}
	}
	for _, e := range events {
		qp := e.num(t, "qp.num")
		at := -1
		for i, r := range pending[qp] {
			if same || r.Number == e.num(t, "wr_id")&0xffffffff {
				at = i
				break
			}
		}
		if at < 0 {
			t.Fatalf("no request is completed by %v", e)
		}
		r := pending[qp][at]
		pending[qp] = append(pending[qp][:at:at], pending[qp][at+1:]...)
		if latency := e.num(t, "latency"); latency < r.C-r.B || latency > r.D-r.A {
			t.Errorf("the latency of %v is not from %d to %d", e, r.C-r.B, r.D-r.A)
		}
		if e.at("runq") != nil {
			waits++
			checkRunq(t, e, r)
		}
		if r.Status != e.text("status") {
			t.Errorf("%v ends with %s", e, r.Status)
		}
	}
	if len(events) > 50 && waits < len(events)/2 { // the first poll of a thread has none before it
		t.Errorf("only %d of %d events have runq", waits, len(events))
	}
	for qp, left := range pending {
		if len(left) > 0 {
			t.Errorf("%d requests of QP %d have no event, the first is %+v", len(left), qp, left[0])
		}
	}
}

// checkRunq compares what the polling thread waited for a CPU since its poll before with the program's readings of schedstat: at the end of that
// poll, and before and after this one. Where the same thread posts later than that, runq begins with the post; the program's threads do one
// or the other.
func checkRunq(t *testing.T, e jsonEvent, r datapathRequest) {
	t.Helper()
	if runq := e.num(t, "runq"); runq < r.RunqC-r.RunqLast || runq > r.RunqD-r.RunqBefore {
		t.Errorf("runq of %v is not from %d to %d", e, r.RunqC-r.RunqLast, r.RunqD-r.RunqBefore)
	}
}
