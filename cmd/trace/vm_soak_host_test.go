//go:build vm

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// ofTheHost is all probes of the host.
const ofTheHost = "sched:*, block:*, vm:*, cache:*, memory:*, oom:*, rdma:counters, net:counters"

// TestVMSoakHost counts all probes of the host at once while fio and connections keep the machine busy. What is not counted is reported, and
// memory does not grow.
func TestVMSoakHost(t *testing.T) {
	counter := start(t, ofTheHost+` { @events[probe] = count() } interval:2s { print(@events) }`)
	before := requestsOfDisks(t)
	var memory []usage
	ios := busy(t, *soak, func() { memory = append(memory, usageOf(t, counter.cmd.Process.Pid)) })
	want := requestsOfDisks(t) - before
	events := counter.counts(t).events
	lost := lostOf(t, counter.messages(t))
	if missing := want - events["block:complete"]; missing < 0 || missing > lost["block:complete"] || want < ios || ios == 0 {
		t.Errorf("%d requests, and %d are reported as lost; the kernel counts %d, fio %d", events["block:complete"], lost["block:complete"], want, ios)
	}
	for _, probe := range strings.Fields("sched:switch sched:runq sched:offcpu block:issue vm:map vm:fault vm:exit cache:read cache:add rdma:counters") {
		if events[probe] == 0 {
			t.Errorf("there was no %s", probe)
		}
	}
	checkUsage(t, "counter", memory)
	t.Logf("fio: %d commands in %v; events %v, lost %v\n%s", ios, *soak, events, lost, counter.messages(t))
}

// requestsOfDisks is how many requests the kernel has counted of all disks.
func requestsOfDisks(t *testing.T) (n int) {
	t.Helper()
	disks, err := filepath.Glob("/sys/block/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range disks {
		for what, count := range statOf(t, statFile(filepath.Base(disk))) {
			if strings.HasPrefix(what, "ios ") {
				n += int(count)
			}
		}
	}
	return n
}
