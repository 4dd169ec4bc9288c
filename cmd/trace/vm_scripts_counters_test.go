//go:build vm

package main

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The lines and the totals of counters are what rdma statistic has counted meanwhile; traffic alone gives no line.
func TestVMScriptCounters(t *testing.T) {
	before := rdmaStatistic(t)
	trace := startCommand(t, exec.Command("trace", "counters", "--period=50ms"))
	pingPong(t, true)
	time.Sleep(200 * time.Millisecond)
	quiet := true // a slow machine may repeat packets
	for name, value := range rdmaStatistic(t) {
		quiet = quiet && (!troubling(name) || value == before[name])
	}
	if text := trace.wrote(t); text != "" && quiet {
		t.Errorf("of traffic: %s", text)
	}
	program := startDatapath(t, buildDatapath(t), "fail=killed", "op=write", "count=3")
	program.finish(t)
	time.Sleep(200 * time.Millisecond)
	trace.end(t)
	after, text := rdmaStatistic(t), trace.wrote(t)
	lines, totals := map[string]uint64{}, map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^\S+ rxe0 port 1: (\w+) \+(\d+) in \S+ \(\d+/s\), now \d+$`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseUint(m[2], 10, 64)
		lines[m[1]] += n
	}
	for _, m := range regexp.MustCompile(`(?m)^@total\[rxe0, 1, HW_COUNTERS, (\w+)\]: (\d+)`).FindAllStringSubmatch(text, -1) {
		totals[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
	}
	for name, value := range after {
		grown := value - before[name]
		if totals[name] != grown {
			t.Errorf("%s: the total is %d, rdma statistic has grown by %d", name, totals[name], grown)
		}
		if troubling(name) && lines[name] != grown {
			t.Errorf("%s: the lines have %d, rdma statistic has grown by %d", name, lines[name], grown)
		}
	}
	if lines["retry_exceeded_err"] == 0 || lines["sent_pkts"] != 0 {
		t.Errorf("%v", lines)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// troubling reports whether a counter of rxe means trouble.
func troubling(name string) bool {
	return strings.HasSuffix(name, "_err") || name == "link_downed" || name == "duplicate_request" || name == "out_of_seq_request"
}
