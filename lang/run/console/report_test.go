package console

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/result"
	"trace/lang/run"
	"trace/probes/recording"
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
		}, {
			run.Probe{Delivered: 10, Lost: 7, RingFull: 3, Unhandled: 4},
			"lost 7 of 17 nvme:complete_rq events: 3 ring buffer full (raise --buffer-size), 4 that came before the end and were not handled, as the end was cut short",
		},
	} {
		test.probe.Name = "nvme:complete_rq"
		if got := lossLine(test.probe); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// The report has the share of --burst, and what was left out.
func TestBurstLines(t *testing.T) {
	if lines := burstLines(run.Report{}); lines != nil {
		t.Errorf("without --burst: %q", lines)
	}
	r := run.Report{Share: 0.0984, Probes: []run.Probe{{Name: "verbs:complete", Outside: 3}, {Name: "verbs:post_send"}}}
	want := []string{
		"--burst: attached 9.8 % of the time; numbers with a ~ are estimates for all of it",
		"--burst: verbs:complete: 3 events left out, which may have begun before a window",
	}
	if got := burstLines(r); !slices.Equal(got, want) || r.Lost() {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Summary(r).Losses; !slices.Equal(got, want) {
		t.Errorf("a page has %q", got)
	}
}

// A cgroup that was made anew was not matched from then on: that is a loss, also on a page.
func TestRemadeCgroupIsALoss(t *testing.T) {
	r := run.Report{RemadeCgroups: []string{"/a"}}
	if got := Summary(r).Losses; len(got) != 1 || !strings.HasPrefix(got[0], "cgroup /a was removed and created again") || !r.Lost() {
		t.Errorf("a page has %q; it is a loss: %t", got, r.Lost())
	}
}

// The end of a run describes what is left of it; unasked less, and nothing with -q.
func TestLeft(t *testing.T) {
	const again = "; Ctrl-C again cuts it short, and counts what is left as lost"
	for _, test := range []struct {
		left           run.Left
		asked, unasked string
	}{
		{run.Left{Events: 1}, "", "1 event that came before the end is left"},
		{run.Left{Events: 2}, "", "2 events that came before the end are left"},
		{run.Left{Events: 2, Clause: "interval:1s"}, "", "interval:1s still runs"},
		{run.Left{Busy: true}, "the end of the run takes its time", ""},
		{run.Left{Events: 2, Asked: true}, "2 events that came before the end are left" + again, ""},
		{run.Left{Busy: true, Asked: true}, "the end of the run takes its time" + again, ""},
	} {
		for _, quiet := range []bool{false, true} {
			var b strings.Builder
			(&Console{Err: &b, Quiet: quiet}).Show(test.left)
			want := ""
			switch {
			case test.unasked != "" && !quiet:
				want = "trace: " + test.unasked + "\n"
			case test.left.Asked:
				want = "trace: " + test.asked + "\n"
			}
			if got := b.String(); got != want {
				t.Errorf("%+v, quiet %v: got %q, want %q", test.left, quiet, got, want)
			}
		}
	}
}

// What was cut short is in the report, on a page, and in the exit status with --strict.
func TestCut(t *testing.T) {
	r := run.Report{Cut: []string{"interval:1s"}}
	want := "interval:1s was cut short at the end of the run: what it would have done is missing"
	var b strings.Builder
	(&Console{Err: &b, Quiet: true}).Report(r)
	if got := b.String(); got != "trace: "+want+"\n" || !slices.Equal(Summary(r).Losses, []string{want}) || !r.Lost() {
		t.Errorf("got %q and %q, lost %v", got, Summary(r).Losses, r.Lost())
	}
}

// A page has the periods in which attached programs saw nothing, and so does the exit status with --strict.
func TestGaps(t *testing.T) {
	r := run.Report{Probes: []run.Probe{{Name: "vm:exit", Gaps: 2}, {Name: "syscall:exit"}}}
	if got, want := Summary(r).Losses, []string{"vm:exit: no events in 2 periods in which its programs were attached"}; !slices.Equal(got, want) || !r.Lost() {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Beginnings that found no room in their table cost more.
func TestVerboseLines(t *testing.T) {
	got := verboseLines(run.Probe{Events: 3, Printed: 1, Rejected: 2})
	if want := []string{"3 seen, 1 printed, 2 rejected, 0 lost"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = verboseLines(run.Probe{Overflowed: 2})
	if want := "2 beginnings kept in a hash, which costs more, as the table had no room"; !slices.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
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
		{run.Probe{FailedReads: 2},
			"nvme:failover: WARNING: Failed to probe_read_user: Bad address (-14): 2 reads of a process's memory failed; what they would show is absent or 0"},
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
		{full: 1, want: []string{"@m: WARNING: Map full; can't update element: no room for 1 update beside 64 keys (raise --map-size, or let @m = lru(…))"}},
		{full: 3, let: true, want: []string{"@m: WARNING: Map full; can't update element: no room for 3 updates beside 64 keys (write let @m = hash(256), or lru(…))"}},
		{noMemory: 674, busy: 2, want: []string{
			"@m: no memory for 674 updates: the kernel had none, or the strings of a map in user space take 64 MiB",
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

// Each loss has a line.
func TestReport(t *testing.T) {
	cut := recording.Info{Name: "a.rec", Cut: true}
	r := run.Report{
		RemadeCgroups: []string{"/a"}, SkippedForks: 2, SkippedCgroups: 1, Recordings: []recording.Info{cut},
		Stacks: exec.StackLosses{Mappings: 3, Unread: []string{"/bin/x: too large"}, Impatient: 1},
		Maps:   []exec.MapLosses{{Map: "@m"}},
	}
	r.Maps[0].Absent = 2
	r.Stacks.Full, r.Stacks.NoMemory, r.Stacks.Busy, r.Stacks.Failed = 1, 0, 2, 1
	var b strings.Builder
	(&Console{Err: &b}).Report(r)
	for _, want := range []string{
		`cgroup /a was removed and created again while tracing: only the first one was matched (cgroup startsWith "/a" matches both)`,
		"--children: the kernel did not report 2 forks (on that CPU it was reporting another one): events of the new processes may be missing",
		"the creation or removal of 1 cgroup was missed: events of processes in them may be missing",
		"a.rec was cut off before its end; the events in it are complete",
		"stacks: no room for a stack, 1 time: its frames are unknown (raise --map-size)",
		"stacks: 2 stacks not captured because others were being captured on that CPU",
		"stacks: the kernel did not capture 1 stack",
		"stacks: 3 notifications about mappings of processes lost: frames may lack names",
		"stacks: frames may lack names: /bin/x: too large",
		"stacks: 1 stack printed without names, because looking them up took too long",
		"@m: skipped 2 updates, whose value was absent",
	} {
		if !strings.Contains(b.String(), "trace: "+want+"\n") {
			t.Errorf("no line %q in\n%s", want, &b)
		}
	}
}

// Each note has a line.
func TestNotes(t *testing.T) {
	failed := errors.New("it failed")
	for want, note := range map[string]run.Note{
		"trace: it failed: cgroups that are removed before they are printed may show as numbers, and what new ones run may be unknown": run.CgroupsUnwatched{Err: failed},
		"trace: fio ended: exit status 0": run.CommandEnded{Name: "fio", State: &os.ProcessState{}, Failed: true},
		"trace: a:b: the kernel rejected the code for a:b / x /, which is a bug in trace: it runs in user space instead (-v shows more)": run.Rejected{
			Probe: "a:b", Clauses: []string{"a:b / x /"}},
		"which has too many paths for the verifier": run.Rejected{Probe: "a:b", Large: true},
		"trace: leaving out a:b: no such module":    run.Attached{LeftOut: []recording.LeftOut{{Probes: []string{"a:b"}, Why: "no such module"}}},
		"trace: stacks of ended processes are printed without names: it failed (names need CAP_PERFMON, on Debian CAP_SYS_ADMIN)": run.Attached{
			StacksUnwatched: failed},
		"trace: not used: it failed": run.Attached{Refused: []error{failed}},
		"trace: it failed\n":         run.Trouble{Err: failed},
	} {
		var b strings.Builder
		(&Console{Err: &b, Verbose: true, Strict: true}).Show(note)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%+v\ngot  %s\nwant %s", note, &b, want)
		}
	}
}

func TestShowNegative(t *testing.T) {
	var b strings.Builder
	(&Console{Err: &b}).ShowNegative([]result.Profile{{Map: "@"}, {Map: "@freed", Negative: 2}})
	if want := "trace: @freed: 2 keys with a negative value left out of the profile\n"; b.String() != want {
		t.Errorf("got %s, want %s", &b, want)
	}
}

// A cgroup of the program that does not exist is reported, unless the user wants only errors.
func TestShowCgroups(t *testing.T) {
	program := &ir.Program{Cgroups: map[string]uint64{"/there": 7, "/missing": 0}}
	var out strings.Builder
	(&Console{Err: &out, Quiet: true}).ShowCgroups(program)
	(&Console{Err: &out}).ShowCgroups(program)
	if want := "trace: cgroup /missing does not exist: events are compared with its path, in user space\n"; out.String() != want {
		t.Errorf("got %s, want %s", &out, want)
	}
}

// The description of a recording has a line for each thing that is known of it.
func TestWriteInfo(t *testing.T) {
	info := recording.Info{
		Name: "f", Ended: 3e9, Last: 2e9, Bytes: 10, RawBytes: 20,
		Events: map[string]uint64{"nvme:complete_rq": 2, "profile:hz": 1},
	}
	info.Started, info.SampleRate = 1e9, 99
	info.Host, info.Kernel, info.Arch, info.Program = "h", "6.12", "amd64", "nvme:complete_rq\n profile:99hz"
	info.Losses = []recording.Loss{{Probe: "nvme:complete_rq", Lost: 3, Gaps: 1}, {Stacks: 1}}
	for cut, length := range map[bool]string{false: "2s", true: "1s, then it was cut off"} {
		var out strings.Builder
		info.Cut = cut
		writeInfo(&out, info)
		got := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range []string{
			"f: host h, Linux 6.12 amd64 program nvme:complete_rq profile:99hz began ", " length " + length + " size 10 bytes, for 20 bytes of events ",
			" nvme:complete_rq 2 events profile:99hz 1 event lost 3 events of nvme:complete_rq lost events of nvme:complete_rq in 1 period lost 1 stack",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s\nlacks %s", got, want)
			}
		}
	}
}
