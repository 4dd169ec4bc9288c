package main

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trace/probes/event"
)

// readableWidth is how wide a line of an event may be, so that it can be read.
const readableWidth = 160

// unrecorded are probes without events in any recording: nothing here calls rdma_destroy_qp. Its fields are the same as cm:send_rep's.
var unrecorded = []string{"cm:qp_destroy"}

// lineless reports whether no recording has a line of a probe: its events may not leave the kernel, or it is unrecorded.
func lineless(p *event.Probe) bool { return p.Dense != "" || slices.Contains(unrecorded, p.String()) }

// vital is what people look for in a line.
var vital = regexp.MustCompile(` (latency|status|ret|age)=\S+`)

// TestLines measures the lines of each probe, of all recordings: half of them fit, and important fields come first.
func TestLines(t *testing.T) {
	lines := map[string][]string{}
	for _, pattern := range []string{"../../scripts/testdata/*.rec", "testdata/lines/*.rec"} {
		files, err := filepath.Glob(pattern)
		if err != nil || files == nil {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			for probe, more := range recordedLines(t, file) {
				lines[probe] = append(lines[probe], more...)
			}
		}
	}
	for _, p := range loadCatalog(t) {
		if lineless(p) != (lines[p.String()] == nil) {
			t.Errorf("%v: %d lines", p, len(lines[p.String()]))
		}
	}
	checkLines(t, lines)
}

// checkLines measures lines, by their probes.
func checkLines(t *testing.T, lines map[string][]string) {
	t.Helper()
	for probe, all := range lines {
		slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		middle := all[(len(all)-1)/2]
		t.Logf("%s: median %d, longest %d of %d", probe, len(middle), len(all[len(all)-1]), len(all))
		if len(middle) > readableWidth {
			t.Errorf("a line of %d columns:\n%s", len(middle), middle)
		}
		for _, line := range all {
			for _, at := range vital.FindAllStringIndex(line, -1) {
				if at[1] > readableWidth {
					t.Errorf("%s ends in column %d of\n%s", line[at[0]+1:at[1]], at[1], line)
				}
			}
		}
	}
}

// recordedLines are the lines of the events of a recording, by their probes.
func recordedLines(t *testing.T, file string) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	var out bytes.Buffer
	if status := runCommand(context.Background(), []string{"-q", "-r", file, "*:*"}, nil, &out, os.Stderr); status != exitOK {
		t.Fatalf("%s: status %d", file, status)
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		probe := strings.Fields(line)[1]
		lines[probe] = append(lines[probe], line)
	}
	return lines
}
