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
	p.options = append(optionsOf(c.Filter), trace.Exemplars())
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
		if p.once(ctx) {
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
		p.run = nil
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
func (p *program) once(ctx context.Context) bool {
	run, err := p.compiled.Start(ctx, p.options...)
	if err == nil {
		err = p.check(run)
	}
	if p.set(run, err); err != nil {
		if ctx.Err() == nil {
			p.log.Error("cannot be attached: " + err.Error())
		}
		return false
	}
	p.log.Info("attached")
	if p.spec.Events != "" {
		go p.events.collect(ctx, run)
	}
	<-run.Done()
	if ctx.Err() == nil { // its maps are still metrics
		p.log.Warn("it has ended by itself", "error", run.Wait())
		<-ctx.Done()
	}
	return true
}

// check reports maps that can be neither metrics nor profiles. Nobody can change the scripts that come with trace: their maps are left out.
func (p *program) check(run *trace.Run) error {
	snapshot, err := run.Snapshot()
	if err == nil {
		isProfile := func(t result.Table) bool {
			return slices.ContainsFunc(t.Key, func(c result.Column) bool { return c.Type.Kind == format.Stack })
		}
		err = p.exporter.Check(slices.DeleteFunc(snapshot.Tables, isProfile))
		if err != nil && p.spec.Script != "" {
			p.log.Info("left out: " + err.Error())
			err = nil
		}
	}
	if err != nil {
		err = errors.Join(err, run.Close())
	}
	return err
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
