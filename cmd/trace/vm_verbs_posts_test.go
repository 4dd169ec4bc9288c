//go:build vm

package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// startDatapathAfter starts trace and then datapath, and returns when the library is found.
func startDatapathAfter(t *testing.T, path, options, program string) (*datapath, *recorder) {
	t.Helper()
	trace := start(t, program)
	d := startDatapath(t, path, strings.Fields(options)...)
	found := "is followed from now on"
	if strings.HasPrefix(options, "api=wr") {
		found = "verbs: ibv_wr_* of "
	}
	waitUntil(t, "the library is found", func() bool { return strings.Contains(trace.messages(t), found) })
	return d, trace
}

// Each poll is counted, with what it returns. The polls before a completion that returned nothing are in its event.
func TestVMVerbsPolls(t *testing.T) {
	path := buildDatapath(t)
	emptyBefore := uint64(0)
	for _, options := range []string{"count=200", "pollers=3 threads=3 op=write count=300", "srq=1 qps=2 onecq=1 pause=1000", "qps=4 threads=3 batch=4 entries=1 count=120", "cq=ex count=200 qps=2 pause=1000"} {
		t.Run(options, func(t *testing.T) {
			d := startDatapath(t, path, strings.Fields(options)...)
			trace := startTool(t, "ttached", "trace", `
				verbs:poll { @polls[dev, empty] = count(); @room = sum((uint64)room); @entries = sum((uint64)entries) }
				verbs:poll_cq { @completions = count(); @before = sum(empty) }`)
			totals := d.finish(t)
			completed := uint64(0)
			for _, qp := range totals.QPs {
				completed += qp.Sends.Completed + qp.Receives.Completed
			}
			entries := uint64(16)
			if strings.Contains(options, "entries=1") || strings.Contains(options, "cq=ex") {
				entries = 1
			}
			want := map[string]uint64{
				"@polls[rxe0, true]": totals.Empty, "@polls[rxe0, false]": totals.Polls - totals.Empty, "@room": totals.Polls * entries,
				"@entries": completed, "@completions": completed, "@before": totals.EmptyBefore,
			}
			if got := countsOf(trace.stop(t)); !maps.Equal(got, want) {
				t.Errorf("trace counts\n%v\nthe program\n%v\n%s", got, want, trace.out.String())
			}
			emptyBefore += totals.EmptyBefore
		})
	}
	if emptyBefore == 0 {
		t.Error("no poll before a completion was empty")
	}
}

// Without the arguments of the poll only its return is seen. A filter counts what it rejects.
func TestVMVerbsPollsFilter(t *testing.T) {
	d := startDatapath(t, buildDatapath(t), "count=200")
	trace := startTool(t, "ttached", "trace", "-v", "verbs:poll / empty / { @[comm] = count() }")
	totals := d.finish(t)
	lines := trace.stop(t)
	if got, want := countsOf(lines), map[string]uint64{"@[datapath]": totals.Empty}; !maps.Equal(got, want) {
		t.Errorf("trace counts %v, want %v", got, want)
	}
	report := fmt.Sprintf("verbs:poll: %d seen, 0 printed, %d rejected, 0 lost", totals.Polls, totals.Polls-totals.Empty)
	if text := trace.out.String(); !strings.Contains(text, report) {
		t.Errorf("the report lacks %q:\n%s", report, text)
	}
}

// refusedRuns are options of datapath with which the provider refuses requests: behind one that is wrong, and when the queue is full.
var refusedRuns = []string{
	"op=write bad=3 batch=5 count=50",
	"op=write bad=2 batch=3 count=51 threads=8 last=1",
	"api=wr op=write bad=3 batch=5 count=50",
	"op=write room=4 batch=20 count=400 last=1",
	"op=write room=4 batch=20 count=200 threads=8 last=1",
	"api=wr op=write room=4 batch=20 count=400",
}

// The result of a post is the program's, for each request of a chain. What is refused does not count as posted, so after all that has been
// completed the next one is alone.
func TestVMVerbsRefused(t *testing.T) {
	path := buildDatapath(t)
	for _, options := range refusedRuns {
		t.Run(options, func(t *testing.T) {
			d := startDatapath(t, path, strings.Fields(options)...)
			trace := start(t, "verbs:post_send, verbs:post_recv")
			totals := d.finish(t)
			events := trace.stop(t)
			got, want := make(map[string]uint64), make(map[string]uint64)
			for _, e := range events {
				got[fmt.Sprintf("%s of %d: %d", e.text("probe"), e.num(t, "qp.num"), e.num(t, "ret"))]++
			}
			refused := uint64(0)
			for _, qp := range totals.QPs {
				for name, q := range map[string]queueTotals{fmt.Sprintf("verbs:post_send of %d: ", qp.Sender): qp.Sends, fmt.Sprintf("verbs:post_recv of %d: ", qp.Receiver): qp.Receives} {
					if q.Posts > 0 {
						want[name+"0"] = q.Posts
					}
					for errno, n := range q.Errors {
						want[name+"-"+errno] += n
						refused += n
					}
				}
			}
			if !maps.Equal(got, want) || refused == 0 {
				t.Errorf("trace counts\n%v\nthe program\n%v", got, want)
			}
			checkRefusals(t, events)
			if strings.Contains(options, "last=1") {
				checkLast(t, events)
			}
		})
	}
}

// checkRefusals: of the requests of a call, which follow each other in a thread and have one time, no refused one comes before an accepted one.
func checkRefusals(t *testing.T, events []jsonEvent) {
	t.Helper()
	last := make(map[int64]jsonEvent) // by thread
	for _, e := range events {
		before := last[e.num(t, "tid")]
		if before != nil && before.text("time") == e.text("time") && before.num(t, "ret") != 0 && e.num(t, "ret") == 0 {
			t.Errorf("refused, and then not:\n%v\n%v", before, e)
		}
		last[e.num(t, "tid")] = e
	}
}

// checkLast compares the depth that a QP without other requests has.
func checkLast(t *testing.T, events []jsonEvent) {
	t.Helper()
	last := events[len(events)-1]
	if last.text("probe") != "verbs:post_send" || last.at("depth") == nil || last.num(t, "depth") != 1 {
		t.Errorf("the last request is alone, but has the depth %v:\n%v", last.at("depth"), last)
	}
}

// The depth of a QP that begins while trace runs is exact: requests that wait, refused ones left out, until the queue is full.
func TestVMVerbsDepth(t *testing.T) {
	path := buildDatapath(t)
	for _, options := range []string{
		"op=write count=100 batch=5 late=1 last=1", "api=wr op=write count=100 batch=5 late=1 last=1", "op=write room=4 count=100 batch=20 late=1 last=1",
	} {
		t.Run(options, func(t *testing.T) {
			d, trace := startDatapathAfter(t, path, options, "verbs:post_send")
			totals := d.finish(t)
			events := trace.stop(t)
			want := int64(0)
			for _, e := range events[:len(events)-1] {
				if e.num(t, "ret") == 0 {
					want++
				}
				if e.at("depth") == nil || e.num(t, "depth") != want {
					t.Fatalf("the depth is %v, not %d:\n%v", e.at("depth"), want, e)
				}
			}
			if n := totals.QPs[0].Sends.Posts; uint64(want)+1 != n || strings.Contains(options, "room") == (n == 101) {
				t.Errorf("%d requests are posted, the program's number is %d", want+1, n)
			}
			checkLast(t, events)
		})
	}
}

// Of a QP with requests from before, the depth is unknown until one that was seen is completed. While several threads post and one polls,
// each depth is between what the program's times allow. What is completed is counted once, also for verbs:complete.
func TestVMVerbsDepthThreads(t *testing.T) {
	path := buildDatapath(t)
	for _, options := range []string{
		"op=write count=300 pause=2000 lines=1 last=1", "op=write threads=8 count=100 pause=5000 lines=1 last=1", "api=wr op=write qps=2 threads=4 batch=2 count=100 pause=5000 lines=1 last=1",
	} {
		t.Run(options, func(t *testing.T) {
			d := startDatapath(t, path, strings.Fields(options)...)
			trace := start(t, "verbs:post_send, verbs:complete")
			totals, requests := d.finishLines(t)
			var posts, completions []jsonEvent
			for _, e := range trace.stop(t) {
				if e.text("probe") == "verbs:complete" {
					completions = append(completions, e)
				} else {
					posts = append(posts, e)
				}
			}
			checkCompleted(t, totals, "RDMA_WRITE", completions)
			checkDepths(t, options, requests, posts)
			checkLast(t, posts)
		})
	}
}

// checkDepths compares each depth with the numbers of requests that are posted and not completed by the program's times. The order of two
// posts at once is not known, so what other threads post makes a difference of their chains.
func checkDepths(t *testing.T, options string, requests []datapathRequest, posts []jsonEvent) {
	t.Helper()
	slack := int64(0)
	if strings.Contains(options, "threads") {
		slack = 8 * 2
	}
	number := func(e jsonEvent) int64 { return e.num(t, "wr_id") & 0xffffffff }
	known := 0
	for _, e := range posts[:len(posts)-1] {
		if e.at("depth") == nil {
			continue
		}
		known++
		var own datapathRequest
		for _, r := range requests {
			if r.Kind == "send" && r.QP == e.num(t, "qp.num") && r.Number == number(e) {
				own = r
			}
		}
		least, most := int64(0), int64(0)
		for _, r := range requests {
			if r.Kind != "send" || r.QP != own.QP || r.A == 0 {
				continue
			}
			if r.A < own.B && r.D > own.A {
				most++
			}
			if r.B < own.A && r.C > own.B {
				least++
			}
		}
		if depth := e.num(t, "depth"); depth < max(1, least-slack) || depth > most+slack {
			t.Errorf("the depth is %d, by the program's times from %d to %d:\n%v", depth, least, most, e)
		}
	}
	if known < len(posts)/2 {
		t.Errorf("only %d of %d posts have a depth", known, len(posts))
	}
}
