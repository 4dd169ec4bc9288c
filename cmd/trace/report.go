//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trace/probes"
	"trace/probes/event"
)

// report tells the user which events are missing from the output, and why.
type report struct {
	*tracer
	session *probes.Session
	told    map[*event.Probe]uint64 // losses of which the user knows
	// corrected are the corrections of which the user knows.
	corrected map[*event.Probe]uint64
}

// watch reports new losses, and has totals corrected, once a second until ctx ends.
func (r *report) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.session.Correct(ctx)
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
	forks, err := skippedForks(r.session)
	if err != nil {
		return err
	}
	if forks != "" {
		lost = true
		r.note("%s", forks)
	}
	if r.strict && (lost || slices.ContainsFunc(losses, func(l probes.Losses) bool { return l.Lost()+l.Gaps > 0 })) {
		return errLost
	}
	return nil
}

// skippedForks says what --children may lack, or nothing.
func skippedForks(session *probes.Session) (string, error) {
	n, err := session.SkippedForks()
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("--children: the kernel did not tell of %s of any processes (another one was being told of on that CPU): events of what they started may be missing",
		plural(n, "fork")), nil
}

// tellIncomplete explains absent fields; as a rule such an event was in progress when tracing began.
func (r *report) tellIncomplete(l probes.Losses) {
	switch {
	case l.Unmatched > 0 && l.Unasked:
		r.note("%v: the beginning of %s was not seen; the filter asks for what it tells, like the latency, and so could not pass them",
			l.Probe, plural(l.Unmatched, "event"))
	case l.Unmatched > 0:
		r.note("%v: the beginning of %s was not seen; what it tells, like the latency, is absent", l.Probe, plural(l.Unmatched, "event"))
	}
	if l.InFlightFull > 0 {
		r.note("%v: too much in progress to remember the beginning of %s", l.Probe, plural(l.InFlightFull, "event"))
	}
	if l.MissedBeginnings > 0 {
		r.note("%v: the kernel skipped the beginning of %s (the program was already running on that CPU)", l.Probe, plural(l.MissedBeginnings, "event"))
	}
}

// tellLosses prints a line for every probe that has lost more events than the user knows of.
func (r *report) tellLosses(losses []probes.Losses) {
	for _, note := range r.session.Notes() {
		r.note("%s", note)
	}
	if r.told == nil {
		r.told, r.corrected = map[*event.Probe]uint64{}, map[*event.Probe]uint64{}
	}
	for _, l := range losses {
		if l.Corrected > r.corrected[l.Probe] {
			r.corrected[l.Probe] = l.Corrected
			r.note("%v: %s corrected by the kernel's own list (%s skipped)", l.Probe, plural(l.Corrected, "object"), eventsWere(l.Corrected))
		}
		if lost := l.Lost(); lost > r.told[l.Probe] {
			r.told[l.Probe] = lost
			r.note("%s", lossLine(l))
		}
	}
}

func eventsWere(n uint64) string {
	if n == 1 {
		return "its event was"
	}
	return "their events were"
}

// lossLine says how many events of a probe were lost, and where.
func lossLine(l probes.Losses) string {
	var reasons []string
	for _, r := range []struct {
		n    uint64
		text string
	}{
		{l.RingBuffer, "ring buffer full (raise --buffer-size)"},
		{l.Unseen, "whose beginning was not seen, before the filter could be asked"},
		{l.Missed, "skipped by the kernel before the filter could be asked (the program was already running on that CPU)"},
	} {
		if r.n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", r.n, r.text))
		}
	}
	of := ""
	// How many there were is known only if all of them passed the filter, and were sent to user space.
	if l.Lost() == l.RingBuffer {
		of = fmt.Sprintf(" of %d", l.Delivered+l.Lost())
	}
	return fmt.Sprintf("lost %d%s %v events: %s", l.Lost(), of, l.Probe, strings.Join(reasons, ", "))
}
