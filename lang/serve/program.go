//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"trace"
	"trace/lang/format"
	"trace/lang/metrics/family"
	"trace/lang/result"
	"trace/lang/serve/config"
	"trace/lang/syntax"
	"trace/scripts"
)

// program is a program of the configuration.
type program struct {
	spec     *config.Program
	compiled *trace.Program
	options  []trace.RunOption
	exporter *family.Exporter
	events   *events
	log      *slog.Logger
	// identity is all that the program's counts depend on.
	identity string
	// unshown is why maps of a script are neither metrics nor profiles.
	unshown error
	// told is what was logged last while it is not attached: it is not logged again after each attempt.
	told string

	mu  sync.Mutex
	run *trace.Run
	// err is why it is not attached.
	err error
	// old is what the program replaces. ended is closed when the program must end.
	old   *program
	ended chan struct{}

	// reading is the scrape that reads the maps, and failed counts those that could not.
	reading singleflight.Group
	failed  atomic.Uint64
}

// errStarting is why a program is not attached at first.
var errStarting = errors.New("it is being attached")

// errEnded is why a program is no longer attached.
var errEnded = errors.New("the service is ending")

// newProgram checks a program.
func newProgram(host *trace.Host, c *config.Config, spec *config.Program, log *slog.Logger) (*program, error) {
	text := spec.Text
	if spec.Script != "" {
		script, ok := scripts.Find(spec.Script)
		if !ok {
			return nil, fmt.Errorf("trace has no script %s: `trace scripts` lists them", spec.Script)
		}
		text = syntax.Text{Name: script.Name, Content: script.Text}
	}
	p := &program{spec: spec, log: log.With("program", spec.Name), err: errStarting, ended: make(chan struct{}), events: &events{program: spec.Name}}
	var err error
	if p.compiled, err = host.Compile(text.Name, text.Content, spec.Params); err != nil {
		return nil, err
	}
	p.options = append(optionsOf(c.Filter), trace.Exemplars(), trace.LeaveOut())
	if spec.Events != "" {
		p.options = append(p.options, trace.Records())
	}
	described := family.Config{Program: spec.Name, Series: spec.Series, Labels: c.Labels, Maps: map[string]family.MapConfig{}}
	for name, m := range spec.Maps {
		if !slices.Contains(p.compiled.Maps(), "@"+name) {
			return nil, fmt.Errorf("the program has no map @%s: its maps are %s", name, strings.Join(p.compiled.Maps(), ", "))
		}
		described.Maps[name] = family.MapConfig{Metric: m.Metric, Help: m.Help}
	}
	p.exporter = family.New(described)
	if err := errors.Join(p.compiled.Check(p.options...), p.checkMaps()); err != nil {
		return nil, err
	}
	canonical, err := syntax.Format(text.Name, text.Content)
	p.identity = fmt.Sprint(canonical, spec.Params, c.Filter, spec.Events, described.Series, described.Labels, described.Maps)
	return p, err
}

// optionsOf returns the options of a filter.
func optionsOf(f config.Filter) (all []trace.RunOption) {
	if f.PID != 0 {
		all = append(all, trace.PID(f.PID))
	}
	if f.Comm != "" {
		all = append(all, trace.Comm(f.Comm))
	}
	if f.Cgroup != "" {
		all = append(all, trace.CgroupPath(f.Cgroup))
	}
	if f.PGID != 0 {
		all = append(all, trace.PGID(f.PGID))
	}
	if f.PIDNS != 0 {
		all = append(all, trace.PIDNS(f.PIDNS))
	}
	return all
}

// keep runs the program until ctx ends, or until it is replaced or removed. again is how long it waits if it could not be attached:
// each time twice as long, up to ten times.
func (p *program) keep(ctx context.Context, again time.Duration) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-p.ended:
			stop()
		case <-ctx.Done():
		}
	}()
	for wait := again; ctx.Err() == nil; wait = min(2*wait, 10*again) {
		if p.once(ctx, again) {
			break
		}
		debug.FreeOSMemory() // what an attempt reads about the kernel
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		if err := p.finish(); err != nil {
			p.log.Error("at its end: " + err.Error())
		}
		p.run, p.err = nil, errEnded
	}
	if p.old != nil { // this one was never attached
		p.old.end()
	}
}

// finish detaches the program, and reads what it has counted since the last scrape.
func (p *program) finish() error {
	p.run.Stop() // Close returns its error, too
	_, err := p.exporter.Read(p.run.Snapshot)
	return errors.Join(err, p.run.Close())
}

// once attaches the program and waits for its end. It returns false if it could not be attached.
func (p *program) once(ctx context.Context, again time.Duration) bool {
	run, err := p.compiled.Start(ctx, p.options...)
	if p.set(run, err); err != nil {
		if ctx.Err() == nil {
			p.tell("cannot be attached: " + err.Error())
		}
		return false
	}
	p.log.Info("attached")
	if p.unshown != nil {
		p.log.Info("left out: " + p.unshown.Error())
	}
	if p.spec.Events != "" {
		go p.events.collect(ctx, run)
	}
	p.complete(ctx, run, again)
	<-run.Done()
	if ctx.Err() == nil { // its maps are still metrics
		p.log.Warn(endedByItself, "error", run.Wait())
		<-ctx.Done()
	}
	return true
}

// endedByItself describes a program that has.
const endedByItself = "it has ended by itself"

// over reports whether a run has ended by itself: its maps are still metrics, but they count no more.
func over(run *trace.Run) bool {
	select {
	case <-run.Done():
		return true
	default:
		return false
	}
}

// snapshot is what a run has counted. After its end, its probes are no longer attached.
func snapshot(run *trace.Run) (family.Snapshot, error) {
	s, err := run.Snapshot()
	for i := range s.Probes {
		if over(run) {
			s.Probes[i].Variant = ""
		}
	}
	return s, err
}

// tell logs why it is not as it should be, unless that was logged last: attempts go on for weeks.
func (p *program) tell(why string) {
	if why != p.told {
		p.told = why
		p.log.Error(why)
	}
}

// complete logs which probes a run goes on without, and attaches them as soon as that is possible, as when a module is loaded. Maps keep what they
// have: nothing is counted anew.
func (p *program) complete(ctx context.Context, run *trace.Run, again time.Duration) {
	var before []trace.Status
	for wait := again; ; wait = min(2*wait, 10*again) {
		left := run.LeftOut()
		for _, s := range without(left, before) {
			p.log.Warn("left out: " + s.Err.Error())
		}
		for _, s := range without(before, left) {
			p.log.Info("attached, too: " + s.Probe)
		}
		if before = left; len(left) == 0 {
			return
		}
		select {
		case <-run.Done():
			return
		case <-time.After(wait):
		}
		p.retry(ctx, run)
	}
}

func (p *program) retry(ctx context.Context, run *trace.Run) {
	if err := run.Retry(ctx); err != nil && ctx.Err() == nil {
		p.tell("what was left out cannot be tried again: " + err.Error())
	}
}

// without returns the probes that are not among others.
func without(all, others []trace.Status) []trace.Status {
	return slices.DeleteFunc(slices.Clone(all), func(s trace.Status) bool {
		return slices.ContainsFunc(others, func(o trace.Status) bool { return o.Probe == s.Probe })
	})
}

// checkMaps reports maps that can be neither metrics nor profiles, and a program that shows nothing. Nobody can change the scripts that come with
// trace: their maps are left out.
func (p *program) checkMaps() error {
	var mistakes []error
	tables := p.compiled.Tables()
	for _, t := range tables {
		if _, err := p.exporter.Metric(t); err != nil && !isProfile(t) {
			mistakes = append(mistakes, p.compiled.Mistake(t.Name, err.Error()))
		}
	}
	if p.spec.Script != "" {
		p.unshown, mistakes = errors.Join(mistakes...), nil
	}
	if len(tables) == 0 && p.spec.Events == "" {
		mistakes = append(mistakes, errors.New("the program has no map, and nobody gets what it prints: write a map like @ = count(), or events: otlp"))
	}
	return errors.Join(mistakes...)
}

// isProfile reports whether a map is shown as a profile.
func isProfile(t result.Table) bool {
	return t.Adds != result.NoAddend && slices.ContainsFunc(t.Key, func(c result.Column) bool { return c.Type.Kind == format.Stack })
}

// set takes over a run, and ends what the program replaces.
func (p *program) set(run *trace.Run, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err != nil {
		return
	}
	p.run = run
	if p.old != nil {
		p.old.end()
		p.old = nil
	}
}

// running returns the run of the program, or why it is not attached.
func (p *program) running() (*trace.Run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run, p.err
}

// active returns the program that counts: the one that this one replaces, as long as this one is not attached.
func (p *program) active() *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil && p.old != nil {
		return p.old.active()
	}
	return p
}

// replaces makes the program end another one once it is attached. What that one prints until then, and what waits, is sent with its own events.
func (p *program) replaces(old *program) { p.old, p.events = old, old.events }

// end ends the program for good.
func (p *program) end() { close(p.ended) }
