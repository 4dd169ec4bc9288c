//go:build linux

// Package serve runs the programs of a configuration as long as the service lives, and answers the web process.
//
//	config     the file of the service
//	Service    configuration -> running programs; a reload keeps those that have not changed
//	wire       what the web process asks over a unix socket: metrics, whether all is well, events
//
// Nothing here talks HTTP: the process that has privileges reads maps and names, and links no server.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"trace"
	"trace/lang/serve/config"
	"trace/lang/serve/wire"
)

// Options of a service.
type Options struct {
	// Config is the file or folder of the configuration, and Version the version of the binary.
	Config, Version string
	Log             *slog.Logger
	// Again is how long a program waits first that could not be attached, as its module may be loaded meanwhile; 0: 30 seconds.
	Again time.Duration
}

// usualAgain is how long a program waits first that could not be attached.
const usualAgain = 30 * time.Second

// Service runs programs.
type Service struct {
	options Options
	host    *trace.Host

	reloading sync.Mutex // while the configuration is read: scrapes do not wait for it
	mu        sync.Mutex
	config    *config.Config
	programs  []*program
	// reloaded is when the configuration was read last, and failed why it was not taken over.
	reloaded time.Time
	failed   error
	begin    func(*program)
	// left are the files that were left when it was last asked.
	left []string
}

// New reads the configuration, until ctx ends. Nothing runs yet. A mistake in it, or in a program, is an error.
func New(ctx context.Context, o Options) (*Service, error) {
	host, err := trace.Open()
	if err != nil {
		return nil, err
	}
	s := &Service{options: o, host: host, begin: func(*program) {}}
	if err := s.Reload(ctx); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return s, nil
}

// Run runs the programs until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var all sync.WaitGroup
	s.mu.Lock()
	s.begin = func(p *program) { all.Go(func() { p.keep(ctx, cmp.Or(s.options.Again, usualAgain)) }) }
	for _, p := range s.programs {
		s.begin(p)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.begin = func(*program) {}
	s.mu.Unlock()
	all.Wait()
}

// Close releases what a service holds that no longer runs.
func (s *Service) Close() error { return s.host.Close() }

// Reload reads the configuration again. Programs that have not changed run on and keep their maps. A changed one is started before its old form
// is stopped, so that nothing is missed. With a mistake, or if ctx ends before everything was checked, all stays as it is.
func (s *Service) Reload(ctx context.Context) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	old, _ := s.now()
	changes, err := s.compare(ctx, old)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reloaded = time.Now()
	if s.failed = err; err != nil {
		return err
	}
	for _, c := range changes.All {
		switch {
		case c.new == nil:
			c.old.end()
		case c.old == nil:
			s.begin(c.new)
		case c.old != c.new:
			c.new.replaces(c.old)
			s.begin(c.new)
		}
	}
	s.config, s.programs = changes.config, changes.programs()
	return nil
}

// Change is what a reload does with a program.
type Change struct {
	// Name is the program, and What one of new, changed, unchanged and removed.
	Name, What string
	old, new   *program
}

// Changes are what a reload does.
type Changes struct {
	All    []Change
	config *config.Config
}

func (c Changes) programs() (all []*program) {
	for _, c := range c.All {
		if c.new != nil {
			all = append(all, c.new)
		}
	}
	return all
}

// mostMistakes is of how many programs the mistakes are shown.
const mostMistakes = 20

// compare reads the configuration and checks all programs in it.
func (s *Service) compare(ctx context.Context, old []*program) (Changes, error) {
	c, err := load(ctx, s.options.Config)
	if err != nil {
		return Changes{}, err
	}
	changes := Changes{config: c}
	var mistakes []error
	for i, spec := range c.Programs {
		if len(mistakes) == mostMistakes {
			mistakes = append(mistakes, fmt.Errorf("%d more programs were not checked", len(c.Programs)-i))
			break
		}
		if ctx.Err() != nil {
			return Changes{}, fmt.Errorf("the configuration was not checked: %w", context.Cause(ctx))
		}
		p, err := newProgram(s.host, c, spec, s.options.Log)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("program %s, at %s: %w", spec.Name, spec.Place, err))
			continue
		}
		change := Change{Name: spec.Name, What: "new", new: p}
		if i := slices.IndexFunc(old, func(o *program) bool { return o.spec.Name == spec.Name }); i >= 0 {
			change.What, change.old = "changed", old[i]
			if old[i].identity == p.identity {
				change.What, change.new = "unchanged", old[i]
			}
			old = slices.Delete(old, i, i+1)
		}
		changes.All = append(changes.All, change)
	}
	for _, o := range old {
		changes.All = append(changes.All, Change{Name: o.spec.Name, What: "removed", old: o})
	}
	if err := errors.Join(mistakes...); err != nil {
		return changes, err
	}
	return changes, clashes(changes.programs(), mostMistakes)
}

// load reads the configuration. It does not wait for that longer than until ctx ends: a disk may hang.
func load(ctx context.Context, path string) (c *config.Config, err error) {
	loaded := make(chan struct{})
	var read *config.Config
	var mistake error
	go func() {
		defer close(loaded)
		read, mistake = config.Load(path)
	}()
	select {
	case <-loaded:
		return read, mistake
	case <-ctx.Done():
		return nil, fmt.Errorf("the configuration was not read: %w", context.Cause(ctx))
	}
}

// Answer answers a request of the web process.
func (s *Service) Answer(ctx context.Context, r wire.Request) (any, error) {
	switch r.Do {
	case wire.GetSettings:
		return s.settings(), nil
	case wire.GetMetrics:
		return s.families(ctx), nil
	case wire.GetReady:
		return s.ready(), nil
	case wire.DoReload:
		s.mu.Lock()
		allowed := s.config.ReloadByHTTP
		s.mu.Unlock()
		if !allowed {
			return nil, errors.New("reload_by_http is not set in the configuration")
		}
		return struct{}{}, s.Reload(ctx)
	case wire.GetProfile:
		return s.profile(ctx, r.Program, time.Duration(r.Seconds)*time.Second)
	case wire.GetPrograms:
		return s.identities(), nil
	}
	return nil, fmt.Errorf("there is no request %q: are trace and trace-web of one version?", r.Do)
}

func (s *Service) settings() wire.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.config
	w := wire.Settings{
		Listen: c.Listen, WebConfig: c.WebConfig, ReloadByHTTP: c.ReloadByHTTP, Pprof: c.Pprof, Labels: c.Labels, Version: s.options.Version, User: os.Getuid(),
	}
	w.Host, _ = os.Hostname()
	if c.OTLP != nil {
		w.OTLP = &wire.OTLP{Endpoint: c.OTLP.Endpoint, Interval: c.OTLP.Interval, Headers: c.OTLP.Headers}
	}
	return w
}

// now returns the programs, and the last reload.
func (s *Service) now() (programs []*program, about reload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	about = reload{at: s.reloaded, succeeded: s.failed == nil}
	if s.config != nil {
		about.labels = s.config.Labels
	}
	return slices.Clone(s.programs), about
}

// ready lists the programs that are not attached, and what the others are without.
func (s *Service) ready() wire.Ready {
	r := wire.Ready{Waiting: map[string]string{}, LeftOut: map[string][]string{}}
	programs, _ := s.now()
	for _, p := range programs {
		run, err := p.running()
		if err != nil {
			r.Waiting[p.spec.Name] = err.Error()
			continue
		}
		if over(run) {
			r.LeftOut[p.spec.Name] = []string{"all of its probes: " + endedByItself}
			continue
		}
		for _, left := range run.LeftOut() {
			r.LeftOut[p.spec.Name] = append(r.LeftOut[p.spec.Name], left.Err.Error())
		}
	}
	return r
}

// identities returns what distinguishes each program from a changed one, by its name.
func (s *Service) identities() map[string]string {
	all := map[string]string{}
	programs, _ := s.now()
	for _, p := range programs {
		all[p.spec.Name] = p.identity
	}
	return all
}

// names returns what names of functions take. Files that were left are logged, once.
func (s *Service) names() trace.Names {
	names := s.host.Names()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range names.Files {
		if !slices.Contains(s.left, line) {
			s.options.Log.Warn("functions may lack names: " + line)
		}
	}
	s.left = names.Files
	return names
}

// Events sends what programs print that have `events: otlp`.
func (s *Service) Events(ctx context.Context, send func([]wire.Event) error) error {
	tick := time.NewTicker(eventInterval)
	defer tick.Stop()
	for {
		programs, _ := s.now()
		for _, p := range programs {
			if events := p.events.take(); len(events) > 0 {
				if err := send(events); err != nil {
					p.events.putBack(events)
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// eventInterval is how long events wait at most for others that are sent with them.
const eventInterval = time.Second
