//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// AttachOptions tune a session.
type AttachOptions struct {
	// RingBytes is the size of the ring buffer, a power of two of at least a page; 0 is DefaultRingBytes.
	RingBytes int
	// Maps that the code of the requests refers to, by name. They stay the caller's.
	Maps map[string]*ebpf.Map
	// Layouts of the records that the code writes. Their IDs are small numbers.
	Layouts []*event.Layout
	// Roots are processes to which, with all that they fork from now on, the code of the requests refers as MembersName; nil: it does not.
	Roots []int
	// Progress is called after each of the requests was attached, if it is not nil.
	Progress func(done, all int)
}

// request is a Request that is being served.
type request struct {
	Request
	source *source
	// variant that was attached.
	variant string
	// hooks are the helpers that the fields need, and then the probe's own.
	hooks []hook
	// tried says why better variants were not used.
	tried []error

	counts *ebpf.Map

	mu       sync.Mutex
	attached []*attached
	missed   uint64 // events, of programs that are gone
	gaps     uint64 // times in which a module that came again was not seen
}

func (c *Catalog) request(r Request) *request { return &request{Request: r, source: c.source(r.Probe)} }

// attached is a program, and what attaches it.
type attached struct {
	program *ebpf.Program
	place   program
	links   []io.Closer // none after detaching
	missed  uint64      // by links that are closed
	// helper says that it belongs to one of the helpers: without it events lack fields, and none is lost.
	helper bool
	// tells says that it tells of events. What another program keeps for it, and was skipped, it misses and counts itself.
	tells bool
}

// misses is how many runs of the program the kernel has skipped.
func (a *attached) misses() (uint64, error) {
	stats, err := a.program.Stats()
	if err != nil {
		return 0, err
	}
	n := a.missed + stats.RecursionMisses
	for _, l := range a.links {
		n += missedByLink(l)
	}
	return n, nil
}

// detach closes the links, and keeps what only they can tell.
func (a *attached) detach() error {
	for _, l := range a.links {
		a.missed += missedByLink(l)
	}
	err := closeAll(a.links)
	a.links = nil
	return err
}

func (a *attached) close() error { return errors.Join(a.detach(), a.program.Close()) }

// detachAll goes in the opposite order of attaching: ends are no longer seen before beginnings are not.
func detachAll(all []*attached) error {
	var errs []error
	for _, a := range slices.Backward(all) {
		errs = append(errs, a.detach())
	}
	return errors.Join(errs...)
}

// Session is a set of attached probes.
type Session struct {
	host     *Host
	requests []*request
	skipped  []*UnavailableError
	noting   sync.Mutex
	notes    []string
	layouts  []*event.Layout // by ID
	maps     []*ebpf.Map
	family   *family // nil without AttachOptions.Roots
	ring     *ringbuf.Reader
	early    [][]byte // records that were written before Read
	// delivered records, by layout
	delivered []atomic.Uint64
	// inventories are of the probes whose events say that objects come and go.
	inventories []*inventory
	correction  correction
	// unwatch ends what attaches again to modules that come again.
	unwatch func()

	detach sync.Once
}

// Attach loads and attaches what the requests need. When it returns, the probes see every event. Requests for the same probe have
// programs of their own, and share nothing.
//
// A variant that the kernel refuses is followed by the next one; only when there is none left does Attach fail. The error says why
// each of them could not be used; it is, or wraps, a *PermissionError if capabilities are missing, and a *RejectedError if the
// kernel did not accept the code of a request.
func Attach(ctx context.Context, h *Host, reqs []Request, o AttachOptions) (_ *Session, err error) {
	layouts, err := event.ByID(o.Layouts)
	if err != nil {
		return nil, err
	}
	s := &Session{host: h, layouts: layouts, delivered: make([]atomic.Uint64, len(layouts))}
	done := 0
	attached := func() {
		if done++; o.Progress != nil {
			o.Progress(done, len(s.requests))
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.choose(reqs); err != nil {
		return nil, err
	}
	ring, err := s.openRing(o)
	if err != nil {
		return nil, err
	}
	uevents, deaf := openUevents() // before anything is attached, so that no module comes again unnoticed
	defer func() {
		if s.unwatch == nil {
			uevents.Close()
		}
	}()
	shared := map[string]*ebpf.Map{RingName: ring}
	maps.Copy(shared, o.Maps)
	if o.Roots != nil {
		if s.family, err = h.follow(o.Roots); err != nil {
			return nil, fmt.Errorf("follow the children: %w", err)
		}
		shared[MembersName] = s.family.members
	}
	for _, batch := range s.batches() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.attachBatch(ctx, batch, shared, attached); err != nil {
			return nil, err
		}
	}
	if err := s.seed(ctx); err != nil {
		return nil, err
	}
	s.correction.on = true
	s.unwatch = s.watchModules(uevents, deaf)
	return s, nil
}

// hooksFor returns the helpers that the fields that the code reads need on this host, and the probe's own hook.
func (h *Host) hooksFor(r *request) []hook {
	var hooks []hook
	for _, candidate := range helpers {
		needed := slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool {
			return r.Code.stage(f) != stageNever && slices.Contains(r.source.needs[f.Name], candidate.name)
		})
		if needed && !h.unneeded(r.Probe.Group, candidate) {
			hooks = append(hooks, candidate)
		}
	}
	return append(hooks, r.source.hook)
}

func (h *Host) unneeded(object string, hk hook) bool {
	if hk.unless == "" {
		return false
	}
	_, err := h.kernelType(modules[object], &btf.Struct{Name: hk.unless})
	return err == nil
}

// choose keeps the requests whose probes this host has. It fails, before anything is loaded, if one that has to be there is
// missing, and names all of these; or if there is none left.
func (s *Session) choose(reqs []Request) error {
	var missing []*UnavailableError
	for _, r := range reqs {
		rq := s.host.catalog.request(r)
		if rq.source.hook.sampled && r.Hz <= 0 {
			return fmt.Errorf("%s: %d samples a second, expected at least 1", r.Probe, r.Hz)
		}
		rq.hooks = s.host.hooksFor(rq)
		err := s.host.available(rq)
		var unavailable *UnavailableError
		switch {
		case err == nil:
			s.requests = append(s.requests, rq)
		case !errors.As(err, &unavailable):
			return err
		case r.IfAvailable:
			s.skipped = appendUnavailable(s.skipped, unavailable)
		default:
			missing = appendUnavailable(missing, unavailable)
		}
	}
	if len(s.requests) == 0 {
		for _, e := range s.skipped {
			missing = appendUnavailable(missing, e)
		}
	}
	var errs []error
	for _, e := range missing {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// Available returns the error of an [Attach] that cannot be, as a probe is not there, before anything is loaded.
func Available(h *Host, reqs []Request) error { return (&Session{host: h}).choose(reqs) }

// available returns nil if some variant of the probe can be used for a request, else why none can.
func (h *Host) available(r *request) error {
	p := r.Probe
	var refused error
	for _, v := range h.variantsFor(p.Group, r.source.hook, func(program string) bool { return h.typeless(program, r) }) {
		err := v.check()
		if err == nil {
			return nil
		}
		var denied *PermissionError
		if errors.As(err, &denied) && refused == nil {
			refused = fmt.Errorf("%s: %w", p, denied)
		}
	}
	if refused != nil {
		return refused
	}
	return &UnavailableError{[]*event.Probe{p}, h.Status(p).Reason}
}

// batches parts the requests into those that are loaded together, and share helpers and maps: they are of one object, and no two of
// one probe, of which a program calls one filter and one action.
func (s *Session) batches() [][]*request {
	var batches [][]*request
	for _, r := range s.requests {
		fits := func(batch []*request) bool {
			return batch[0].Probe.Group == r.Probe.Group && !slices.ContainsFunc(batch, func(o *request) bool { return o.Probe == r.Probe })
		}
		if i := slices.IndexFunc(batches, fits); i >= 0 {
			batches[i] = append(batches[i], r)
			continue
		}
		batches = append(batches, []*request{r})
	}
	return batches
}

// attachBatch attaches what sees the events of some requests, and calls done after each.
func (s *Session) attachBatch(ctx context.Context, requests []*request, shared map[string]*ebpf.Map, done func()) error {
	group := requests[0].Probe.Group
	l, err := s.newLoader(group, requests, shared)
	if err != nil {
		return fmt.Errorf("%s: %w", group, err)
	}
	attached := make(map[string]bool)
	attach := func(r *request, hooks []hook) error {
		for _, hk := range hooks {
			// Requests may share helpers.
			if attached[hk.name] {
				continue
			}
			attached[hk.name] = true
			if err := ctx.Err(); err != nil { // a batch may take a second
				return err
			}
			if err := s.attachHook(l, r, hk); err != nil {
				return fmt.Errorf("%s: %w", r.Probe, err)
			}
		}
		return nil
	}
	// The kernel calls what was attached first first: helpers see what happens before any event tells of it.
	for _, r := range requests {
		r.counts = l.maps[countsName(r.Probe)]
		if err := attach(r, r.hooks[:len(r.hooks)-1]); err != nil {
			return err
		}
	}
	for _, r := range requests {
		if err := attach(r, r.hooks[len(r.hooks)-1:]); err != nil {
			return err
		}
		done()
		if r.source.hook.seed == nil {
			continue
		}
		inv, err := s.plant(l, r)
		if err != nil {
			return err
		}
		s.inventories = append(s.inventories, inv)
	}
	return nil
}

// attachHook attaches the best variant of a hook that the kernel accepts.
func (s *Session) attachHook(l *loader, r *request, hk hook) error {
	var errs []error
	for _, v := range s.host.variantsFor(r.Probe.Group, hk, l.typeless) {
		err := v.check()
		if err == nil {
			err = s.attachVariant(l, r, hk, v)
		}
		if err == nil {
			if hk.name == r.source.hook.name {
				r.variant, r.tried = v.name, errs
			}
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", v.name, err))
		if rejects(err) && errors.Is(err, unix.E2BIG) {
			break // too many paths to follow, which took seconds; they are the same in every variant
		}
	}
	err := errors.Join(errs...)
	if hk.name == r.source.hook.name && slices.ContainsFunc(errs, rejects) {
		return &RejectedError{Probe: r.Probe, Err: err}
	}
	return err
}

// RejectedError says that the kernel's verifier did not accept the code of a request in any variant of its probe.
type RejectedError struct {
	Probe *event.Probe
	// Err holds an *ebpf.VerifierError.
	Err error
}

func (e *RejectedError) Error() string { return "the kernel rejects the program: " + e.Err.Error() }

func (e *RejectedError) Unwrap() error { return e.Err }

func (s *Session) attachVariant(l *loader, r *request, hk hook, v variant) error {
	programs := l.busy(s.host.present(v.programs))
	spec := &ebpf.CollectionSpec{
		Maps: l.spec.Maps, Programs: make(map[string]*ebpf.ProgramSpec),
		Types: l.spec.Types, ByteOrder: l.spec.ByteOrder,
	}
	for _, p := range programs {
		spec.Programs[p.instance()] = l.program(p)
	}
	o := ebpf.CollectionOptions{MapReplacements: l.maps, Cache: s.host.cache}
	if slices.ContainsFunc(programs, func(p program) bool { return !l.typeless(p.name) }) {
		var err error
		types := l.types
		if v.name == recordKind {
			types = l.typesAndRecords
		}
		if o.Programs.KernelTypes, err = types(); err != nil {
			return fmt.Errorf("types of the kernel: %w", err)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, o)
	if err != nil {
		return explain(err)
	}
	defer c.Close() // what is left in it
	var all []*attached
	for _, p := range programs {
		links, err := attachProgram(p, c.Programs[p.instance()], r.Hz)
		if err != nil {
			return errors.Join(fmt.Errorf("attach to %s: %w", p.target, explain(err)), detachAll(all))
		}
		all = append(all, &attached{program: c.Programs[p.instance()], place: p, links: links, helper: hk.isHelper(), tells: l.tells[p.name]})
	}
	for _, p := range programs {
		c.DetachProgram(p.instance())
	}
	r.attached = append(r.attached, all...)
	return nil
}

// attachProgram attaches a program until all that it returns is closed.
func attachProgram(p program, prog *ebpf.Program, hz int) ([]io.Closer, error) {
	var lk link.Link
	var err error
	switch p.kind {
	case "perf_event":
		return attachSampled(prog, hz)
	case "raw_tp":
		lk, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.target, Program: prog})
	case "tracepoint":
		group, name, _ := strings.Cut(p.target, "/")
		lk, err = link.Tracepoint(group, name, prog, nil)
	case "kprobe":
		lk, err = link.Kprobe(p.target, prog, nil)
	case "kretprobe":
		lk, err = link.Kretprobe(p.target, prog, nil)
	default:
		lk, err = link.AttachTracing(link.TracingOptions{Program: prog})
	}
	return []io.Closer{lk}, err
}

func closeAll(links []io.Closer) error {
	var errs []error
	for _, l := range slices.Backward(links) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Variants returns which variant of each probe was attached, like "ib:modify_qp fexit".
func (s *Session) Variants() []string {
	var names []string
	for _, r := range s.requests {
		names = append(names, r.Probe.String()+" "+r.variant)
	}
	return names
}

// Skipped returns why the probes that were asked for if available are not attached.
func (s *Session) Skipped() []*UnavailableError { return s.skipped }

// Refused returns why better variants of the attached probes were not used.
func (s *Session) Refused() []error {
	var errs []error
	for _, r := range s.requests {
		for _, err := range r.tried {
			errs = append(errs, fmt.Errorf("%s: %w", r.Probe, err))
		}
	}
	return errs
}

// Detach ends the stream of events: when it returns, no program runs any more. What is in the ring buffer can still be read.
func (s *Session) Detach() error {
	var err error
	s.detach.Do(func() {
		s.correctLast()
		if s.unwatch != nil {
			s.unwatch()
		}
		var wg sync.WaitGroup
		errs := make([]error, len(s.requests))
		// Each detach waits for the kernel to leave the program, so requests do it side by side.
		for i, r := range s.requests {
			wg.Go(func() { errs[i] = r.detach() })
		}
		for _, inv := range s.inventories {
			wg.Go(inv.detach)
		}
		wg.Wait()
		err = errors.Join(append(errs, s.family.detach())...)
	})
	return err
}

func (r *request) detach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return detachAll(r.attached)
}

// Close detaches and releases everything.
func (s *Session) Close() error {
	errs := []error{s.Detach()}
	for _, r := range s.requests {
		for _, a := range r.attached {
			errs = append(errs, a.close())
		}
	}
	errs = append(errs, s.family.close())
	for _, inv := range s.inventories {
		errs = append(errs, inv.close())
	}
	if s.ring != nil {
		errs = append(errs, s.ring.Close())
	}
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
