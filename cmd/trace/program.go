//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/lang/output"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/symbols"
)

// runProgram compiles a program, attaches its probes and does with their events what it says, until something ends it.
func runProgram(ctx context.Context, s streams, o options, src source) error {
	program, catalog, err := compileLive(s, o, src)
	if err != nil || o.debug == "ast" {
		return err
	}
	if o.record != "" {
		if err := program.Recordable(); err != nil {
			return programError{err}
		}
	}
	t, err := newTracer(s, o, program, catalog)
	if err != nil {
		return err
	}
	if o.explain || o.debug != "" {
		return t.explainPlan()
	}
	if t.document, err = openDocument(s, o, src, program); err != nil {
		return err
	}
	if o.record != "" {
		t.recorder = &fileRecorder{tracer: t, path: o.record, source: src.recorded()}
	}
	ctx, release := catchSignals(ctx)
	defer release()
	file, err := openForWriting(ctx, o.output)
	if err != nil {
		return err
	}
	if t.live, err = openLive(s, o, src, program); err != nil {
		return err
	}
	defer t.live.Close()
	t.out = newStream(ctx, file, t.live.Through(s.out))
	t.err = t.live.Through(patiently(ctx, s.err))
	t.tellCgroups()
	return errors.Join(t.run(ctx), unlessEnough(t.out.Close()))
}

// explainPlan prints what would run.
func (t *tracer) explainPlan() error {
	if err := t.divide(nil); err != nil {
		return err
	}
	if t.debug == "bpf" {
		return t.plan.Dump(t.streams.out)
	}
	return t.plan.Explain(t.streams.out, t.variantOf)
}

// compileLive checks a program against the groups of the catalog that it names, since reading the others is most of a start, and
// against all if that has not been enough: then they are needed to say what is wrong.
func compileLive(s streams, o options, src source) (*lang.Program, *probes.Catalog, error) {
	if groups := lang.Groups(src.text); groups != nil {
		catalog, err := probes.Load(groups...)
		if err != nil {
			return nil, nil, err
		}
		if program, err := compile(s, o, src, catalog.Probes(), lang.Options{}); err == nil {
			return program, catalog, nil
		}
	}
	catalog, err := probes.Load()
	if err != nil {
		return nil, nil, err
	}
	program, err := compile(s, o, src, catalog.Probes(), lang.Options{})
	return program, catalog, err
}

// newTracer prepares a program for this host.
func newTracer(s streams, o options, program *lang.Program, catalog *probes.Catalog) (t *tracer, err error) {
	t = &tracer{streams: s, options: o, program: program, catalog: catalog, started: symbols.BootClock(), boot: bootTime()}
	t.host, err = probes.Detect(catalog, probes.HostOptions{BTF: o.btf})
	return t, err
}

// variantOf says how a request would be attached.
func (t *tracer) variantOf(r probes.Request) string {
	name, why := t.host.VariantFor(r)
	if name == "" {
		return "not available: " + why
	}
	return "by " + name
}

// tracer is one run of a program.
type tracer struct {
	streams
	options
	program *lang.Program
	catalog *probes.Catalog
	host    *probes.Host
	plan    *lang.Plan
	exec    *lang.Run
	out     *stream
	// child is the command of -c, nil without one.
	child   *child
	started uint64 // as nsecs tells it
	// attached is when the last probe was attached, as nsecs tells it.
	attached uint64
	ended    uint64 // likewise; 0 until the end
	boot     time.Time
	printed  map[*event.Probe]uint64
	total    uint64 // printed
	// live shows the maps, if it is not nil.
	live *output.Live
	// document is made at the end, if it is not nil.
	document *output.Document
	// began is when the probes were attached.
	began time.Time
	// recorder keeps the events in a file, if it is not nil: instead of printing them, or besides with --record.
	recorder *fileRecorder
	// first and second are what the two runs of --compare print.
	first, second bytes.Buffer
}

// now is the time for clauses that no event causes: at the end that of the end, which a recording has, too.
func (t *tracer) now() uint64 {
	if t.ended != 0 {
		return t.ended
	}
	return symbols.BootClock()
}

// bootTime returns when the machine was booted, in the local time zone.
func bootTime() time.Time { return time.Now().Add(-time.Duration(symbols.BootClock())) }

// divide plans the program between kernel and user space; rejected are probes for which the kernel did not take generated code.
func (t *tracer) divide(rejected map[*event.Probe]bool) (err error) {
	t.plan, err = lang.NewPlan(t.program, lang.PlanOptions{
		Children: t.children, Command: t.child.pid(), NoKernel: t.noKernel, Compare: t.compare, Counted: t.verbose || t.format.Counts(), Rejected: rejected, Record: t.record != "", RecordStacks: t.stacks, Cleared: t.options.live, MapEntries: t.mapSize, Started: t.started,
		Columns:   t.columns(),
		StackLeft: t.catalog.StackLeft, Alone: t.host.Alone, CompareExchange: lang.CompareExchange, CPUs: possibleCPUs(),
	})
	return err
}

// run attaches the probes, follows the program until something ends it, and reports what was lost.
func (t *tracer) run(interrupted context.Context) (err error) {
	ctx, end := context.WithCancel(interrupted)
	defer end()
	target, err := openProcess(t.pid)
	if err != nil {
		return err
	}
	defer target.close()
	if err := t.recorder.check(); err != nil {
		return err
	}
	if err := t.checkCommand(); err != nil {
		return err
	}
	if t.child, err = holdCommand(ctx, interrupted, t.streams, t.options); err != nil {
		return err
	}
	defer t.child.close()
	if err := t.divide(nil); err != nil {
		return err
	}
	if t.program.KeepsCgroups() || t.recorder != nil {
		if err := t.catalog.Cgroups().Watch(ctx); err != nil {
			t.note("%v: cgroups that end before they are printed may show as numbers", err)
		}
	}
	session, err := t.attach(ctx)
	if t.exec != nil {
		defer func() { err = errors.Join(err, keep(ctx, t.exec)) }()
	}
	if ctx.Err() != nil && session == nil {
		return nil // interrupted before there was anything to see
	}
	if err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return errors.Join(err, session.Close())
	}
	err = t.follow(ctx, end, session, t.out.waitClosed, target.wait, t.child.wait)
	return errors.Join(err, t.child.verdict(), session.Close())
}

// begin does what has waited for the probes to be attached.
func (t *tracer) begin(ctx context.Context) error {
	if err := t.out.begin(); err != nil {
		return err
	}
	if t.recorder != nil {
		if err := t.recorder.open(); err != nil {
			return err
		}
	}
	return t.child.start(ctx)
}

// attach runs the begin clauses, attaches the probes and says which. Clauses whose code the kernel rejects go on in user space, and
// the user is told.
func (t *tracer) attach(ctx context.Context) (*probes.Session, error) {
	began := time.Now()
	rejected := map[*event.Probe]bool{}
	for {
		session, err := t.tryAttach(ctx, len(rejected) > 0)
		var refusal *probes.RejectedError
		if !errors.As(err, &refusal) || rejected[refusal.Probe] {
			if err != nil {
				return session, err
			}
			t.tellAttached(session, time.Since(began))
			t.attached = t.now()
			t.host.Release()
			go debug.FreeOSMemory() // a run may last for weeks
			return session, t.exec.Attached(t.attached)
		}
		rejected[refusal.Probe] = true
		t.note("%s: the kernel rejected the code for %s, %s: it runs in user space instead (-v shows more)",
			refusal.Probe, strings.Join(t.clausesOf(refusal.Probe), ", "), whyRejected(refusal))
		if t.verbose {
			t.note("%+v", refusal.Err)
		}
		if err := errors.Join(t.exec.Close(), t.divide(rejected)); err != nil {
			return nil, err
		}
	}
}

// whyRejected tells a program that is too much for the verifier, which follows up to a million instructions on all paths together
// (kernel/bpf/verifier.c, BPF_COMPLEXITY_LIMIT_INSNS), from code that is wrong.
func whyRejected(err error) string {
	if errors.Is(err, unix.E2BIG) {
		return "which has too many paths for it to follow"
	}
	return "which is a bug in trace"
}

// clausesOf returns the clauses of a probe.
func (t *tracer) clausesOf(p *event.Probe) []string {
	var all []string
	for _, c := range t.program.Clauses() {
		for _, probe := range c.Probes {
			if probe == p {
				all = append(all, fmt.Sprintf("%q", c))
			}
		}
	}
	return all
}

// permitted says what is missing if the kernel refused a map or a program for want of privileges.
func (t *tracer) permitted(err error) error {
	var told *kernel.PermissionError
	if !errors.Is(err, unix.EPERM) || errors.As(err, &told) {
		return err
	}
	if denied := t.host.Denied(t.plan.Requests()); denied != nil {
		return denied
	}
	return err
}

// tryAttach attaches the plan at hand. The output of the begin clauses is not repeated when it is tried again.
func (t *tracer) tryAttach(ctx context.Context, again bool) (*probes.Session, error) {
	options := lang.RunOptions{Printer: t.printer(t.document.Through(t.out, t.err, t.live)), Now: t.now, Muted: again, Unshown: t.document != nil, Context: ctx}
	switch {
	case t.record != "":
		options.Record = t.recorder.event
	case t.recorder != nil:
		options.Keep = t.recorder.event
	}
	if t.compare {
		t.first.Reset()
		t.second.Reset()
		options.Printer = t.printer(io.MultiWriter(t.out, &t.first))
		options.Shadow = t.printer(&t.second)
	}
	err := checkMemory(t.plan.MapBytes())
	if err != nil {
		return nil, err
	}
	if err := probes.Available(t.host, t.plan.Requests()); err != nil { // before a begin clause prints anything
		return nil, err
	}
	if t.exec, err = t.plan.Start(options); err != nil {
		return nil, t.permitted(err)
	}
	if err := t.exec.Begin(); err != nil {
		return nil, err
	}
	told := newProgress(t.streams, t.options)
	defer told.clear()
	session, err := probes.Attach(ctx, t.host, t.plan.Requests(), probes.AttachOptions{
		RingBytes: int(t.bufferSize), Roots: t.roots(), Maps: t.exec.Maps(), Layouts: t.plan.Layouts(),
		Progress: func(done, all int) {
			told.tell(func(time.Duration) string { return fmt.Sprintf("attached %d of %d probes", done, all) })
		},
	})
	return session, t.permitted(err)
}

func (t *tracer) printer(w io.Writer) *output.Printer {
	return output.NewPrinter(w, t.format.Format, t.boot)
}

func (t *tracer) tellAttached(session *probes.Session, took time.Duration) {
	for _, err := range session.Skipped() {
		t.note("leaving out %s: %s", err.Names(), err.Reason)
	}
	if err := t.exec.StacksUnwatched(); err != nil {
		t.note("stacks of processes that have ended by then are printed without names: %v (it needs CAP_PERFMON, on Debian CAP_SYS_ADMIN)", err)
	}
	for _, note := range session.Notes() {
		t.note("%s", note)
	}
	if t.quiet || t.live != nil {
		return
	}
	if attached := session.Variants(); len(attached) > 0 {
		fmt.Fprintf(t.err, "Attached %s (%s). Hit Ctrl-C to end.\n", plural(len(attached), "probe"), strings.Join(attached, ", "))
	}
	if t.verbose {
		t.note("attaching took %d ms", took.Milliseconds())
		for _, err := range session.Refused() {
			t.note("not used: %v", err)
		}
	}
}

// follow does what the program says until ctx ends or one of ends has waited for its event, then with what is still in the buffer.
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
	t.began = time.Now()
	t.document.Begin(t.exec, t.began) // before an interval looks at it
	wg.Go(func() { t.document.Watch(ctx) })
	failed := make(chan error, 1)
	for _, period := range t.exec.Intervals() {
		wg.Go(func() { t.tick(ctx, end, session, period, failed) })
	}
	report := &report{tracer: t, session: session}
	wg.Go(func() { report.watch(ctx) })
	wg.Go(func() { printMaps(ctx, t.streams, t.exec, t.out) })
	if t.recorder != nil {
		wg.Go(func() { t.recorder.keepUp(ctx) })
	}
	if t.live != nil {
		wg.Go(func() { t.live.Show(ctx, t.exec, time.Now, end) })
	}
	t.printed = map[*event.Probe]uint64{}
	if t.exec.Stopped() || !t.waits() { // exit() in a begin clause, or there are no others
		end()
	}
	err := session.Read(ctx, t.event)
	losses, lossErr := session.Losses() // before the end of -n detaches: what is left unread then is not lost
	end()
	wg.Wait()
	t.live.Close()
	select {
	case e := <-failed:
		err = errors.Join(unlessEnough(err), unlessEnough(e))
	default:
	}
	if unlessEnough(err) == nil {
		err = session.Detach()
		t.ended = symbols.BootClock()
		// The end clauses and the last maps see what was counted until no program runs any more.
		err = errors.Join(err, t.exec.End(), t.writeDocument(session, losses))
	}
	t.tellChangedCgroups()
	t.out.flush() // data comes before the report; an error stays in the buffer for Close
	verdict := report.finish(losses)
	if t.recorder != nil {
		err = errors.Join(err, t.recorder.finish(losses))
	}
	if err := errors.Join(unlessEnough(err), lossErr); err != nil {
		return err
	}
	return errors.Join(t.difference(losses), asked(t.exec), verdict)
}

// waits tells whether there is anything to wait for: a program of begin and end alone ends by itself, as in bpftrace.
func (t *tracer) waits() bool { return t.program.Waits() || len(t.command) > 0 || t.pid != 0 }

// writeDocument writes what is made at the end.
func (t *tracer) writeDocument(session *probes.Session, losses []probes.Losses) error {
	if t.document == nil {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	version, err := kernel.Version()
	if err != nil {
		return err
	}
	f := output.Facts{Host: host, Kernel: version, Began: t.began, Ended: time.Now()}
	variants := map[string]string{}
	for _, attached := range session.Variants() {
		name, variant, _ := strings.Cut(attached, " ")
		variants[name] = variant
	}
	for _, l := range losses {
		p := output.ProbeFact{Name: l.Probe.String(), Variant: variants[l.Probe.String()], Events: max(l.Events, l.Delivered), Lost: l.Lost()}
		if l.Counted {
			rejected := l.Rejected + t.exec.Rejected(l.Probe)
			p.Events, p.Rejected = l.Events, &rejected
		}
		f.Probes = append(f.Probes, p)
		if l.Lost() > 0 {
			f.Losses = append(f.Losses, lossLine(l))
		}
	}
	lost, err := mapLossNotes(t.exec)
	if err != nil {
		return err
	}
	f.Losses = append(f.Losses, lost...)
	forks, err := skippedForks(session)
	if err != nil {
		return err
	}
	if forks != "" {
		f.Losses = append(f.Losses, forks)
	}
	return writeDocument(t.streams, t.document, t.exec, t.out, f)
}

// tick runs the clauses of an interval whenever they are due, until ctx ends.
func (t *tracer) tick(ctx context.Context, end func(), session *probes.Session, period time.Duration, failed chan<- error) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		session.Correct(ctx) // what is printed now is right
		t.document.BeforeInterval(time.Now())
		err := t.interval(period)
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		if err != nil || t.exec.Stopped() {
			end()
			return
		}
		t.out.flush()
	}
}

// interval runs the clauses of an interval, and records when.
func (t *tracer) interval(period time.Duration) error {
	at := symbols.BootClock()
	if t.recorder != nil {
		if err := t.recorder.interval(period, at); err != nil {
			return err
		}
	}
	return t.exec.Interval(period, at)
}

// event does what is left to do for an event.
func (t *tracer) event(e *event.Event) error {
	printed, err := t.exec.Event(e)
	if err != nil {
		return err
	}
	if printed {
		t.printed[e.Probe]++
		t.total++
	}
	if t.total == t.count && printed || t.exec.Stopped() {
		return errEnough
	}
	return nil
}

// difference is the outcome of --compare: an error if the two runs printed different things. They do if one of them lost events that
// the other one saw.
func (t *tracer) difference(losses []probes.Losses) error {
	if !t.compare || bytes.Equal(t.first.Bytes(), t.second.Bytes()) {
		return nil
	}
	var lost uint64
	for _, l := range losses {
		lost += l.RingBuffer
	}
	if lost > 0 {
		return fmt.Errorf("the engines cannot be compared: %s did not reach user space, so that what they print differs; "+
			"raise --buffer-size, or trace fewer events", plural(lost, "event"))
	}
	maps, err := t.exec.MapLosses()
	if err != nil {
		return err
	}
	for _, l := range maps {
		if l.Lost() > 0 {
			return fmt.Errorf("the engines cannot be compared: %s lost %s, and each engine others, so that what they print differs", l.Map, plural(l.Lost(), "update"))
		}
	}
	return fmt.Errorf("the engines differ, which is a bug in trace, unless the program calls time() at an event; "+
		"the second run, all of it in user space, printed:\n%s", t.second.Bytes())
}
