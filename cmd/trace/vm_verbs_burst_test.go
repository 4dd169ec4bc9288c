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

// burstProgram prints what it sees of the posts and the completions of a program, and estimates how many there are.
const burstProgram = `
	begin { printf("from %d\n", nsecs) }
	verbs:post_send { @posts = count(); @bytes = sum((uint64)bytes); @each = avg(bytes); printf("post %d %d\n", nsecs, wr_id & 0xffffffff) }
	verbs:poll_cq { @polls = count() }
	verbs:complete { printf("pair %d %d %d\n", nsecs, wr_id & 0xffffffff, latency) }
	end { printf("to %d\n", nsecs) }`

// burst is what trace prints with --burst about a program, and what the program prints.
type burst struct {
	out          string
	from, to     int64 // the time that the estimates are for
	posts, pairs []burstEvent
	all          []datapathRequest // by number
	requests     []datapathRequest // of the time between
}

type burstEvent struct{ nsecs, number, latency int64 }

// When the program begins to post.
const (
	early = true // before trace, and it posts until afterwards
	late  = false
)

const burstTime = 40 * time.Second

// runBurst traces a program for burstTime.
func runBurst(t *testing.T, begins bool, share string, options ...string) burst {
	t.Helper()
	return runBurstFor(t, burstTime, begins, share, options...)
}

func runBurstFor(t *testing.T, duration time.Duration, begins bool, share string, options ...string) (b burst) {
	t.Helper()
	d := startDatapath(t, buildDatapath(t), append(options, "op=write", "lines=1")...)
	if begins == early {
		fmt.Fprintln(d.in)
	}
	trace := startTool(t, "ttached", "trace", "-v", "--timeout", duration.String(), "--burst", share, burstProgram)
	_, requests := d.finishLines(t)
	if err := trace.cmd.Wait(); err != nil {
		t.Fatalf("trace: %v\n%s", err, trace.out.String())
	}
	b.out = trace.out.String()
	for line := range strings.Lines(b.out) {
		var e burstEvent
		fmt.Sscanf(line, "from %d", &b.from)
		fmt.Sscanf(line, "to %d", &b.to)
		if n, _ := fmt.Sscanf(line, "post %d %d", &e.nsecs, &e.number); n == 2 {
			b.posts = append(b.posts, e)
		}
		if n, _ := fmt.Sscanf(line, "pair %d %d %d", &e.nsecs, &e.number, &e.latency); n == 3 {
			b.pairs = append(b.pairs, e)
		}
	}
	slices.SortFunc(b.posts, func(x, y burstEvent) int { return int(x.nsecs - y.nsecs) })
	// The first window opens when all is attached, and the last one closes before anything is detached. Both take seconds with an emulated CPU.
	if begins == early && len(b.posts) > 0 {
		b.from = b.posts[0].nsecs
		b.to = b.from + duration.Nanoseconds()
	}
	b.all = requests
	b.requests = slices.DeleteFunc(slices.Clone(requests), func(r datapathRequest) bool { return r.A < b.from || r.A > b.to })
	return b
}

// estimate reads a number of a map that is an estimate.
func (b burst) estimate(t *testing.T, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: ~(\d+)$`).FindStringSubmatch(b.out)
	if found == nil {
		t.Fatalf("%s has no estimate in\n%s", name, b.rest())
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// rest is the output without the events.
func (b burst) rest() string {
	return regexp.MustCompile(`(?m)^(post|pair) .*\n`).ReplaceAllString(b.out, "")
}

// leftOut returns how many completions the report has that may have begun before a window.
func (b burst) leftOut() int {
	n := 0
	fmt.Sscanf(regexp.MustCompile(`verbs:complete: \d+ events? left out, which may have begun before a window`).FindString(b.out), "verbs:complete: %d", &n)
	return n
}

// Numbers of --burst are estimates of what the program counts in the same time. The report's share is that in which the program's requests are
// seen: each of them in a window, none outside. Latencies are of requests that are posted and completed in one window. Outside, the program
// does not run into traps.
//
// The program does not poll all the time: with an emulated CPU it would not keep its rate while each poll is a trap.
func TestVMBurst(t *testing.T) {
	for _, run := range []struct {
		options string
		batch   int
		period  time.Duration
	}{
		{"rate=50 count=6000 idle=2000", 1, 5 * time.Second},
		// ibv_wr_* has twenty functions: to attach to all of them takes 2 s with an emulated CPU on 7.2.
		{"api=wr batch=4 signal=2 rate=100 count=12000 idle=2000", 4, 10 * time.Second},
	} {
		t.Run(run.options, func(t *testing.T) {
			b := runBurstFor(t, 8*run.period, early, "1s/"+run.period.String(), strings.Fields(run.options)...)
			t.Logf("%d posts and %d pairs seen, %d completed requests in %v\n%s", len(b.posts), len(b.pairs), len(b.requests), time.Duration(b.to-b.from), b.rest())
			n := float64(len(b.requests))
			if run.batch > 1 {
				n *= 2 // every second is signaled
			}
			near(t, "posts", b.estimate(t, "@posts"), n, 0.1)
			near(t, "bytes", b.estimate(t, "@bytes"), 64*n, 0.1)
			near(t, "polls", b.estimate(t, "@polls"), float64(len(b.requests)), 0.1)
			if !strings.Contains(b.out, "@each: 64B\n") {
				t.Errorf("the average is no estimate")
			}
			checkWindows(t, b)
			checkPairs(t, b)
		})
	}
}

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if got < (1-part)*want || got > (1+part)*want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// checkWindows finds the windows in which the program's requests are seen, by the program's own times, and compares the share.
func checkWindows(t *testing.T, b burst) {
	t.Helper()
	seen := make(map[int64]bool)
	for _, e := range b.posts {
		seen[e.number] = true
	}
	var open, trapped, windows int64
	for i := 1; i < len(b.requests); i++ {
		before, r := b.requests[i-1], b.requests[i]
		step := r.A - before.A
		if seen[before.Number] {
			open += step
		}
		if before.Trap {
			trapped += step
		}
		if seen[r.Number] && !r.Trap {
			t.Errorf("request %d is seen without a breakpoint", r.Number)
		}
		if seen[r.Number] && !seen[before.Number] {
			windows++
		}
	}
	share := float64(open) / float64(b.to-b.from)
	t.Logf("in %d windows, requests are seen in %.2f %% of the time, breakpoints in %.2f %%", windows, 100*share, 100*float64(trapped)/float64(b.to-b.from))
	found := regexp.MustCompile(`--burst: attached ([0-9.]+) % of the time`).FindStringSubmatch(b.out)
	if found == nil {
		t.Fatal("the report lacks the share")
	}
	reported, _ := strconv.ParseFloat(found[1], 64)
	near(t, "the share", reported, 100*share, 0.05)
	if windows < 7 || windows > 9 {
		t.Errorf("requests are seen in %d windows", windows)
	}
	// With an emulated CPU they come and go for seconds.
	if trapped > (b.to-b.from)*4/5 {
		t.Errorf("breakpoints are there for %v of %v", time.Duration(trapped), time.Duration(b.to-b.from))
	}
}

// checkPairs compares latencies with the program's own.
func checkPairs(t *testing.T, b burst) {
	t.Helper()
	requests := make(map[int64]datapathRequest)
	for _, r := range b.all {
		requests[r.Number] = r
	}
	posts := make(map[int64]bool)
	for _, e := range b.posts {
		posts[e.number] = true
	}
	for _, e := range b.pairs {
		r, ok := requests[e.number]
		if !ok || !posts[e.number] || e.latency < r.C-r.B || e.latency > r.D-r.A {
			t.Errorf("the latency of request %d is %d, not from %d to %d", e.number, e.latency, r.C-r.B, r.D-r.A)
		}
	}
	if n := len(b.pairs) + b.leftOut(); float64(len(b.pairs)) < 0.8*float64(n) || n == 0 {
		t.Errorf("%d of %d completions have latencies", len(b.pairs), n)
	}
}

// A request that is posted in one window and completed in a later one is not seen whole: what was between is not known.
func TestVMBurstApart(t *testing.T) {
	b := runBurst(t, late, "1s/3s", "rate=40", "count=480", "late=1", "entries=1", "rest=20000")
	t.Logf("%d posts and %d pairs seen, %d left out\n%s", len(b.posts), len(b.pairs), b.leftOut(), b.rest())
	if len(b.posts) < 20 || len(b.pairs) > 0 || b.leftOut() < 20 {
		t.Errorf("of requests that complete when all are posted, %d are seen to be posted, %d to complete; %d are left out", len(b.posts), len(b.pairs), b.leftOut())
	}
}

// Requests that a program builds across the beginning or the end of a window are not seen: all of a chain or none. A window that ends while
// the events of a chain are sent cuts it after its first ones.
func TestVMBurstBuilt(t *testing.T) {
	b := runBurst(t, late, "1s/3s", "api=wr", "batch=4", "build=10000", "rate=80", "count=1600")
	chains := make(map[int64]int)
	last := make(map[int64]bool) // chains with a window's last event
	for i, e := range b.posts {
		if e.number%4 == int64(chains[e.number/4]) {
			chains[e.number/4]++
		}
		last[e.number/4] = i == len(b.posts)-1 || b.posts[i+1].nsecs-e.nsecs > int64(time.Second)
	}
	t.Logf("%d chains are seen\n%s", len(chains), b.rest())
	if len(chains) < 5 {
		t.Errorf("%d chains are seen", len(chains))
	}
	cut := 0
	for chain, n := range chains {
		if n != 4 && last[chain] && cut == 0 {
			cut++ // more than once would not be by accident: the program builds most of the time
		} else if n != 4 {
			t.Errorf("%d of the 4 requests of chain %d are seen", n, chain)
		}
	}
}

// Where all requests have the same wr_id, nothing shows which of them is completed: no latency is invented.
func TestVMBurstSame(t *testing.T) {
	b := runBurst(t, early, "1s/5s", "ids=same", "rate=50", "count=6000", "idle=2000")
	if len(b.pairs) > 0 || b.leftOut() < 50 {
		t.Errorf("there are %d latencies, and %d completions are left out", len(b.pairs), b.leftOut())
	}
	near(t, "posts", b.estimate(t, "@posts"), float64(len(b.requests)), 0.1)
}
