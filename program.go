package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/metrics/family"
	"trace/lang/output"
	"trace/lang/result"
	"trace/lang/run"
	"trace/lang/run/console"
	"trace/lang/syntax"
)

// Program is a program that was checked for a host. It can be started several times, also at once.
type Program struct {
	host    *Host
	options run.Options
	tables  []result.Table
	probes  []string
	text    syntax.Text
	uses    map[string]syntax.Span // the first one of each map
}

// Compile checks a program against the host's probes. name stands in its errors, and params are the values of its params, as they would be
// written on the command line. A mistake in the program is an [*Error].
func (h *Host) Compile(name, text string, params map[string]string) (*Program, error) {
	p := &Program{host: h, options: run.Options{Name: name, Text: text, Params: maps.Clone(params)}}
	r, err := h.prepare(p.options)
	if err != nil {
		return nil, err
	}
	p.describe(r.Program())
	return p, r.release()
}

// describe keeps what is asked of a program that was checked.
func (p *Program) describe(checked *ir.Program) {
	p.tables, p.text, p.uses = checked.Tables(), checked.Text, map[string]syntax.Span{}
	for _, m := range checked.Maps {
		p.uses[m.Name] = m.Span
	}
	for _, c := range checked.Clauses {
		for _, probe := range c.Probes {
			if name := probe.String(); !slices.Contains(p.probes, name) {
				p.probes = append(p.probes, name)
			}
		}
	}
	slices.Sort(p.probes)
}

// Check returns why [Program.Start] would refuse the program with these options on every machine, nil if it would not. What this machine lacks is no
// such reason. It needs no privileges, and loads nothing into the kernel.
func (p *Program) Check(o ...RunOption) error {
	_, r, err := p.prepare(o)
	if err != nil {
		return err
	}
	return errors.Join(r.Check(), r.release())
}

// Probes returns the names of the probes of all clauses, sorted.
func (p *Program) Probes() []string { return slices.Clone(p.probes) }

// Maps returns the names of the program's maps, with their @, in the order of their first use.
func (p *Program) Maps() []string {
	var names []string
	for _, t := range p.tables {
		names = append(names, t.Name)
	}
	return names
}

// Tables returns what the maps will be, without rows, for package trace/lang/metrics. Unlike the rest of this package it may change.
func (p *Program) Tables() []result.Table { return slices.Clone(p.tables) }

// Mistake returns a mistake about a map, whose name has its @, at the place of its first use. Unlike the rest of this package it may change.
func (p *Program) Mistake(name, msg string) *Error { return p.text.Error(p.uses[name], msg, "") }

// RunOption configures a run.
type RunOption func(*setting)

type setting struct {
	run.Options
	out     io.Writer // of Output
	records bool
}

// Buffer sets the size of the buffer from the kernel in bytes, a power of two; 4 MiB without it. A larger one loses fewer events.
func Buffer(bytes int) RunOption { return func(s *setting) { s.RingBytes = bytes } }

// MapSize gives each map room for n keys. Updates of keys without room are lost, and counted in [Losses].
func MapSize(n uint32) RunOption { return func(s *setting) { s.MapKeys = n } }

// PID leaves only the events of a process. The run ends with it.
func PID(pid int) RunOption { return func(s *setting) { s.Filter.PID = pid } }

// Children adds the events of the descendants of [PID], running or started later.
func Children() RunOption { return func(s *setting) { s.Filter.Children = true } }

// Comm leaves only the events of threads of that name.
func Comm(name string) RunOption { return func(s *setting) { s.Filter.Comm = name } }

// CgroupPath leaves only the events of a cgroup, whose path is as in /proc/PID/cgroup, and of the cgroups below it.
func CgroupPath(path string) RunOption { return func(s *setting) { s.Filter.Cgroup = path } }

// PGID leaves only the events of a process group.
func PGID(pgid int) RunOption { return func(s *setting) { s.Filter.PGID = pgid } }

// PIDNS leaves only the events of a pid namespace, given by its inode.
func PIDNS(inode uint32) RunOption { return func(s *setting) { s.Filter.PIDNS = inode } }

// Fields captures only these fields of the events that the program selects, in this order; all of them without it.
func Fields(names ...string) RunOption { return func(s *setting) { s.Columns.Names = names } }

// Records keeps what the program prints and selects for [Run.Records]. The run waits for whoever reads them: events that come meanwhile are lost
// once the buffer is full.
func Records() RunOption { return func(s *setting) { s.records = true } }

// Exemplars makes histograms keep which events their largest values came from, for package trace/lang/metrics. Each value then costs more:
// docs/cost.md has how much.
func Exemplars() RunOption { return func(s *setting) { s.Exemplars = true } }

// LeaveOut goes on without the probes that the machine lacks, or whose attaching its kernel refuses, if another one is left: [Run.LeftOut] returns
// them, and [Run.Retry] tries them again. A program whose config sets missing_probes decides itself.
func LeaveOut() RunOption { return func(s *setting) { s.Missing = ir.MissingUnlessAll } }

// Output writes what the program prints and selects to w, and at the end its maps, in a format that is made while the program runs: text, json, csv
// or perfetto.
func Output(w io.Writer, format string) RunOption {
	return func(s *setting) { s.out, s.Format = w, output.Format(format) }
}

// settingFor applies the options of a run.
func (p *Program) settingFor(o []RunOption) (setting, error) {
	s := setting{Options: p.options}
	s.Columns.All, s.Counted, s.Raw = true, true, true
	for _, set := range o {
		set(&s)
	}
	if s.out == nil {
		s.Hurry = true
		return s, nil
	}
	s.Raw = false
	f, err := output.ParseFormat(string(s.Format))
	if err == nil && f.AtEnd() {
		err = fmt.Errorf("output format %s is made of the maps at the end: use text, json, csv or perfetto", f)
	}
	columns := output.NewColumns(f, true, s.Columns.Names)
	s.Columns = columns
	return s, err
}

// Run is a program that runs. Its methods may be called from several goroutines.
type Run struct {
	running run.Running
	stop    context.CancelFunc
	over    chan struct{} // closed at the end
	records *queue        // nil without Records
	// ended and err are set before over is closed.
	ended *run.Ended
	err   error

	mu     sync.RWMutex // held while the maps are read
	closed bool
}

// unlessLeft leaves out what the end of a run still has to do: nobody at a keyboard reads it.
func unlessLeft(show func(run.Note)) func(run.Note) {
	return func(n run.Note) {
		if _, left := n.(run.Left); !left {
			show(n)
		}
	}
}

// endPatience is how long events that came before the end of a context are handled after it.
const endPatience = time.Second

// prepare checks the options of a run and the program with them.
func (p *Program) prepare(o []RunOption) (setting, runner, error) {
	s, err := p.settingFor(o)
	if err != nil {
		return s, runner{}, err
	}
	program, err := p.host.prepare(s.Options)
	if err == nil && s.Columns.Names != nil {
		if err = s.Columns.Check(program.Program().Printed()); err != nil {
			err = errors.Join(err, program.release())
		}
	}
	return s, program, err
}

// Start attaches the program, or begins to play the recording. Maps fill until [Run.Stop], until ctx ends, or until the recording ends. Events
// that have come by then are handled, after the end of ctx for a second: the rest is in [Run.Losses], as unhandled. It fails
// with [ErrPermission], [ErrModule] or [ErrUnsupported] if a probe cannot be attached. The caller closes the run.
func (p *Program) Start(ctx context.Context, o ...RunOption) (*Run, error) {
	s, program, err := p.prepare(o)
	if err != nil {
		return nil, err
	}
	cut, cutShort := context.WithCancel(context.Background())
	handled := context.AfterFunc(ctx, func() { time.AfterFunc(endPatience, cutShort) })
	ctx, stop := context.WithCancel(ctx)
	r := &Run{stop: stop, over: make(chan struct{})}
	if s.records {
		r.records = newQueue()
		context.AfterFunc(ctx, r.records.drain)
	}
	started, console := make(chan struct{}), p.host.notes()
	out := run.Outputs{
		Cut: cut, Note: unlessLeft(console.Show), Unshown: s.out == nil, Sink: func(printer exec.Sink) exec.Sink { return &recorder{printer, s.Columns, r.records, s.out != nil} },
		Started: func(running run.Running) { r.running = running; close(started) },
	}
	if s.out != nil {
		out.Data = run.NewStream(ctx, nil, s.out)
	}
	console.Warn(program.Program())
	go func() {
		defer handled()
		r.follow(ctx, program, out, console)
	}()
	select {
	case <-started:
	case <-r.over: // perhaps it started, too
		if r.running.Run == nil {
			return nil, cmp.Or(r.Close(), context.Cause(ctx)) // Close returns the error of the run
		}
	}
	return r, nil
}

// follow runs the program to its end.
func (r *Run) follow(ctx context.Context, program runner, out run.Outputs, console *console.Console) {
	defer close(r.over)
	defer r.stop()
	ended, err := program.Run(ctx, out)
	if out.Data != nil {
		err = errors.Join(err, out.Data.Close())
	}
	if ended != nil {
		console.Report(ended.Report)
	}
	r.ended, r.err = ended, errors.Join(err, program.release())
	r.records.end(r.err)
}

// Maps returns the names of the maps, with their @.
func (r *Run) Maps() []string { return r.running.Program().MapNames() }

// Columns returns the elements of the key of a map, none if it has only one value.
func (r *Run) Columns(name string) ([]Column, error) {
	t, err := r.table(name)
	columns := make([]Column, len(t.Key))
	for i, c := range t.Key {
		columns[i] = Column{c.Name}
	}
	return columns, err
}

// errClosed means that a run was closed.
var errClosed = errors.New("the run is closed: read maps before Close")

// read calls f while the maps and counts can be read.
func (r *Run) read(f func() error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return errClosed
	}
	defer r.records.letRead()()
	return f()
}

func (r *Run) table(name string) (t result.Table, err error) {
	err = r.read(func() (err error) {
		t, err = r.running.Table(name)
		return err
	})
	return t, err
}

// Rows returns what a map holds now, the rows with the largest values first. Counts of all CPUs are added. A failure to read it is the only
// thing that it yields.
//
// A value is a string, bool, int64, uint64, [time.Duration], [Bytes], [Name], [netip.Addr], [Cgroup] or [Stack], by its type and unit in the
// language; nil is an absent one.
func (r *Run) Rows(name string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		t, err := r.table(name)
		if err != nil {
			yield(Row{}, err)
			return
		}
		for _, row := range goRows(t) {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// Snapshot returns what all maps hold now, and what happened to the events, for package trace/lang/metrics. Unlike the rest of this package
// it may change.
func (r *Run) Snapshot() (family.Snapshot, error) {
	report, err := r.report()
	if err != nil {
		return family.Snapshot{}, err
	}
	s := family.Snapshot{Started: r.Started(), StacksLost: report.Stacks.Lost()}
	for _, u := range r.running.LeftOut() {
		s.LeftOut = append(s.LeftOut, u.Probe)
	}
	for _, p := range report.Probes {
		s.Probes = append(s.Probes, family.Probe{Name: p.Name, Variant: p.Variant, Seen: p.Events, Rejected: p.Rejected, Lost: lostOf(p).reasons(p.Undecoded), Runs: p.Runs, RunTime: p.RunTime})
	}
	for _, m := range report.Maps {
		s.Maps = append(s.Maps, family.MapLoss{Map: m.Map, Lost: []family.Loss{{Reason: "full", Count: m.Full}, {Reason: "busy", Count: m.Busy}, {Reason: "no_memory", Count: m.NoMemory}}})
	}
	err = r.read(func() (err error) {
		s.Tables, err = r.running.Unsorted()
		return err
	})
	return s, err
}

// LeftOut returns the probes that the run goes on without, each with the reason: see [LeaveOut]. Also without that option, these may be probes that
// only patterns match.
func (r *Run) LeftOut() (all []Status) {
	for _, u := range r.running.LeftOut() {
		all = append(all, Status{Probe: u.Probe, Err: u.Err})
	}
	return all
}

// Retry attaches the probes of [Run.LeftOut], as far as that is possible now: a module may have been loaded since. What is attached goes on without
// a loss.
func (r *Run) Retry(ctx context.Context) error { return r.running.Retry(ctx) }

// Profiles returns what the maps with stacks in their keys hold now. Unlike the rest of this package it may change.
func (r *Run) Profiles() ([]result.Profile, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, errClosed
	}
	return r.running.Profiles()
}

// Counted returns the same without names: samples have the numbers of their stacks, for [Run.Name].
func (r *Run) Counted() ([]result.Profile, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, errClosed
	}
	return r.running.Counted()
}

// Name adds the frames to the samples of [Run.Counted]. After the end of ctx the rest have what is mapped at their addresses.
func (r *Run) Name(ctx context.Context, all []result.Profile) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return errClosed
	}
	r.running.Name(ctx, all)
	return nil
}

// Done is closed when the run has ended: the recording has, ctx has, or the program has called exit().
func (r *Run) Done() <-chan struct{} { return r.over }

// Wait waits until the run has ended, and returns its error. A loss is no error.
func (r *Run) Wait() error {
	<-r.over
	return r.err
}

// Stop detaches the program, handles the events that have come, runs the end clauses, and returns the error of the run. The maps can still be
// read.
func (r *Run) Stop() error {
	r.stop()
	return r.Wait()
}

// Close stops the run and releases its maps.
func (r *Run) Close() error {
	err := r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.ended == nil {
		r.closed = true
		return err
	}
	r.closed = true
	return errors.Join(err, r.ended.Close())
}

// Started returns when the probes were attached, or when the recording began.
func (r *Run) Started() time.Time { return r.running.Began }
