//go:build vm

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestVMSoakVerbs has all probes of the data path count while programs connect, post, poll and end, again and again: what they print is what is
// counted. trace does not grow, loses nothing but openings of programs that end before it looks at them, which it counts, and leaves nothing
// behind.
//
// rping has rows of its own: its sides end without waiting for each other, so that the last requests may be flushed, and their completions not
// be polled.
func TestVMSoakVerbs(t *testing.T) {
	before := attachments(t)
	witness := startDatapath(t, buildDatapath(t), "api=wr", "count=1") // with it the library is known
	code := libraryCode(t, witness.cmd.Process.Pid)
	trace := startTool(t, "ttached", "trace", programTotals(`(comm == "rping")`)+`
		verbs:poll / comm != "rping" / { @entries = sum((uint64)entries) }
		verbs:open { @opens[seeded] = count() }`)
	var memory []usage
	end := eachSecond(func() { memory = append(memory, usageOf(t, trace.cmd.Process.Pid)) })
	want := make(map[string]uint64)
	pairs, rpings := 0, uint64(0)
	for until := time.Now().Add(*soak); time.Now().Before(until); pairs++ {
		s, port := servedPrograms[pairs*5%len(servedPrograms)], 20000+pairs // neighbours are alike
		server := s.serve(t, port)
		client := s.connect(t, port)
		client.result()
		server.result()
		if s.isRping() {
			rpings++
		}
		s.counts(t, server.out.String(), false).addTo(want, s.isRping())
		s.counts(t, client.out.String(), true).addTo(want, s.isRping())
	}
	end()
	for name, n := range want {
		if strings.HasPrefix(name, "@completions[false") {
			want["@entries"] += n
		}
	}
	want["@opens[true]"], want["@opens[false]"] = 1, 2*uint64(pairs)
	got := countsOf(trace.stop(t))
	got["@opens[false]"] += lostOpenings(t, trace.out.String())
	allowFlushes(got, want, rpings)
	compareCounts(t, got, want)
	checkUsage(t, "trace", memory)
	if !bytes.Equal(code, libraryCode(t, witness.cmd.Process.Pid)) {
		t.Error("after trace the code of a process is not what it was")
	}
	if after := attachments(t); after != before {
		t.Errorf("trace leaves %s behind, before there was %s", after, before)
	}
	witness.finish(t)
	t.Logf("%d connections in %v: %v", pairs, *soak, want)
}

// allowFlushes takes the counts of rping for right if at most the last two requests of each run were flushed.
func allowFlushes(got, want map[string]uint64, runs uint64) {
	const flushed = "@completions[true, -, WR_FLUSH_ERR]"
	if max(got[flushed], want[flushed])-min(got[flushed], want[flushed]) <= 2*runs {
		got[flushed] = want[flushed]
	}
	for name, each := range map[string]uint64{
		"@completions[true, SEND, SUCCESS]": 1, "@completed[true]": 1, "@retired[true]": 1, "@retires[true]": 16, // see rping
	} {
		if got[name] <= want[name] && want[name]-got[name] <= 2*runs*each {
			got[name] = want[name]
		}
	}
}

// lostOpenings returns how many openings trace reports as lost, and fails if it lost anything else.
func lostOpenings(t *testing.T, text string) (lost uint64) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "lost") {
			continue
		}
		var n uint64
		if _, err := fmt.Sscanf(line, "trace: lost %d verbs:open events: %d whose beginning was not seen", &n, &lost); err != nil || n != lost {
			t.Errorf("%v: %s", err, line)
		}
	}
	return lost
}
