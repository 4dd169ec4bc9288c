package console

import (
	"slices"
	"strings"
	"testing"

	"trace/lang/exec"
	"trace/lang/run"
)

func TestLossLine(t *testing.T) {
	for _, test := range []struct {
		probe run.Probe
		want  string
	}{
		{
			run.Probe{Delivered: 4200, Lost: 800, RingFull: 800},
			"lost 800 of 5000 nvme:complete_rq events: 800 ring buffer full (raise --buffer-size)",
		}, {
			run.Probe{Delivered: 4188, Lost: 812, RingFull: 800, Skipped: 12},
			"lost 812 nvme:complete_rq events: 800 ring buffer full (raise --buffer-size), " +
				"12 skipped by the kernel before the filter ran (the BPF program was already running on that CPU, or too many calls were in progress)",
		}, {
			run.Probe{Delivered: 10, Lost: 1, Unseen: 1, Unmatched: 7},
			"lost 1 nvme:complete_rq events: 1 whose beginning was not seen, before the filter ran",
		},
	} {
		test.probe.Name = "nvme:complete_rq"
		if got := lossLine(test.probe); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// An event without its beginning is not lost.
func TestIncompleteLines(t *testing.T) {
	for _, test := range []struct {
		probe run.Probe
		want  string
	}{
		{run.Probe{Unmatched: 2}, "nvme:failover: the beginning of 2 events was not seen; fields of the beginning, like latency, are absent"},
		{run.Probe{Unmatched: 2, Unasked: true},
			"nvme:failover: the beginning of 2 events was not seen; the filter uses fields of the beginning, like latency, so they could not pass"},
		{run.Probe{NoRoom: 1}, "nvme:failover: too many in progress to remember the beginning of 1 event"},
		{run.Probe{SkippedBeginnings: 3}, "nvme:failover: the kernel skipped the beginning of 3 events (the BPF program was already running on that CPU)"},
		{run.Probe{}, ""},
	} {
		test.probe.Name = "nvme:failover"
		if got := strings.Join(incompleteLines(test.probe), "\n"); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
		if r := (run.Report{Probes: []run.Probe{test.probe}}); r.Lost() {
			t.Errorf("%+v: something is lost", test.probe)
		}
	}
}

func TestMapLossLines(t *testing.T) {
	for _, test := range []struct {
		full, noMemory, busy, absent uint64
		let                          bool
		want                         []string
	}{
		{absent: 9},
		{full: 1, want: []string{"@m: no room for 1 update: the map is full with 64 keys (raise --map-size, or let @m = lru(…))"}},
		{full: 3, let: true, want: []string{"@m: no room for 3 updates: the map is full with 64 keys (write let @m = hash(256), or lru(…))"}},
		{noMemory: 674, busy: 2, want: []string{
			"@m: the kernel had no memory for 674 updates",
			"@m: lost 2 updates because others were changing the map at that moment",
		}},
	} {
		l := exec.MapLosses{Map: "@m", MaxKeys: 64, Let: test.let}
		l.Full, l.NoMemory, l.Busy, l.Absent = test.full, test.noMemory, test.busy, test.absent
		if got := mapLossLines(l); !slices.Equal(got, test.want) {
			t.Errorf("%+v:\ngot  %q\nwant %q", l, got, test.want)
		}
	}
}
