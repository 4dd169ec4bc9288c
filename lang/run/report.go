package run

import (
	"io"
	"slices"
	"time"

	"trace/lang/exec"
	"trace/lang/output"
	"trace/probes/recording"
)

// Ended is a program that has run. Its maps stay until Close.
type Ended struct {
	*exec.Run
	Report  Report
	printer *output.Printer
}

// PrintMap prints a map once more, as text: at most top entries, 0 for all of them, by "key", "value" or, if it is "", what is usual.
func (e *Ended) PrintMap(w io.Writer, name string, top int64, by string) error {
	return e.Run.PrintMap(e.printer.OfMaps(w), name, top, by)
}

// Report is how a run went.
type Report struct {
	// Host and Kernel are those of the events.
	Host, Kernel string
	Began        time.Time
	// Ended is when the end clauses began to run; zero: something failed before.
	Ended  time.Time
	Probes []Probe
	// Missing is what has become known to be missing of probes since the last [Counts].
	Missing []string
	// RemadeCgroups were removed and made again: only the first one was compared with.
	RemadeCgroups []string
	Maps          []exec.MapLosses
	Stacks        exec.StackLosses
	// SkippedForks are forks of any processes that the kernel did not report.
	SkippedForks uint64
	// SkippedCgroups are cgroups that were made, or removed, of any, which the kernel did not report, or for which there was no room.
	SkippedCgroups uint64
	// Recordings are those of a replay.
	Recordings []recording.Info
	// Recorded is how many events were recorded in File.
	Recorded uint64
	File     string
	// CommandFailed says that the command ended by itself, and with a status other than 0.
	CommandFailed bool
}

// Probe is what became of the events of a probe.
type Probe struct {
	Name string
	// Variant is the way of attaching it.
	Variant string
	// Events were seen, so many were printed, and so many rejected by filters, which is known if they are Counted.
	Events, Printed, Rejected uint64
	Counted                   bool
	// Delivered records were read.
	Delivered uint64
	// Lost events should have been seen and were not. RingFull, Unseen and Skipped are the reasons: the buffer was full, the beginning of
	// the event was not seen, the kernel skipped the program.
	Lost, RingFull, Unseen, Skipped uint64
	// Unmatched events lack what their beginning tells, as it was not seen. Unasked: the filter asks for just that.
	Unmatched uint64
	Unasked   bool
	// NoRoom and SkippedBeginnings are beginnings that were not remembered.
	NoRoom, SkippedBeginnings uint64
	// Corrected objects had late events.
	Corrected uint64
	// Gaps are times in which nothing was seen of a module that was loaded again.
	Gaps uint64
}

// Lost returns whether anything is missing of the events or in the maps.
func (r *Report) Lost() bool {
	return r.SkippedForks+r.SkippedCgroups > 0 || r.Stacks.Lost() > 0 ||
		slices.ContainsFunc(r.Maps, func(l exec.MapLosses) bool { return l.Lost() > 0 }) ||
		slices.ContainsFunc(r.Probes, func(p Probe) bool { return p.Lost+p.Gaps > 0 }) ||
		slices.ContainsFunc(r.Recordings, Incomplete)
}

// Incomplete returns whether a recording lacks events, or its end.
func Incomplete(info recording.Info) bool {
	return info.Cut || slices.ContainsFunc(info.Losses, func(l recording.Loss) bool { return len(l.Texts()) > 0 })
}

// addMaps puts what was lost in the maps of a run into the report.
func (r *Report) addMaps(exec *exec.Run) (err error) {
	if r.Maps, err = exec.MapLosses(); err != nil {
		return err
	}
	r.Stacks, err = exec.StackLosses()
	return err
}
