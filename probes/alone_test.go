package probes

import (
	"fmt"
	"slices"
	"testing"

	"trace/probes/event"
)

// momentary fields differ between two programs that see the same event: times, and durations until then.
func momentary(f *event.Field) bool { return f.Name == "nsecs" || f.Type.Unit == event.Nanoseconds }

// compareAlone captures each field of a probe alone, with all the others, and alone in the filter; the values must
// be the same. The verifier lets a program of root read what it never wrote, so nothing else would notice a field that is delivered
// but not captured.
func compareAlone(t *testing.T, h *Host, p *event.Probe, start func() job) {
	t.Helper()
	// A kernel function takes at most 38 programs (BPF_MAX_TRAMP_LINKS), so not all fields at once: there are two sessions for each and one
	// with all, with a program each where the function begins and where it returns.
	for fields := range slices.Chunk(p.Fields, 9) {
		tr := captureAlone(t, h, p, fields, start())
		for range 5 {
			if tr.missed == 0 || tr.complete() {
				break
			}
			tr = captureAlone(t, h, p, fields, start())
		}
		tr.compare(t, p, fields)
	}
}

// A trial is what sessions saw of one job: with all fields, with each field alone, and with each alone in the filter.
type trial struct {
	reference       []snapshot
	alone, inFilter [][]snapshot
	missed          uint64
}

func captureAlone(t *testing.T, h *Host, p *event.Probe, fields []*event.Field, j job) *trial {
	t.Helper()
	tr := &trial{alone: make([][]snapshot, len(fields)), inFilter: make([][]snapshot, len(fields))}
	run := tr.collecting(t, h, want{probe: p, fields: p.Fields, pid: j.pid}, &tr.reference, j.run)
	for i, f := range fields {
		run = tr.collecting(t, h, want{probe: p, fields: []*event.Field{f}, pid: j.pid}, &tr.alone[i], run)
		run = tr.collecting(t, h, want{probe: p, operand: f, pid: j.pid}, &tr.inFilter[i], run)
	}
	run()
	return tr
}

// collecting attaches the code for a want, and returns a workload that runs another one under it and collects its events.
func (tr *trial) collecting(t *testing.T, h *Host, w want, events *[]snapshot, workload func()) func() {
	t.Helper()
	s := attachWants(t, h, w)
	return func() {
		*events = collect(t, s, workload)
		tr.missed += checkNoneLost(t, s)
	}
}

// complete reports whether all sessions saw as many events.
func (tr *trial) complete() bool {
	return !slices.ContainsFunc(slices.Concat(tr.alone, tr.inFilter), func(events []snapshot) bool { return len(events) != len(tr.reference) })
}

func (tr *trial) compare(t *testing.T, p *event.Probe, fields []*event.Field) {
	t.Helper()
	if len(tr.reference) == 0 {
		t.Errorf("%s: the workload caused no event", p)
	}
	for i, f := range fields {
		sameValues(t, f, "alone", valuesOf(f, f.Name, tr.alone[i]), valuesOf(f, f.Name, tr.reference))
		sameValues(t, f, "in the filter", valuesOf(f, passed, tr.inFilter[i]), valuesOf(f, foldOf(f.Name), tr.reference))
	}
}

func sameValues(t *testing.T, f *event.Field, how string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s %s:\n%v\nwith others:\n%v", f.Name, how, got, want)
	}
}

// valuesOf returns what the events have under a key that is about a field, sorted.
func valuesOf(f *event.Field, key string, events []snapshot) []string {
	var values []string
	for _, e := range events {
		v := e[key]
		if momentary(f) && v != "-" && v != fmt.Sprint(fold(nil)) {
			v = "a time"
		}
		values = append(values, v)
	}
	slices.Sort(values)
	return values
}

func TestSyscallFieldsAlone(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Match("syscall:*") {
		t.Run(p.Name, func(t *testing.T) { compareAlone(t, h, p, func() job { return waiting(t) }) })
	}
}
