package run

import (
	"io"
	"slices"
	"time"

	"trace/lang/exec"
	"trace/lang/output"
	"trace/probes/recording"
)

// Ended is a program that has run. Its maps are available until Close.
type Ended struct {
	*exec.Run
	Report  Report
	printer *output.Printer
}

// PrintMap prints a map once more, as text: at most top rows, 0 for all, sorted by "key" or "value". "" is the default order.
func (e *Ended) PrintMap(w io.Writer, name string, top int64, by string) error {
	return e.Run.PrintMap(e.printer.AsText(w), name, top, by)
}

// Report describes a run.
type Report struct {
	// Host and Kernel are where the events come from.
	Host, Kernel string
	Began        time.Time
	// Ended is when the end clauses began to run; zero: something failed before.
	Ended  time.Time
	Probes []Probe
	// LeftOut are probes that the run went on without.
	LeftOut []recording.LeftOut
	// Share is which part of the time traps were attached; 0: all the time.
	Share float64
	// Missing describes what probes turned out to lack since the last [Counts].
	Missing []string
	// RemadeCgroups were removed and created again: only the first one was matched.
	RemadeCgroups []string
	Maps          []exec.MapLosses
	Stacks        exec.StackLosses
	// SkippedForks counts forks, of any process, that the kernel did not report.
	SkippedForks uint64
	// SkippedCgroups counts cgroups created or removed anywhere that the kernel did not report, or for which there was no room.
	SkippedCgroups uint64
	// Recordings are the recordings of a replay.
	Recordings []recording.Info
	// Recorded is how many events were recorded in File.
	Recorded uint64
	File     string
	Acts     exec.Acts
	// TrialsFailed reports that a test or a benchmark failed.
	TrialsFailed bool
	// Cut are clauses that were cut short at the end of the run. Clauses of this machine's events are not among them: such events are unhandled.
	Cut []string
	// CommandFailed reports that the command ended by itself with a status other than 0.
	CommandFailed bool
}

// Probe counts what happened to the events of a probe.
type Probe struct {
	Name string
	// Variant is how it was attached.
	Variant string
	// Events were seen, Printed were printed, and Rejected were rejected by filters. Rejected needs Counted.
	Events, Printed, Rejected uint64
	Counted                   bool
	// Delivered records were read. Undecoded ones were not whole.
	Delivered, Undecoded, Unhandled uint64
	// Lost events should have been seen but were not. The reasons are: the buffer was full (RingFull), the beginning of the event
	// was not seen (Unseen), the kernel skipped the BPF program (Skipped), a list was too long for it (Cut, once for each list),
	// a reading took too long (Late, once for each reading that was left out), its record was not whole (Undecoded), or it came before the
	// end of the run, which was cut short (Unhandled).
	Lost, RingFull, Unseen, Skipped, Cut, Late uint64
	// Outside events may have begun outside of the windows of --burst: they are left out.
	Outside uint64
	// Unmatched events lack the fields of their beginning, which was not seen. Unasked reports that the filter uses just these
	// fields.
	Unmatched uint64
	Unasked   bool
	// NoRoom and SkippedBeginnings count beginnings that were not remembered.
	NoRoom, SkippedBeginnings uint64
	// Overflowed beginnings were remembered in a hash, which costs more, because a table had no room.
	Overflowed uint64
	// Corrected counts objects with late events.
	Corrected uint64
	// FailedReads of a process's memory leave fields absent or 0; only with CountsFailures.
	FailedReads uint64
	// Gaps counts times in which events were not seen, nobody knows how many.
	Gaps uint64
	// Runs of the BPF programs and their RunTime, if the kernel measures them.
	Runs    uint64
	RunTime time.Duration
}

// Lost reports whether events or map updates are missing.
func (r *Report) Lost() bool {
	return r.SkippedForks+r.SkippedCgroups > 0 || len(r.Cut)+len(r.RemadeCgroups) > 0 || r.Stacks.Lost() > 0 ||
		slices.ContainsFunc(r.Maps, func(l exec.MapLosses) bool { return l.Lost() > 0 }) ||
		slices.ContainsFunc(r.Probes, func(p Probe) bool { return p.Lost+p.Gaps > 0 }) ||
		slices.ContainsFunc(r.Recordings, Incomplete)
}

// Incomplete reports whether a recording lacks events, or its end.
func Incomplete(info recording.Info) bool {
	return info.Cut || slices.ContainsFunc(info.Losses, func(l recording.Loss) bool { return len(l.Texts()) > 0 })
}

// addMaps adds the losses of a run's maps to the report.
func (r *Report) addMaps(exec *exec.Run) (err error) {
	if r.Maps, err = exec.MapLosses(); err != nil {
		return err
	}
	r.Acts, r.Cut = exec.Acts(), exec.Cut()
	r.Stacks, err = exec.StackLosses()
	return err
}
