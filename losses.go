package trace

import (
	"trace/lang/metrics/family"
	"trace/lang/run"
)

// ProbeStats counts what happened to the events of a probe since the start.
type ProbeStats struct {
	// Probe is its name, and Variant how it is attached; several are separated by commas.
	Probe, Variant string
	// Seen events happened, and Rejected ones no clause wanted.
	Seen, Rejected uint64
	// Delivered records came from the kernel: an event may send one for each clause, and none if its clauses run in the kernel.
	Delivered uint64
	Lost      Lost
	// Undecoded records came, but could not be read.
	Undecoded uint64
}

// Lost counts events that should have been seen but were not, by reason.
type Lost struct {
	// BufferFull: there was no room in the buffer from the kernel (see [Buffer]).
	BufferFull uint64
	// Unseen: the beginning of the event was not seen.
	Unseen uint64
	// Skipped: the kernel did not run the BPF program, as one was under way.
	Skipped uint64
	// Cut counts lists that were longer than a BPF program can read.
	Cut uint64
	// Late counts readings of counters that were left out.
	Late uint64
	// Gaps counts periods in which programs were attached and saw nothing, nobody knows of how many events: a switch of the kernel was off, a
	// CPU came online, a module was loaded again.
	Gaps uint64
	// Unhandled: they came before the end of the run, which was cut short: see [Program.Start].
	Unhandled uint64
	// Recorded: the recording lacks them.
	Recorded uint64
}

// reasons returns the counts by the names of the reasons.
func (l Lost) reasons(undecoded uint64) []family.Loss {
	return []family.Loss{
		{Reason: "buffer_full", Count: l.BufferFull}, {Reason: "unseen", Count: l.Unseen}, {Reason: "skipped", Count: l.Skipped}, {Reason: "cut", Count: l.Cut},
		{Reason: "late", Count: l.Late}, {Reason: "gap", Count: l.Gaps}, {Reason: "recorded", Count: l.Recorded}, {Reason: "undecoded", Count: undecoded},
		{Reason: "unhandled", Count: l.Unhandled},
	}
}

// Total returns the sum.
func (l Lost) Total() uint64 {
	return l.BufferFull + l.Unseen + l.Skipped + l.Cut + l.Late + l.Gaps + l.Unhandled + l.Recorded
}

// Losses is everything that is missing from what was read of a run since its start.
type Losses struct {
	// Events were lost, for the reasons in [ProbeStats].
	Events uint64
	// Maps are the maps that lost updates.
	Maps []MapLosses
	// Stacks are absent, or without their frames.
	Stacks uint64
	// Forks and Cgroups, of any process, were not reported by the kernel, so a filter by descendants or by cgroup may have missed events.
	Forks, Cgroups uint64
	// Cut are clauses that no event triggers, or of events of a recording, which were cut short at the end of the run: see [Program.Start].
	Cut []string
	// Incomplete reports that a recording lacks its end, or events.
	Incomplete bool
}

// Any reports whether anything is missing.
func (l Losses) Any() bool {
	return l.Events+l.Stacks+l.Forks+l.Cgroups > 0 || len(l.Maps)+len(l.Cut) > 0 || l.Incomplete
}

// MapLosses counts updates of a map that were lost.
type MapLosses struct {
	// Map is its name, with its @, and Size how many keys it has room for.
	Map  string
	Size uint32
	// Full: there was no room for another key (see [MapSize]). Busy: the kernel could not update the map at that moment. NoMemory: it had none, or
	// the strings of a map in user space take 64 MiB.
	Full, Busy, NoMemory uint64
}

// report returns the report up to now.
func (r *Run) report() (report run.Report, err error) {
	err = r.read(func() (err error) {
		select {
		case <-r.over:
			report = r.ended.Report
		default:
			report, err = r.running.Report()
		}
		return err
	})
	return report, err
}

// Stats returns the counts of each probe of the program, sorted by name. It fails if the kernel's counters cannot be read, or after [Run.Close].
func (r *Run) Stats() ([]ProbeStats, error) {
	report, err := r.report()
	all := make([]ProbeStats, len(report.Probes))
	for i, p := range report.Probes {
		all[i] = ProbeStats{Probe: p.Name, Variant: p.Variant, Seen: p.Events, Rejected: p.Rejected, Delivered: p.Delivered, Undecoded: p.Undecoded, Lost: lostOf(p)}
	}
	return all, err
}

func lostOf(p run.Probe) Lost {
	l := Lost{BufferFull: p.RingFull, Unseen: p.Unseen, Skipped: p.Skipped, Cut: p.Cut, Late: p.Late, Unhandled: p.Unhandled}
	l.Recorded = p.Lost - l.Total() - p.Undecoded
	l.Gaps = p.Gaps
	return l
}

// Losses returns what is missing up to now. It fails like [Run.Stats].
func (r *Run) Losses() (Losses, error) {
	report, err := r.report()
	l := Losses{Stacks: report.Stacks.Lost(), Forks: report.SkippedForks, Cgroups: report.SkippedCgroups, Cut: report.Cut}
	for _, p := range report.Probes {
		l.Events += p.Lost + p.Gaps
	}
	for _, m := range report.Maps {
		if m.Lost() > 0 {
			l.Maps = append(l.Maps, MapLosses{Map: m.Map, Size: m.MaxKeys, Full: m.Full, Busy: m.Busy, NoMemory: m.NoMemory})
		}
	}
	for _, info := range report.Recordings {
		l.Incomplete = l.Incomplete || run.Incomplete(info)
	}
	return l, err
}
