//go:build linux

package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"trace/lang"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/symbols"
)

// Live is a program for the events of this machine.
type Live struct {
	options Options
	program *ir.Program
	catalog *probes.Catalog
	host    *probes.Host
	plan    *plan.Plan
	exec    *exec.Run
	out     Outputs
	// left is what the end of the run waits for.
	left struct {
		exec    atomic.Pointer[exec.Run]
		session atomic.Pointer[probes.Session]
	}
	// interrupted ends when the user interrupts the run.
	interrupted context.Context
	// messages are written among the data.
	messages messages
	report   Report
	// over reports that the report is complete, and the session closed.
	over    bool
	ending  sync.Mutex      // guards over, and the report then
	session *probes.Session // nil until it is attached
	// collects lets the collector of garbage run as usual.
	collects func()
	// child is the command, nil without one.
	child   *child
	own     int    // the id of this process; 0 before it runs
	started uint64 // on the clock of nsecs
	// attached is when the last probe was attached, on the clock of nsecs.
	attached uint64
	ended    uint64 // the same; 0 until the end
	wall     *event.WallClock
	printed  map[*event.Probe]uint64
	// below is the id of the cgroup of the filter.
	below uint64
	// recorder, if not nil, keeps the events in a file.
	recorder *recorder
	// printer prints the program's output, and shadow the output of the second run of a comparison.
	printer, shadow *output.Printer
	// first and second are the outputs of the two runs of a comparison.
	first, second bytes.Buffer
}

// NewLive checks a program against the groups of the catalog that it names, because reading the others would take most of the
// start. If that fails, it checks against all groups, which error messages need.
func NewLive(o Options) (*Live, error) {
	if err := o.Filter.check(); err != nil {
		return nil, err
	}
	if groups := lang.Groups(o.Text); groups != nil {
		if l, err := newLive(o, groups); err == nil {
			return l, nil
		}
	}
	return newLive(o, nil)
}

func newLive(o Options, groups []string) (*Live, error) {
	catalog, err := probes.Load(groups...)
	if err != nil {
		return nil, err
	}
	options := o.compile()
	options.CPUs, options.Clocks = possibleCPUs(), clocks()
	options.Filter = o.Filter.unlessKept(options.Filter)
	options.WithoutSelf, options.Waiting = o.leavesOutSelf(), waitingName
	program, err := lang.Compile(o.Name, o.Text, catalog.Probes(), options)
	if err != nil {
		return nil, err
	}
	if err := o.Filter.checkProbes(program); err != nil {
		return nil, err
	}
	return &Live{options: o, program: program, catalog: catalog}, program.Untried()
}

// Program returns the compiled program.
func (l *Live) Program() *ir.Program { return l.program }

// Explain writes what would run where, and why.
func (l *Live) Explain(w io.Writer) error {
	if err := l.prepare(); err != nil {
		return err
	}
	return l.plan.Explain(w, l.attachment)
}

// DumpCode writes the code for the kernel.
func (l *Live) DumpCode(w io.Writer) error {
	if err := l.prepare(); err != nil {
		return err
	}
	return l.plan.Dump(w)
}

// prepare plans the program for this host, without a command.
func (l *Live) prepare() error {
	if err := l.detect(); err != nil {
		return err
	}
	return l.divide(nil)
}

// detect finds out what this host has.
func (l *Live) detect() (err error) {
	l.started, l.wall = symbols.BootClock(), event.NewWallClock(setting().Boot)
	l.host, err = probes.Detect(l.catalog, probes.HostOptions{BTF: l.options.BTF})
	return err
}

// attachment describes how a request would be attached, and how its programs would keep beginnings.
func (l *Live) attachment(r probes.Request) (variant string, kept []probes.Kept) {
	name, why := l.host.VariantFor(r)
	if name == "" {
		return "not available: " + why, l.host.Kept(r)
	}
	return "by " + name, l.host.Kept(r)
}

// now returns the time for clauses that no event triggers. At the end it is the time of the end, which a recording also has.
func (l *Live) now() uint64 {
	if l.ended != 0 {
		return l.ended
	}
	return symbols.BootClock()
}

// divide plans the program between kernel and user space. rejected are probes whose generated code the kernel did not accept.
func (l *Live) divide(rejected map[*event.Probe]bool) (err error) {
	o := l.planOptions()
	o.Rejected, o.Questions, o.Alone, o.CompareExchange = rejected, l.host.AnswersQuestions, l.host.Alone, plan.CompareExchange
	l.plan, err = lang.Prepare(l.program, o)
	return err
}

// planOptions are the options that do not depend on the kernel.
func (l *Live) planOptions() plan.Options {
	o := l.options
	return plan.Options{
		Children: o.Filter.Children, Below: o.Filter.Cgroup, Command: l.child.pid(), Own: l.own, NoKernel: o.NoKernel, Compare: o.Compare, Counted: o.Counted, CountsFailures: o.CountsFailures,
		Record: l.keepsWanted(), RecordStacks: o.Record != nil && o.Record.Stacks, Cleared: o.Cleared, MapKeys: o.MapKeys, Started: l.started,
		Columns: o.Columns, StackLeft: l.catalog.StackLeft, CPUs: possibleCPUs(),
	}
}

// Check returns what is wrong with the program on every kernel, and only the division between the kernel and user space shows.
func (l *Live) Check() error {
	o, has := l.planOptions(), func() bool { return true }
	o.Questions, o.CompareExchange = has, has
	_, err := lang.Prepare(l.program, o)
	return err
}

// keepsWanted reports whether the run records the events that the program may want, besides running the program.
func (l *Live) keepsWanted() bool { return l.options.Record != nil && !l.options.Record.Only }

// Run attaches the probes and runs the program on their events until something ends it. With an error it also returns how far the
// run got, unless that is nil.
func (l *Live) Run(interrupted context.Context, out Outputs) (*Ended, error) {
	l.out, l.interrupted, l.own = out.orDiscard(interrupted), interrupted, os.Getpid()
	defer l.collectLess()()
	if l.options.Record != nil {
		l.recorder = &recorder{live: l, Record: *l.options.Record}
	}
	err := l.detect()
	if err == nil {
		err = l.run(interrupted)
	}
	if l.exec == nil {
		return nil, err
	}
	return &Ended{Run: l.exec, printer: l.printer, Report: l.report}, errors.Join(err, unlessEnough(l.printer.End()))
}

// run follows the program from its first clause to its last.
func (l *Live) run(interrupted context.Context) error {
	ctx, end := context.WithCancel(interrupted)
	defer end()
	defer noteLeft(interrupted, ctx, l.out.Note, l.whatIsLeft)()
	target, err := openProcess(l.options.Filter.PID)
	if err != nil {
		return err
	}
	defer target.close()
	if err := l.checkFilter(); err != nil {
		return err
	}
	if err := l.recorder.check(); err != nil {
		return err
	}
	if err := l.checkCommand(); err != nil {
		return err
	}
	if err := l.checkBurst(); err != nil {
		return err
	}
	if l.child, err = holdCommand(ctx, interrupted, l.options.Command, l.out); err != nil {
		return err
	}
	defer l.child.close()
	if err := l.divide(nil); err != nil {
		return err
	}
	if err := followWallClock(ctx, l.wall); err != nil {
		return err
	}
	if l.program.KeepsCgroups() || l.recorder != nil {
		if err := l.catalog.Cgroups().Watch(ctx); err != nil {
			l.out.Note(CgroupsUnwatched{err})
		}
	}
	l.child.waitNamed(ctx)
	l.out.Data.hold()
	session, err := l.attach(ctx)
	if ctx.Err() != nil && session == nil {
		return nil // interrupted before there were events
	}
	if err != nil {
		l.out.Data.drop()
		return err
	}
	l.out.Data.release()
	if l.options.DryRun {
		return session.Close()
	}
	if err := l.begin(ctx); err != nil {
		return errors.Join(err, session.Close())
	}
	l.left.session.Store(session)
	l.out.Started(Running{l.exec, time.Now(), func() (Report, error) { return l.soFar(session) }, rest{l, session}})
	err = l.follow(ctx, end, session, l.out.Data.waitClosed, target.wait, l.child.wait)
	return errors.Join(err, l.close(session))
}

// whatIsLeft returns what the run has to do, once it has ended.
func (l *Live) whatIsLeft() (left Left) {
	if run := l.left.exec.Load(); run != nil {
		left.Clause, left.Busy = run.Busy()
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	if session := l.left.session.Load(); session != nil && !l.over {
		left.Events, _ = session.Left() // it is only a note
	}
	return left
}

// soFar returns the report up to now, or the complete one once the run is over.
func (l *Live) soFar(session *probes.Session) (r Report, err error) {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.over {
		return l.report, nil
	}
	if r.Probes, err = l.counts(session); err != nil {
		return r, err
	}
	return r, errors.Join(r.addSkipped(session), r.addMaps(l.exec))
}

// close ends the session. The report is complete.
func (l *Live) close(session *probes.Session) error {
	l.ending.Lock()
	defer l.ending.Unlock()
	l.over, l.report.CommandFailed = true, l.child.hasFailed()
	return session.Close()
}

// checkCommand returns why events of the command could not be recognized here.
func (l *Live) checkCommand() error {
	switch {
	case l.options.Filter.Children:
		return hostPIDs("--children")
	case l.program.AsksForCommand():
		return hostPIDs("cpid")
	}
	return nil
}

// checkBurst marks what is seen a part of the time.
func (l *Live) checkBurst() error {
	if l.options.Burst == (Burst{}) {
		return nil
	}
	if l.options.Record != nil {
		return errors.New("--burst: a recording does not have which part of the time was seen, so a program that reads it would take a part for all")
	}
	traps := map[*event.Probe]bool{}
	for _, c := range l.program.Clauses {
		for _, p := range c.Probes {
			if l.host.IsTrap(p) {
				traps[p] = true
			}
		}
	}
	if len(traps) == 0 {
		return errors.New("--burst: no probe of the program is a trap in the traced program, like the probes of verbs: it would change nothing")
	}
	return l.program.Sample(func(p *event.Probe) bool { return traps[p] })
}

// begin starts what waited for the probes to be attached.
func (l *Live) begin(ctx context.Context) error {
	if err := errors.Join(l.out.Data.begin(), l.messages.each((*output.Printer).Begin)); err != nil {
		return err
	}
	if l.recorder != nil {
		if err := l.recorder.open(); err != nil {
			return err
		}
	}
	return l.child.start(ctx)
}

// nameHost notes that the events come from this machine.
func (r *Report) nameHost() (err error) {
	if r.Host, err = os.Hostname(); err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	r.Kernel, err = kernel.Version()
	return err
}

// counts returns the counts of the probes so far.
func (l *Live) counts(session *probes.Session) ([]Probe, error) {
	losses, err := session.Losses()
	if err != nil {
		return nil, err
	}
	variants := map[*event.Probe]string{}
	for _, a := range session.Attached() {
		variants[a.Probe] = a.Variant
	}
	all := make([]Probe, len(losses))
	for i, n := range losses {
		all[i] = Probe{
			Name: n.Probe.String(), Variant: variants[n.Probe], Events: n.Events, Rejected: n.Rejected + l.exec.Rejected(n.Probe),
			Counted: n.Counted, Delivered: n.Delivered, Undecoded: n.Undecoded, Unhandled: n.Unhandled, Lost: n.Lost(), RingFull: n.RingBuffer, Unseen: n.Unseen, Outside: n.Outside, Skipped: n.Missed, Cut: n.Cut, Late: n.Late,
			Unmatched: n.Unmatched, Unasked: n.Unasked, NoRoom: n.InFlightFull, SkippedBeginnings: n.MissedBeginnings, Overflowed: n.Overflowed,
			Corrected: n.Corrected, FailedReads: n.FailedReads, Gaps: n.Gaps, Runs: n.Runs, RunTime: n.RunTime,
		}
	}
	return all, nil
}
