//go:build vm

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const burstTotals = `
	verbs:post_send { @posts[pid] = count(); @bytes = sum((uint64)bytes); @each = avg(bytes) }
	verbs:poll_cq / opcode == SEND / { @polls = count() }
	verbs:complete { @latencies = hist(latency); printf("seen %d %d %d\n", nsecs, wr_id & 0xffffffff, latency) }`

// estimateOf reads a number of a map that is an estimate.
func estimateOf(t *testing.T, out, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: ~(\d+)(B|KiB)?$`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("%s has no estimate in\n%s", name, out)
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	if found[2] == "KiB" {
		n *= 1024
	}
	return n
}

// burst is what trace printed with --burst 100ms/1s about a program.
type burst struct {
	out      string
	seen     []burstEvent
	totals   datapathTotals
	requests []datapathRequest
}

type burstEvent struct{ nsecs, number, latency int64 }

// runBurst traces the program of some options, for about 10 s.
func runBurst(t *testing.T, options ...string) burst {
	t.Helper()
	d := startDatapath(t, buildDatapath(t), options...)
	trace := startTool(t, "ttached", "trace", "-v", "--burst", "100ms/1s", burstTotals)
	var b burst
	b.totals, b.requests = d.finishLines(t)
	trace.end(t)
	b.out = trace.out.String()
	for line := range strings.Lines(b.out) {
		var e burstEvent
		if n, _ := fmt.Sscanf(line, "seen %d %d %d", &e.nsecs, &e.number, &e.latency); n == 3 {
			b.seen = append(b.seen, e)
		}
	}
	return b
}

// With --burst a part of the events is seen, in windows. Numbers are estimates of all, the report's share is what was seen of the program's own
// number, and latencies are of requests that were posted and completed in the same window.
func TestVMVerbsBurst(t *testing.T) {
	for _, options := range []string{"count=2000 pause=5000 lines=1", "api=wr op=write batch=4 signal=4 count=8000 pause=20000 lines=1"} {
		t.Run(options, func(t *testing.T) {
			b := runBurst(t, strings.Fields(options)...)
			sends := b.totals.QPs[0].Sends
			t.Logf("%d of %d\n%s", len(b.seen), len(b.requests), b.out[max(0, len(b.out)-2500):])
			within := func(what string, got, want float64) {
				t.Helper()
				if got < 0.9*want || got > 1.1*want {
					t.Errorf("%s: %v, the program has %v", what, got, want)
				}
			}
			posts := regexp.MustCompile(`@posts\[\d+\]`).FindString(b.out)
			within("posts", estimateOf(t, b.out, posts), float64(sends.Posts))
			within("bytes", estimateOf(t, b.out, "@bytes"), float64(sends.Bytes))
			checkShare(t, b)
			checkWindows(t, b)
		})
	}
}

// checkShare compares the report's share with the part of the program's completions that was seen.
func checkShare(t *testing.T, b burst) {
	t.Helper()
	found := regexp.MustCompile(`--burst: attached ([0-9.]+) % of the time`).FindStringSubmatch(b.out)
	if found == nil {
		t.Fatalf("the report lacks the share")
	}
	share, _ := strconv.ParseFloat(found[1], 64)
	completed := 0
	for _, r := range b.requests {
		if r.Kind == "send" && r.Opcode != "-" {
			completed++
		}
	}
	if measured := 100 * float64(len(b.seen)) / float64(completed); measured < 0.9*share || measured > 1.1*share {
		t.Errorf("the share is %v %%, %d of %d completions are seen: %.1f %%", share, len(b.seen), completed, measured)
	}
}

// checkWindows checks that events are in windows of 100 ms, one in each second, and compares latencies with the program's own.
func checkWindows(t *testing.T, b burst) {
	t.Helper()
	slices.SortFunc(b.seen, func(x, y burstEvent) int { return int(x.nsecs - y.nsecs) })
	requests := make(map[int64]datapathRequest)
	for _, r := range b.requests {
		if r.Kind == "send" {
			requests[r.Number] = r
		}
	}
	windows, first := 0, int64(0)
	for i, e := range b.seen {
		switch {
		case i == 0 || e.nsecs-b.seen[i-1].nsecs > int64(500*time.Millisecond):
			windows, first = windows+1, e.nsecs
		case e.nsecs-first > int64(150*time.Millisecond):
			t.Errorf("a window is open for %v", time.Duration(e.nsecs-first))
		}
		r := requests[e.number]
		if e.latency < r.C-r.B || e.latency > r.D-r.A {
			t.Errorf("the latency of request %d is %d, not from %d to %d", e.number, e.latency, r.C-r.B, r.D-r.A)
		}
	}
	if windows < 8 {
		t.Errorf("events are in %d windows", windows)
	}
}

// Where all requests have the same wr_id, and more than one is on its way, nothing shows which of them is completed: no latency is invented.
func TestVMVerbsBurstSame(t *testing.T) {
	b := runBurst(t, "op=write", "ids=same", "count=4000", "pause=500", "lines=1")
	if len(b.seen) > 0 {
		t.Errorf("there are %d latencies, like %v", len(b.seen), b.seen[0])
	}
	if !regexp.MustCompile(`--burst: verbs:complete: \d+ events? left out, which may have begun before a window`).MatchString(b.out) {
		t.Errorf("the report lacks what was left out:\n%s", b.out)
	}
	if n := estimateOf(t, b.out, regexp.MustCompile(`@posts\[\d+\]`).FindString(b.out)); n < 3000 || n > 5000 {
		t.Errorf("of 4000 posts the estimate is %v", n)
	}
}
