package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// spent are the differences of a thread's totals around a call, as testdata/spent.c reads them.
type spent struct {
	call                            string
	elapsed, runq, faults, switches int64
}

// buildSpent compiles that program.
func buildSpent(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "spent")
	args := append([]string{"-Wall", "-Werror", "-O2", "-o", program, "testdata/spent.c"}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func spentOf(t *testing.T, text string) []spent {
	t.Helper()
	var all []spent
	for line := range strings.Lines(text) {
		var s spent
		if _, err := fmt.Sscan(line, &s.call, &s.elapsed, &s.runq, &s.faults, &s.switches); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, s)
	}
	return all
}

// spentEvent is an event of a call in JSON, or a note among them.
type spentEvent struct {
	Type, Probe string
	Data        struct {
		Nr                     string
		Latency                int64
		Runq, Faults, Switches *int64
	}
}

// recordSpent records the events of the program's calls, and returns what it prints and what a replay has, call by call.
func recordSpent(t *testing.T, program, calls, clause string, nameOf func(spentEvent) string) ([]spent, []spent) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls.rec")
	var said, notes bytes.Buffer
	cmd := exec.Command("trace", "record", "-o", file, "-c", program+" "+calls, clause)
	cmd.Stdout, cmd.Stderr = &said, &notes
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &notes)
	}
	replayed, err := exec.Command("trace", "-q", "-f", "json", "-r", file, "*:*").Output()
	if err != nil {
		t.Fatal(err)
	}
	var events []spent
	for d := json.NewDecoder(bytes.NewReader(replayed)); d.More(); {
		var e spentEvent
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "event" {
			continue
		}
		if e.Data.Runq == nil || e.Data.Faults == nil || e.Data.Switches == nil {
			t.Fatalf("an event lacks runq, faults or switches: %s", replayed[:min(len(replayed), 2000)])
		}
		events = append(events, spent{nameOf(e), e.Data.Latency, *e.Data.Runq, *e.Data.Faults, *e.Data.Switches})
	}
	return spentOf(t, said.String()), events
}

// compareSpent compares what events have with what the program reads around the same calls: that is never less, and never more than
// by the time between the readings that is not of the call.
func compareSpent(t *testing.T, read, events []spent) {
	t.Helper()
	if len(events) != len(read) {
		t.Fatalf("%d events of %d calls", len(events), len(read))
	}
	var sameFaults, sameSwitches, waited, faulted, switched int64
	for i, r := range read {
		e := events[i]
		// The scheduler's clock is not the one of the latency, and in an emulated machine they are read some time apart.
		if slack := r.elapsed - e.elapsed + r.elapsed/50; e.call != r.call || e.runq > r.runq || r.runq-e.runq > slack {
			t.Errorf("call %d: runq of %+v, the program reads %+v", i, e, r)
		}
		if e.faults > r.faults || e.switches > r.switches {
			t.Errorf("call %d: %+v, the program reads %+v", i, e, r)
		}
		// A thread that is switched away from while it may run waits for a CPU, and outside of the call it may always run. One switch may be
		// between the program's reading of the one and of the other.
		if e.runq == r.runq && e.switches+1 < r.switches {
			t.Errorf("call %d: %+v, the program reads %+v, and waited only in the call", i, e, r)
		}
		if e.faults == r.faults {
			sameFaults++
		}
		if e.switches == r.switches {
			sameSwitches++
		}
		waited, faulted, switched = waited+e.runq, faulted+e.faults, switched+e.switches
	}
	t.Logf("%d calls, %d with the same faults, %d with the same switches: %d ns waited, %d faults, %d switches", len(read), sameFaults, sameSwitches, waited, faulted, switched)
	// The others are of a thread that was switched away from, or had a page fault, between a reading and the call. With an emulated CPU more than
	// half may be: the readings take as long as the call.
	if n := int64(len(read)); sameFaults*10 < n*9 || sameSwitches*5 < n || waited == 0 || faulted == 0 || switched == 0 {
		t.Error("too few are the same, or there is nothing to compare")
	}
}

// What runs before the program is executed has its pid, too.
const spentCalls = "syscall:exit / pid == cpid && comm == \"spent\" && nr in [clock_nanosleep, sched_yield, readv] /"

// What a system call waits for a CPU, its page faults and switches are what schedstat and getrusage say around it.
func TestSpent(t *testing.T) {
	requireLive(t)
	program := buildSpent(t)
	read, events := recordSpent(t, program, "30", spentCalls, func(e spentEvent) string { return e.Data.Nr })
	compareSpent(t, read, events)
	// Both engines agree of the same calls, also where a filter asks.
	out, err := exec.Command("trace", "-q", "--compare", "-c", program+" 10",
		spentCalls+" { @[nr] = stats(runq); @f[nr] = sum(faults) } syscall:exit / pid == cpid && comm == \"spent\" && switches > 0 && runq > 1us && faults == 0 / { @s = sum(switches) }").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "@f[readv]: 640") || !strings.Contains(string(out), "@s: ") {
		t.Errorf("%v:\n%s", err, out)
	}
}
