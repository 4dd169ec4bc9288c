//go:build linux

package probes

import (
	"fmt"
	"slices"
	"time"

	"trace/probes/event"
)

// Losses counts what is missing from the events of a probe.
type Losses struct {
	Probe *event.Probe
	// Counted reports whether the programs counted the Events that they saw in the kernel and could build, lost ones included: Passed,
	// which some clause of the program wanted, and Rejected. See Request.
	Counted                  bool
	Events, Passed, Rejected uint64
	// Delivered counts records that were read; an event may send one for each clause. Undecoded ones were not whole.
	Delivered, Undecoded uint64
	// Unhandled counts records for which the reader returned ErrUnhandled.
	Unhandled uint64
	// RingBuffer counts records that were lost because the ring buffer was full.
	RingBuffer uint64
	// Unseen counts events that could not be built, because their beginning was not seen, before the filter could be asked.
	Unseen uint64
	// Outside counts events, of programs that are attached a part of the time, that may have begun before they were attached: they are
	// left out, but not lost.
	Outside uint64
	// Missed counts skipped runs of the programs that deliver events: the filter did not see them. The kernel skips a program that is under
	// way on that CPU: interrupted, or, in kernels that allow it, preempted. Skipped programs at the entry of a call do not count here: the
	// call's return does, or it is unseen.
	Missed uint64
	// Cut counts lists that were longer than a program can read: chains of work requests, and completions of one poll. Nobody knows how many
	// events the rest had.
	Cut uint64
	// Late counts readings that were left out, because one failed or took too long. What changed meanwhile is in the next one.
	Late uint64
	// Unmatched counts events that lack the fields of their beginning, because it was not seen: usually what was in progress when tracing
	// began. They passed the filter, unless Unasked is set: then the filter uses such a field, and could not decide.
	Unmatched uint64
	Unasked   bool
	// InFlightFull counts beginnings that did not fit, MissedBeginnings those that the kernel skipped in helpers. Their ends are among the
	// unmatched or unseen.
	InFlightFull, MissedBeginnings uint64
	// Overflowed counts beginnings that a hash keeps, because a table had no room. They only cost more.
	Overflowed uint64
	// Corrected counts objects whose events came late, from the kernel's own list: their own events were skipped. The skipped runs that the
	// kernel reports are among the missed.
	Corrected uint64
	// FailedReads counts reads of a process's memory that failed, so that fields are absent or 0; only if the request asks for that.
	FailedReads uint64
	// Gaps counts periods in which programs did not see events although they were attached: the functions of a module that was unloaded and
	// loaded again, a CPU that came online, a switch of the kernel that was off. Nobody knows how many events they had.
	Gaps uint64
	// Runs of the programs and their RunTime, helpers included, while the kernel measures BPF programs (sysctl kernel.bpf_stats_enabled).
	Runs    uint64
	RunTime time.Duration
}

// Lost is the number of events that should have been delivered but were not.
func (l Losses) Lost() uint64 {
	return l.RingBuffer + l.Unseen + l.Missed + l.Cut + l.Late + l.Undecoded + l.Unhandled
}

// add adds what another request for the same probe counted.
func (l *Losses) add(o Losses) {
	l.Counted = l.Counted && o.Counted
	l.Events += o.Events
	l.Passed += o.Passed
	l.Rejected += o.Rejected
	l.RingBuffer += o.RingBuffer
	l.Unseen += o.Unseen
	l.Outside += o.Outside
	l.Missed += o.Missed
	l.Cut += o.Cut
	l.Late += o.Late
	l.Unmatched += o.Unmatched
	l.Unasked = l.Unasked || o.Unasked
	l.InFlightFull += o.InFlightFull
	l.MissedBeginnings += o.MissedBeginnings
	l.Overflowed += o.Overflowed
	l.Corrected += o.Corrected
	l.FailedReads += o.FailedReads
	l.Gaps += o.Gaps
	l.Runs += o.Runs
	l.RunTime += o.RunTime
}

func (r *request) losses() (Losses, error) {
	n, err := r.counted()
	if err != nil {
		return Losses{}, err
	}
	l := Losses{
		Probe: r.Probe, Counted: r.Counted, Events: n[countPassed] + n[countRejected], Passed: n[countPassed], Rejected: n[countRejected],
		RingBuffer: n[countRingFull], Unseen: n[countUnseen], InFlightFull: n[countInflightFull], Cut: n[countCut], Late: n[countLate],
	}
	if l.FailedReads, err = r.countedFailures(); err != nil {
		return Losses{}, err
	}
	if r.inWindows {
		l.Outside, l.Unseen = l.Unseen, 0
	}
	// Without helpers nothing looks for beginnings.
	if len(r.hooks) > 1 {
		l.Unmatched, l.Unasked = n[countUnmatched], r.begins() == stageBefore
	}
	if l.Overflowed, err = r.overflowed(); err != nil {
		return Losses{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.MissedBeginnings, l.Gaps = r.missedBeginnings, r.gaps
	for _, a := range r.attached {
		n, err := a.misses()
		if err != nil {
			return Losses{}, err
		}
		stats, err := a.program.Stats()
		if err != nil {
			return Losses{}, err
		}
		l.Runs, l.RunTime = l.Runs+stats.RunCount, l.RunTime+stats.Runtime
		switch {
		case a.helper:
			l.MissedBeginnings += n
		case a.delivers:
			l.Missed += n
		}
	}
	l.Missed = max(l.Missed, n[countUnended]) // the same, where the kernel does not report it
	return l, nil
}

// counted returns what the programs counted. Without a map they count nothing.
func (r *request) counted() (n [counters]uint64, err error) {
	if r.counts == nil {
		return n, nil
	}
	var perCPU [][counters]uint64
	if err := r.counts.Lookup(uint32(0), &perCPU); err != nil {
		return n, err
	}
	for _, cpu := range perCPU {
		for i, v := range cpu {
			n[i] += v
		}
	}
	return n, nil
}

// countedFailures returns how many reads of a process's memory failed.
func (r *request) countedFailures() (n uint64, err error) {
	if r.failedReads == nil {
		return 0, nil
	}
	var perCPU []uint64
	err = r.failedReads.Lookup(r.reader, &perCPU)
	for _, failed := range perCPU {
		n += failed
	}
	return n, err
}

// losses returns the losses of one of the requests, with the corrected events.
func (b *batch) losses(r *request) (Losses, error) {
	l, err := r.losses()
	for _, inv := range b.inventories {
		if err != nil || inv.request != r {
			continue
		}
		var t tally
		t, err = inv.tally()
		l.Corrected += uint64(t.corrected)
	}
	if err != nil {
		return Losses{}, fmt.Errorf("counts of %s: %w", r.Probe, err)
	}
	return l, nil
}

// addLosses adds the losses of one request to the losses of the other requests, by probe.
func addLosses(all []Losses, l Losses) []Losses {
	if i := slices.IndexFunc(all, func(o Losses) bool { return o.Probe == l.Probe }); i >= 0 {
		all[i].add(l)
		return all
	}
	return append(all, l)
}
