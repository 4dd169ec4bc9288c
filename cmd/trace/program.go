package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/probes"
)

// runProgram compiles source, attaches its probes and prints their events until something ends it.
func runProgram(ctx context.Context, s streams, o options, source string) error {
	catalog, err := probes.Load()
	if err != nil {
		return err
	}
	program, err := lang.Compile("program", source, catalog.Probes())
	if err != nil {
		return programError{err}
	}
	if names := inferred(program); names != "" && !o.quiet {
		s.note("attaching %s", names)
	}
	host, err := probes.Detect(catalog, probes.HostOptions{BTF: o.btf})
	if err != nil {
		return err
	}
	out, err := openOutput(o.output, s.out)
	if err != nil {
		return err
	}
	t := &tracer{
		streams: s, options: o, program: program, host: host, out: out,
		printer: lang.NewPrinter(out, o.format.Format, bootTime()),
		tallies: newTallies(program),
	}
	err = t.run(ctx)
	if e := out.Close(); err == nil {
		err = unlessEnough(e)
	}
	return err
}

// inferred returns the names of the probes that the program does not name itself.
func inferred(program *lang.Program) string {
	var names []string
	for _, c := range program.Clauses() {
		if !c.Inferred {
			continue
		}
		for _, p := range c.Probes {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}

// tracer is one run of a program.
type tracer struct {
	streams
	options
	program *lang.Program
	host    *probes.Host
	out     *output
	printer *lang.Printer
	tallies map[*probes.Probe]*tally
	printed uint64
}

// tally counts what became of the events of one probe that came to user space.
type tally struct {
	printed, rejected uint64
	pid               *probes.Field
}

func newTallies(program *lang.Program) map[*probes.Probe]*tally {
	tallies := map[*probes.Probe]*tally{}
	for _, r := range program.Requests() {
		tallies[r.Probe] = &tally{pid: r.Probe.Field("pid")}
	}
	return tallies
}

// bootTime returns when the machine was booted, in the local time zone.
func bootTime() time.Time {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		panic(err) // every supported kernel has this clock
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

// run attaches the probes, prints events until something ends it, and reports what was lost.
func (t *tracer) run(ctx context.Context) error {
	ctx, release := catchSignals(ctx)
	defer release()
	ctx, end := context.WithCancel(ctx)
	defer end()
	child, err := newChild(ctx, t.streams, t.options)
	if err != nil {
		return err
	}
	target, err := openProcess(t.pid)
	if err != nil {
		return err
	}
	defer target.close()
	session, err := t.attach(ctx)
	if ctx.Err() != nil && session == nil {
		return nil // interrupted before there was anything to see
	}
	if err != nil {
		return err
	}
	err = child.start() // only now, so that its first system call is seen
	if err == nil {
		err = t.follow(ctx, end, session, t.out.waitClosed, target.wait, child.wait)
	}
	return errors.Join(err, session.Close())
}

// catchSignals ends the returned context at the first signal that asks the process to end; the second one kills it as usual.
// A write to a closed pipe becomes an error, so that the probes are detached in good order then, too.
func catchSignals(ctx context.Context) (context.Context, func()) {
	signals := []os.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) { // as under nohup
		signals = append(signals, unix.SIGHUP)
	}
	ctx, release := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, release)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	return ctx, func() {
		release()
		signal.Stop(broken)
	}
}

// attach attaches the probes and says which.
func (t *tracer) attach(ctx context.Context) (*probes.Session, error) {
	began := time.Now()
	session, err := probes.Attach(ctx, t.host, t.program.Requests(), probes.AttachOptions{RingBytes: int(t.bufferSize)})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	for _, err := range session.Skipped() {
		t.note("without %v", err)
	}
	if t.quiet {
		return session, nil
	}
	attached := session.Variants()
	fmt.Fprintf(t.err, "Attached %s (%s). Hit Ctrl-C to end.\n", plural(len(attached), "probe"), strings.Join(attached, ", "))
	if t.verbose {
		t.note("attaching took %d ms", took.Milliseconds())
		for _, err := range session.Refused() {
			t.note("not used: %v", err)
		}
	}
	return session, nil
}

func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// follow prints events until ctx ends or one of ends has waited for its event, then those that are still in the buffer.
func (t *tracer) follow(ctx context.Context, end func(), session *probes.Session, ends ...func(context.Context) bool) error {
	var wg sync.WaitGroup
	for _, wait := range ends {
		wg.Go(func() {
			if wait(ctx) {
				end()
			}
		})
	}
	if t.timeout > 0 {
		defer time.AfterFunc(t.timeout, end).Stop()
	}
	report := &report{tracer: t, session: session}
	wg.Go(func() { report.watch(ctx) })
	err := session.Read(ctx, t.event)
	losses, lossErr := session.Losses() // before the end of -n detaches: what is left unread then is not lost
	end()
	wg.Wait()
	t.out.flush() // data comes before the report; an error stays in the buffer for Close
	verdict := report.finish(losses)
	if err := errors.Join(unlessEnough(err), lossErr); err != nil {
		return err
	}
	return verdict
}

// errEnough ends the reading when -n events were printed.
var errEnough = errors.New("enough events")

// event prints an event once for each clause that it passes.
func (t *tracer) event(e *probes.Event) error {
	tally := t.tallies[e.Probe]
	before := tally.printed
	if t.pid == 0 || tally.isOf(e, t.pid) {
		for _, c := range t.program.Clauses() {
			if err := t.printIf(c, e, tally); err != nil {
				return err
			}
		}
	}
	if tally.printed == before {
		tally.rejected++
	}
	return nil
}

// printIf prints an event if it passes the clause.
func (t *tracer) printIf(c *lang.Clause, e *probes.Event, tally *tally) error {
	if pass, err := c.Match(e); !pass {
		return err
	}
	if err := t.printer.Event(e); err != nil {
		return err
	}
	tally.printed++
	t.printed++
	if t.printed == t.count {
		return errEnough
	}
	return nil
}

// isOf says whether e is an event of process pid.
func (t *tally) isOf(e *probes.Event, pid int) bool {
	v, ok := e.Get(t.pid)
	return ok && v == uint64(pid)
}

// unlessEnough is err, or nil if it says that there is nobody who wants more events.
func unlessEnough(err error) error {
	if errors.Is(err, errEnough) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}
