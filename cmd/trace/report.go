package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trace/lang"
	"trace/probes"
)

// report tells the user which events are missing from the output, and why.
type report struct {
	*tracer
	session *probes.Session
	told    map[*probes.Probe]uint64 // losses of which the user knows
}

// watch reports new losses once a second until ctx ends.
func (r *report) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if losses, err := r.session.Losses(); err == nil { // finish tells of an error
				r.tellLosses(losses)
			}
		}
	}
}

// finish reports on the whole run. Losses are never silent, not even with -q.
func (r *report) finish(losses []probes.Losses) error {
	r.told = nil // so that the totals come last
	r.tellLosses(losses)
	for _, l := range losses {
		if !r.quiet {
			r.tellIncomplete(l)
		}
		if r.verbose {
			r.note("%v: %d seen, %d printed, %d rejected, %d lost", l.Probe, l.Events, r.printed[l.Probe],
				l.Rejected+r.exec.Rejected(l.Probe), l.Lost())
		}
	}
	lost, err := tellMaps(r.streams, r.quiet, r.exec)
	if err != nil {
		return err
	}
	if r.strict && (lost || slices.ContainsFunc(losses, func(l probes.Losses) bool { return l.Lost() > 0 })) {
		return errLost
	}
	return nil
}

// tellMaps reports what could not be done in maps, and tells whether something was lost.
func tellMaps(s streams, quiet bool, exec *lang.Run) (lost bool, err error) {
	losses, err := exec.MapLosses()
	if err != nil {
		return false, err
	}
	for _, l := range losses {
		lost = lost || l.Lost() > 0
		for _, line := range mapLossLines(l) {
			s.note("%s", line)
		}
		if l.Absent > 0 && !quiet {
			s.note("%s: skipped %s, whose value was absent", l.Map, plural(l.Absent, "update"))
		}
	}
	lostStacks, err := tellStacks(s, quiet, exec)
	return lost || lostStacks, err
}

// tellStacks reports what is wrong with stacks, and tells whether something was lost.
func tellStacks(s streams, quiet bool, exec *lang.Run) (lost bool, err error) {
	l, err := exec.StackLosses()
	if err != nil {
		return false, err
	}
	if n := l.Full + l.NoMemory; n > 0 {
		lost = true
		s.note("stacks: no room for another one, %s: their frames are not known (raise --map-size)", plural(n, "time"))
	}
	if l.Busy > 0 {
		lost = true
		s.note("stacks: %s not captured, as others were being captured on that CPU", plural(l.Busy, "stack"))
	}
	if l.Failed > 0 {
		lost = true
		s.note("stacks: the kernel did not capture %s", plural(l.Failed, "stack"))
	}
	if l.Mappings > 0 && !quiet {
		s.note("stacks: %s about what processes map did not arrive; frames may lack their names for it", plural(l.Mappings, "note"))
	}
	return lost, nil
}

// mapLossLines say which updates of a map were lost, and why.
func mapLossLines(l lang.MapLosses) []string {
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, l.Map+": "+fmt.Sprintf(format, args...)) }
	if l.Full > 0 {
		tell("no room for %s: the map is full with %d keys (raise --map-size, or let %s = lru(…))", plural(l.Full, "update"), l.Entries, l.Map)
	}
	if l.NoMemory > 0 {
		tell("the kernel had no memory for %s", plural(l.NoMemory, "update"))
	}
	if l.Busy > 0 {
		tell("lost %s, as others were changing the map at that moment", plural(l.Busy, "update"))
	}
	return lines
}

// tellIncomplete explains absent fields; as a rule such an event was in progress when tracing began.
func (r *report) tellIncomplete(l probes.Losses) {
	if l.Unmatched > 0 {
		r.note("%v: the beginning of %s was not seen; what it tells, like the latency, is absent", l.Probe, plural(l.Unmatched, "event"))
	}
	if l.InFlightFull > 0 {
		r.note("%v: too much in progress to remember the beginning of %s", l.Probe, plural(l.InFlightFull, "event"))
	}
}

// tellLosses prints a line for every probe that has lost more events than the user knows of.
func (r *report) tellLosses(losses []probes.Losses) {
	if r.told == nil {
		r.told = map[*probes.Probe]uint64{}
	}
	for _, l := range losses {
		if lost := l.Lost(); lost > r.told[l.Probe] {
			r.told[l.Probe] = lost
			r.note("%s", lossLine(l))
		}
	}
}

// lossLine says how many events of a probe were lost, and where.
func lossLine(l probes.Losses) string {
	var reasons []string
	for _, r := range []struct {
		n    uint64
		text string
	}{
		{l.RingBuffer, "ring buffer full (raise --buffer-size)"},
		{l.Unseen, "whose beginning was not seen"},
		{l.Missed, "missed by the kernel (the program was already running on that CPU)"},
	} {
		if r.n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", r.n, r.text))
		}
	}
	of := ""
	if l.Delivered+l.RingBuffer > 0 { // else nothing is sent to user space, and nobody knows how many there were
		of = fmt.Sprintf(" of %d", l.Delivered+l.Lost())
	}
	return fmt.Sprintf("lost %d%s %v events: %s", l.Lost(), of, l.Probe, strings.Join(reasons, ", "))
}
