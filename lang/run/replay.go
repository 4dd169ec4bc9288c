package run

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
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
	"trace/probes/recording"
)

// Replay is a program for the events of recordings.
type Replay struct {
	options   Options
	recording *recording.Recording
	program   *ir.Program
	exec      *exec.Run
	printer   *output.Printer
	out       Outputs
	// now is the time in the recording, on the clock of nsecs. The live view also reads it.
	now atomic.Uint64
	// attached is when all probes were attached, or 0 if that has passed or is unknown.
	attached  uint64
	intervals []interval
	// began is when the play began, in real time.
	began   time.Time
	printed uint64
	// running is the program, once it runs.
	running atomic.Pointer[exec.Run]
	// played is the report of what was played so far, without the maps.
	played atomic.Pointer[Report]
}

// interval is an interval of the program, and when it is due next.
type interval struct {
	period time.Duration
	due    uint64
}

// OpenRecordings opens recordings. The catalog determines how their fields are shown.
func OpenRecordings(names ...string) (*recording.Recording, error) {
	rec, err := recording.Open(names...)
	if err != nil {
		return nil, err
	}
	if err := probes.Describe(rec.Probes()); err != nil {
		return nil, errors.Join(err, rec.Close())
	}
	return rec, nil
}

// NewReplay checks a program against the contents of recordings. The caller keeps and closes them.
func NewReplay(o Options, rec *recording.Recording) (*Replay, error) {
	if err := o.Filter.check(); err != nil {
		return nil, err
	}
	if o.Filter.Children {
		return nil, errors.New("--children: a recording does not have the tree of processes")
	}
	options := o.compile()
	var loading error
	options.Periods, options.Untraced = rec.Periods(), rec.Untraced()
	options.Rates, options.Known = rec.SampleRates(), func() []*event.Probe {
		catalog, err := probes.Load()
		if loading = err; err != nil {
			return nil
		}
		return catalog.Probes()
	}
	program, err := lang.Compile(o.Name, o.Text, rec.Probes(), options)
	if loading != nil {
		return nil, loading
	}
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(o.Filter.checkProbes(program), program.Untried()); err != nil {
		return nil, err
	}
	r := &Replay{options: o, recording: rec, program: program}
	r.now.Store(rec.Started())
	return r, nil
}

// Program returns the compiled program.
func (p *Replay) Program() *ir.Program { return p.program }

// Check returns what is wrong with the program that only its division between the kernel and user space shows.
func (p *Replay) Check() error {
	_, err := p.plan()
	return err
}

// Run runs the program on all events. Events before an error count, and the maps are printed in any case. With an error it also
// returns how far the run got, unless that is nil.
func (p *Replay) Run(ctx context.Context, out Outputs) (*Ended, error) {
	out = out.orDiscard(ctx)
	p.out = out
	defer context.AfterFunc(ctx, p.recording.Interrupt)()
	defer noteLeft(ctx, ctx, out.Note, p.whatIsLeft)()
	plan, err := p.plan()
	if err != nil {
		return nil, err
	}
	p.printer = out.printer(p.options.Format, p.recording.WallClock())
	p.printer.Show(p.options.Columns, p.program.Printed(), p.program.Raw)
	p.exec, err = lang.Start(plan, exec.Options{Sink: out.Sink(p.printer), Unshown: out.unshown(), Now: p.now.Load, Count: p.options.Count, Context: ctx, Cut: out.Cut, Unnamed: out.Unnamed, Warn: out.message})
	if err != nil {
		return nil, err
	}
	p.running.Store(p.exec)
	report := Report{Began: p.clock(p.now.Load())}
	out.Document.Begin(p.exec, report.Began)
	err = errors.Join(unlessEnough(p.run(ctx)), unlessEnough(p.printer.End()))
	report.Ended = p.clock(p.now.Load())
	p.describe(&report)
	return &Ended{Run: p.exec, printer: p.printer, Report: report}, errors.Join(err, report.addMaps(p.exec))
}

// soFar returns the report up to the last part of the recordings that was played.
func (p *Replay) soFar() (r Report, err error) {
	if played := p.played.Load(); played != nil {
		r = *played
	}
	return r, r.addMaps(p.exec)
}

// whatIsLeft returns what the play has to do, once it was interrupted: nothing more is read.
func (p *Replay) whatIsLeft() (left Left) {
	if run := p.running.Load(); run != nil {
		left.Clause, left.Busy = run.Busy()
	}
	return left
}

// plan places the whole program in user space.
func (p *Replay) plan() (*plan.Plan, error) {
	o := plan.Options{
		Recorded: true, Cleared: p.options.Cleared, MapKeys: p.options.MapKeys, Started: p.recording.Started(), CPUs: 1, Columns: p.options.Columns,
	}
	if p.recording.WithoutStacks() == "" {
		o.RecordedStack = p.recording.Stack
	}
	return lang.Prepare(p.program, o)
}

// run plays everything.
func (p *Replay) run(ctx context.Context) error {
	p.began = time.Now()
	if err := errors.Join(p.out.Data.begin(), p.printer.Begin(), p.exec.Begin()); err != nil {
		return err
	}
	p.out.Started(Running{p.exec, p.clock(p.now.Load()), p.soFar, nil})
	ctx, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { showMaps(ctx, stop, p.exec, p.printer, p.out) })
	defer shown.Wait()
	defer stop()
	p.attached = p.recording.Attached()
	for _, period := range p.exec.Intervals() {
		if !slices.Contains(p.recording.Intervals(), period) { // otherwise its moments are among the events
			p.intervals = append(p.intervals, interval{period, p.now.Load() + uint64(period)})
		}
	}
	err := p.watched(ctx, p.playToEnd)
	if errors.Is(err, ErrEnough) {
		err = nil
	}
	return errors.Join(err, p.writeLost(), p.exec.End())
}

// writeLost writes how many events the recordings lack to the data.
func (p *Replay) writeLost() error {
	var lost uint64
	for _, info := range p.recording.Info() {
		for _, l := range info.Losses {
			lost += l.Lost
		}
	}
	m := messages{exec: p.exec, printers: []*output.Printer{p.printer}}
	return m.losing(lost)
}

// playToEnd plays the events, then the time until the end of the recording.
func (p *Replay) playToEnd(ctx context.Context) error {
	err := p.play(ctx)
	if unlessEnough(err) != nil || ctx.Err() != nil {
		return err
	}
	if err != nil || p.exec.Stopped() {
		p.intervals = nil // -n or exit() was the end of the run
		if !p.nothingLeft() {
			return err
		}
	}
	_, passErr := p.passTime(ctx, p.recording.Ended())
	return errors.Join(err, passErr)
}

// nothingLeft reports whether the recording has no more events: it then ended for the same reason as its replay.
func (p *Replay) nothingLeft() bool {
	_, err := p.recording.Next()
	return err == io.EOF
}

// clock returns the time of day of a moment of the recording.
func (p *Replay) clock(nsecs uint64) time.Time {
	return p.recording.WallClock().Time(nsecs)
}

// describe notes where the events come from, and what happened to them.
func (p *Replay) describe(r *Report) {
	r.Recordings = p.recording.Info()
	var hosts, kernels []string
	events, lost := map[string]uint64{}, map[string]uint64{}
	for _, info := range r.Recordings {
		if !slices.Contains(hosts, info.Host) {
			hosts, kernels = append(hosts, info.Host), append(kernels, info.Kernel)
		}
		for name, n := range info.Events {
			events[name] += n
		}
		for _, l := range info.Losses {
			lost[l.Probe] += l.Lost
		}
	}
	r.Host, r.Kernel = strings.Join(hosts, ", "), strings.Join(kernels, ", ")
	var names []string
	for _, c := range p.program.Clauses {
		for _, probe := range c.Probes {
			if slices.Contains(p.recording.Probes(), probe) { // others are those that the program can do without
				names = append(names, probe.String())
			}
		}
		for _, l := range c.LeftOut {
			left := recording.LeftOut{Probes: []string{l.Probe.String()}, Why: l.Why}
			if !slices.ContainsFunc(r.LeftOut, func(o recording.LeftOut) bool { return o.String() == left.String() }) {
				r.LeftOut = append(r.LeftOut, left)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		r.Probes = append(r.Probes, Probe{
			Name: name, Variant: "recorded", Events: events[name], Delivered: events[name], Rejected: p.rejectedOf(name), Counted: true, Lost: lost[name],
		})
	}
	played := *r
	p.played.Store(&played)
}

// rejectedOf returns how many events of a probe no clause wanted.
func (p *Replay) rejectedOf(name string) (n uint64) {
	for _, probe := range p.recording.Probes() {
		if probe.String() == name {
			n += p.exec.Rejected(probe)
		}
	}
	return n
}

// watched plays while the view shows the maps, if there is one.
func (p *Replay) watched(ctx context.Context, play func(context.Context) error) error {
	if p.out.View == nil {
		return play(ctx)
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.out.View.Show(ctx, p.exec, p.viewTime, end) })
	err := play(ctx)
	if unlessEnough(err) == nil {
		p.out.View.Rest(ctx) // a replay may take less time than a look at it
	}
	end()
	wg.Wait()
	return err
}

// viewTime returns the time of the recording, which also passes between events. At full speed it does not.
func (p *Replay) viewTime() time.Time {
	if p.options.Speed == 0 {
		return p.clock(p.now.Load())
	}
	return p.clock(p.recording.Started() + uint64(float64(time.Since(p.began))*p.options.Speed))
}

// play runs the program on the events until there are no more.
func (p *Replay) play(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%1024 == 0 {
			done, all := p.recording.Read()
			p.out.Note(Playing{n, done, all})
			p.describe(&Report{})
		}
		if p.exec.Stopped() || ctx.Err() != nil {
			return nil
		}
		item, err := p.recording.Next()
		if err != nil {
			if err == io.EOF || ctx.Err() != nil {
				return nil // an interrupt ends the wait for more events
			}
			return err
		}
		if goesOn, err := p.passTime(ctx, item.Time); err != nil || !goesOn {
			return err
		}
		if item.Event == nil {
			p.out.Document.BeforeInterval(p.clock(p.now.Load()))
			if err := p.exec.Interval(item.Interval, item.Time); err != nil {
				return err
			}
			continue
		}
		if err := p.exec.Replay(item.Event, p.countPrinted); err != nil {
			return err
		}
	}
}

// countPrinted counts an event that was printed. A run that had printed enough handled what had arrived by then, and so does a replay of its recording.
func (p *Replay) countPrinted() error {
	p.printed++
	if p.printed != p.options.Count {
		return nil
	}
	if p.recording.Count() == p.options.Count {
		p.intervals = nil // the run was over
		return nil
	}
	return ErrEnough
}

// passTime lets the time pass until until, and runs the intervals that become due. It returns false if ctx or the program ended
// first.
func (p *Replay) passTime(ctx context.Context, until uint64) (goesOn bool, err error) {
	for {
		next := -1
		for i, v := range p.intervals {
			if v.due <= until && (next < 0 || v.due < p.intervals[next].due) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		if err := p.runInterval(ctx, next); err != nil || ctx.Err() != nil || p.exec.Stopped() {
			return false, err
		}
	}
	if until > p.now.Load() {
		if !p.wait(ctx, until) {
			return false, nil
		}
		p.out.Document.PassTo(p.clock(until))
		p.now.Store(until)
	}
	return true, p.attach(until)
}

// runInterval runs an interval when it is due, unless ctx ends first.
func (p *Replay) runInterval(ctx context.Context, i int) error {
	v := p.intervals[i]
	if !p.wait(ctx, v.due) || ctx.Err() != nil {
		return nil
	}
	if err := p.attach(v.due); err != nil {
		return err
	}
	p.now.Store(v.due)
	p.out.Document.BeforeInterval(p.clock(v.due))
	if p.intervals[i].due += uint64(v.period); p.intervals[i].due < v.due { // the largest nsecs
		p.intervals = slices.Delete(p.intervals, i, i+1)
	}
	return p.exec.Interval(v.period, v.due)
}

// attach notifies the program that all probes are attached, once that moment has passed.
func (p *Replay) attach(now uint64) error {
	if p.attached == 0 || now < p.attached {
		return nil
	}
	attached := p.attached
	p.attached = 0
	return p.exec.Attached(attached)
}

// wait waits for a moment of the recording, if it is played at a speed. It returns false if ctx ended first: now is then how far
// the play got.
func (p *Replay) wait(ctx context.Context, moment uint64) bool {
	if p.options.Speed == 0 || moment <= p.now.Load() {
		return true
	}
	since := time.Duration(float64(moment-p.recording.Started()) / p.options.Speed)
	left := since - time.Since(p.began)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		reached := p.recording.Started() + uint64(float64(time.Since(p.began))*p.options.Speed)
		p.now.Store(max(p.now.Load(), min(reached, moment)))
		return false
	case <-timer.C:
		return true
	}
}
