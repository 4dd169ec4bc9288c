//go:build linux

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"trace/lang/exec"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/symbols"
)

// follow runs the program on events until ctx ends or one of ends returns, then on the events still in the buffer.
func (l *Live) follow(ctx context.Context, end func(), session *probes.Session, ends ...func(context.Context) bool) error {
	var besides sync.WaitGroup
	for _, wait := range ends {
		besides.Go(func() {
			if wait(ctx) {
				end()
			}
		})
	}
	if l.options.Timeout > 0 {
		defer time.AfterFunc(l.options.Timeout, end).Stop()
	}
	failed := make(chan error, 1)
	l.startBesides(ctx, end, &besides, session, failed)
	l.printed = map[*event.Probe]uint64{}
	if l.exec.Stopped() || !l.waits() { // exit() in a begin clause, or a program of begin and end alone
		end()
	}
	unwatch := l.watch(ctx, end, session)
	err := session.Read(ctx, func(e *event.Event) error { return l.event(e, end) })
	unwatch()                            // it must not report more losses than the last counts have
	counts, lossErr := l.counts(session) // before the end of exit() detaches: records left unread then are not lost
	end()
	besides.Wait()
	select {
	case e := <-failed:
		err = errors.Join(unlessEnough(err), unlessEnough(e))
	default:
	}
	err = errors.Join(unlessEnough(err), l.messages.losing(lostOf(counts)))
	return errors.Join(l.end(session, counts, err), lossErr)
}

// startBesides starts everything that runs beside the events, until ctx ends.
func (l *Live) startBesides(ctx context.Context, end func(), besides *sync.WaitGroup, session *probes.Session, failed chan<- error) {
	l.report.Began = time.Now()
	l.out.Document.Begin(l.exec, l.report.Began) // before an interval reads it
	besides.Go(func() { l.out.Document.Watch(ctx) })
	for _, period := range l.exec.Intervals() {
		besides.Go(func() { l.tick(ctx, end, session, period, failed) })
	}
	besides.Go(func() { showMaps(ctx, end, l.exec, l.printer, l.out) })
	if l.recorder != nil {
		besides.Go(func() { l.recorder.keepUp(ctx) })
	}
	if l.out.View != nil {
		besides.Go(func() { l.out.View.Show(ctx, l.exec, time.Now, end) })
	}
}

// end runs the end clauses, unless something has failed, and completes the report.
func (l *Live) end(session *probes.Session, counts []Probe, err error) error {
	if err == nil {
		err = session.Detach()
		l.ended = symbols.BootClock()
		l.report.Ended = time.Now()
		// The end clauses and the last maps include what was counted until the last BPF program ended.
		err = errors.Join(err, unlessEnough(l.exec.End()))
	}
	reported := l.complete(session, counts)
	if l.recorder != nil {
		reported = errors.Join(reported, l.recorder.finish(counts))
	}
	if err := errors.Join(err, reported); err != nil {
		return err
	}
	return l.difference()
}

// complete adds the totals of the run to the report.
func (l *Live) complete(session *probes.Session, counts []Probe) error {
	r := &l.report
	for i, p := range counts {
		counts[i].Printed = l.printedOf(p.Name)
	}
	if l.options.Burst != (Burst{}) {
		r.Share, _ = session.Share(0, l.now())
	}
	r.Probes, r.Missing, r.RemadeCgroups = counts, session.Notes(), l.remadeCgroups()
	return errors.Join(r.addSkipped(session), r.addMaps(l.exec), r.nameHost())
}

// addSkipped adds what the kernel did not report of any task and cgroup.
func (r *Report) addSkipped(session *probes.Session) (err error) {
	if r.SkippedForks, err = session.SkippedForks(); err != nil {
		return err
	}
	r.SkippedCgroups, err = session.SkippedCgroups()
	return err
}

func (l *Live) printedOf(probe string) uint64 {
	for p, n := range l.printed {
		if p.String() == probe {
			return n
		}
	}
	return 0
}

// remadeCgroups returns the cgroups of the program that were created anew during the run. The new one has another id, so its events
// were not matched. This is a loss, so it is always reported.
func (l *Live) remadeCgroups() []string {
	var all []string
	for _, path := range l.program.CgroupPaths() {
		id, ok := l.program.CgroupID(path)
		if now, there := l.catalog.Cgroups().ID(path); ok && there && now != id {
			all = append(all, path)
		}
	}
	path := l.options.Filter.Cgroup
	if path == "" || slices.Contains(all, path) {
		return all
	}
	if now, there := l.catalog.Cgroups().ID(path); there && now != l.below {
		all = append(all, path)
	}
	return all
}

// waits reports whether there is anything to wait for. A program of begin and end alone ends by itself, as in bpftrace.
func (l *Live) waits() bool {
	return l.program.Waits() || len(l.options.Command) > 0 || l.options.Filter.PID != 0
}

// watch notes the counts and corrects totals, once a second until stop is called or ctx ends. It calls end after an exit() in the kernel.
func (l *Live) watch(ctx context.Context, end func(), session *probes.Session) (stop func()) {
	ctx, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		everySecond(ctx, func() {
			session.Correct(ctx)
			if counts, err := l.counts(session); err == nil && ctx.Err() == nil { // otherwise the end returns the error, or has more
				l.out.Note(Counts{counts, session.Notes()})
				l.messages.losing(lostOf(counts)) // the stream keeps the error
			}
			if stopped, err := l.exec.StoppedInKernel(); stopped && err == nil { // otherwise the record of exit() may end it
				end()
			}
		})
	})
	return func() {
		unwatch()
		watching.Wait()
	}
}

// tick runs the clauses of an interval whenever they are due, until ctx ends.
func (l *Live) tick(ctx context.Context, end func(), session *probes.Session, period time.Duration, failed chan<- error) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ctx.Err() != nil { // if the run ended while the clauses ran, both cases are ready, and select chooses at random
			return
		}
		session.Correct(ctx) // so that the interval prints correct totals
		l.out.Document.BeforeInterval(time.Now())
		err := l.interval(period)
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		if err != nil || l.exec.Stopped() {
			end()
			return
		}
		l.out.Data.Flush()
	}
}

// interval runs the clauses of an interval, and records the time.
func (l *Live) interval(period time.Duration) error {
	at := symbols.BootClock()
	if l.recorder != nil {
		if err := l.recorder.interval(period, at); err != nil {
			return err
		}
	}
	return l.exec.Interval(period, at)
}

// event runs what is left of a site for an event. After the last event that is printed it calls end: those that have arrived by then are counted.
func (l *Live) event(e *event.Event, end func()) error {
	if l.out.Cut.Err() != nil {
		return probes.ErrUnhandled
	}
	printed, err := l.exec.Event(e)
	if errors.Is(err, exec.ErrCut) {
		return probes.ErrUnhandled
	}
	if printed && err == nil {
		l.printed[e.Probe]++
	}
	state := l.exec.State()
	switch {
	case state.Past:
		return cmp.Or(err, ErrEnough)
	case unlessEnough(err) != nil:
		return err
	case err != nil: // nobody takes what is printed
		l.exec.Mute()
		end()
	case state.Enough:
		end()
	}
	return nil
}

// difference returns the result of a comparison: an error if the two runs printed different lines. They also differ if one of them
// lost events that the other one saw. The order of lines may differ: each run has a record of its own of an event, and between the two
// records of one CPU there may be one of another CPU.
func (l *Live) difference() error {
	if !l.options.Compare || slices.Equal(sortedLines(l.first.Bytes()), sortedLines(l.second.Bytes())) {
		return nil
	}
	var lost uint64
	for _, p := range l.report.Probes {
		lost += p.RingFull + p.Unhandled
	}
	if lost > 0 {
		return fmt.Errorf("the engines cannot be compared: %s did not reach user space, so their output differs: "+
			"raise --buffer-size, or trace fewer events", counted(lost, "event"))
	}
	for _, m := range l.report.Maps {
		if m.Lost() > 0 {
			return fmt.Errorf("the engines cannot be compared: %s lost %s, not the same ones in each engine, so their output differs", m.Map, counted(m.Lost(), "update"))
		}
	}
	return fmt.Errorf("the engines differ, which is a bug in trace, unless the program calls time() at an event; "+
		"the second run, entirely in user space, printed:\n%s", l.second.Bytes())
}

func sortedLines(text []byte) []string { return slices.Sorted(strings.Lines(string(text))) }

func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
