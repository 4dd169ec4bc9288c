//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"trace/probes/event"
	"trace/probes/kernel"
)

// AttachOptions tune a session.
type AttachOptions struct {
	// RingBytes is the size of the ring buffer, a power of two of at least a page; 0 is DefaultRingBytes.
	RingBytes int
	// Maps that the code of the requests refers to, by name, including later requests. The caller keeps them.
	Maps map[string]*ebpf.Map
	// Layouts of the records that the code writes. Their IDs are small numbers.
	Layouts []*event.Layout
	// Roots are the processes that the code of the requests refers to as MembersName, with all that they fork from now on; nil: it does
	// not. With Descendants, the processes that they forked before are included.
	Roots       []int
	Descendants bool
	// Cgroup is the path of the cgroup that the code of the requests refers to as CgroupsName, with all below it; "": it does not.
	Cgroup string
	// Questions are what the code of the requests asks about cgroups, by the names of the maps, [QuestionName]: hashes whose keys are the ids
	// of all cgroups. known is false if there is no answer.
	Questions map[string]func(id uint64) (yes, known bool)
	// Process, Group and Namespace are the only process whose events the code lets pass, the only process group and the only pid namespace;
	// 0: there may be others. Where that is possible, it is attached to the processes alone that these, Roots and Cgroup leave.
	Process, Group int
	Namespace      uint32
	// Burst attaches programs that are traps in the traced program a part of the time. Requests may not be added later.
	Burst Burst
	// Progress is called after each request was attached, if it is not nil.
	Progress func(done, all int)
}

// Session is a set of attached probes.
type Session struct {
	host       *Host
	maps       map[string]*ebpf.Map // that the code of any request may refer to
	family     family               // empty without AttachOptions.Roots
	cgroups    *set                 // nil without AttachOptions.Cgroup
	answers    []*answers           // to AttachOptions.Questions
	among      *chosen              // nil if the options leave all processes
	burst      Burst                // AttachOptions.Burst
	windows    *windows             // nil without AttachOptions.Burst
	ring       *ring
	records    records
	notes      notes
	correction correction
	silence    *silence
	// overtaken is called once, when another tree of cgroups than the one that is shown is in use.
	overtaken sync.Once
	// deaf ends the reports of the finder.
	deaf func()

	// changing is held while something is attached or detached.
	changing sync.Mutex
	watcher  *watcher // nil if nothing concerns it
	detached bool
	detach   sync.Once

	// mu guards what may be read meanwhile.
	mu       sync.Mutex
	requests []*request // attached, in the order of the calls
	batches  []*batch   // of these
	removed  []Losses   // of removed requests
	skipped  []*UnavailableError
	left     []Request // the skipped requests
}

// Attach loads and attaches what the requests need. When it returns, the probes see every event. Requests for the same probe have
// programs of their own, and share nothing.
//
// If the kernel refuses a variant, Attach tries the next one, and fails only if there is none left. The error explains why each of them
// could not be used. It is, or wraps, a [*kernel.PermissionError] if capabilities are missing, and a [*RejectedError] if the kernel did not
// accept the code of a request.
func Attach(ctx context.Context, h *Host, reqs []Request, o AttachOptions) (_ *Session, err error) {
	s := &Session{host: h, maps: make(map[string]*ebpf.Map), burst: o.Burst, silence: newSilence(silencers())}
	s.correction.notes = &s.notes
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.records.add(o.Layouts); err != nil {
		return nil, err
	}
	served, skipped, err := h.choose(reqs)
	if err == nil && len(served) == 0 {
		err = allRefused(skipped)
	}
	if err != nil {
		return nil, err
	}
	if s.ring, err = openRing(o.RingBytes, !slices.ContainsFunc(reqs, func(r Request) bool { return r.Code.delivers() }) && !expects(o.Layouts, reqs)); err != nil {
		return nil, err
	}
	maps.Copy(s.maps, o.Maps)
	s.maps[RingName] = s.ring.buffer
	if o.Roots != nil {
		if s.family, err = h.follow(o.Roots, o.Descendants); err != nil {
			return nil, fmt.Errorf("follow the children: %w", err)
		}
		s.maps[MembersName] = s.family.members
	}
	if o.Cgroup != "" {
		if s.cgroups, err = h.settle(o.Cgroup); err != nil {
			return nil, fmt.Errorf("follow the cgroups below %s: %w", o.Cgroup, err)
		}
		s.maps[CgroupsName] = s.cgroups.members
	}
	for name, question := range o.Questions {
		a, err := h.answer(question)
		if err != nil {
			return nil, fmt.Errorf("follow the cgroups below %s: %w", h.catalog.cgroups.Root(), err)
		}
		s.answers = append(s.answers, a)
		s.maps[name] = a.members
	}
	s.among = s.choose(o)
	if slices.ContainsFunc(served, func(r *request) bool { return r.withoutTasks }) {
		s.notes.add(nil, fmt.Sprintf("ppid, pgid, pidns, pcomm, runq, faults and switches are absent: %v", h.TasksDescribed()))
	}
	s.deaf = h.finder.report(&s.notes)
	if err := s.serve(ctx, served, addition{asked: reqs, skipped: skipped, maps: s.maps, progress: o.Progress, early: true}); err != nil {
		return nil, err
	}
	if s.burst != (Burst{}) {
		if s.windows, err = openWindows(o.Burst, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// expects reports whether there are layouts of probes without a request: then requests will follow, see [Session.Add].
func expects(layouts []*event.Layout, reqs []Request) bool {
	return slices.ContainsFunc(layouts, func(l *event.Layout) bool {
		return !slices.ContainsFunc(reqs, func(r Request) bool { return r.Probe == l.Probe })
	})
}

// An addition is how requests are added to a session.
type addition struct {
	asked    []Request
	skipped  []*UnavailableError  // why some of these are not served
	again    bool                 // they are all that was left out
	maps     map[string]*ebpf.Map // that their code may refer to
	progress func(done, all int)
	early    bool // before the first call of Read
}

// serve attaches requests and reports the objects from before. If it fails it leaves nothing attached.
func (s *Session) serve(ctx context.Context, served []*request, a addition) (err error) {
	for _, r := range served {
		r.among, r.inWindows = s.among, s.burst != (Burst{}) && s.host.IsTrap(r.Probe)
	}
	added := batches(served)
	for _, b := range added {
		if err := b.imply(s.host); err != nil {
			return err
		}
	}
	var uevents *os.File
	var deaf error
	if s.watcher == nil { // before anything is attached, so that no reload goes unnoticed
		uevents, deaf = kernel.OpenUevents()
	}
	done := 0
	attached := func() {
		if done++; a.progress != nil {
			a.progress(done, len(served))
		}
	}
	err = s.attach(ctx, added, a, attached)
	if err == nil {
		err = noneLeft(served, added, a.early)
	}
	if err != nil {
		uevents.Close()
		return errors.Join(err, sideBySide(added), closeAll(added))
	}
	s.mu.Lock()
	for _, b := range added {
		a.skipped = append(a.skipped, b.leftOut...)
		if len(b.requests) == 0 {
			err = errors.Join(err, b.Close())
			continue
		}
		s.batches = append(slices.Clip(s.batches), b)
	}
	s.requests = slices.Concat(s.requests, slices.DeleteFunc(slices.Clone(served), func(r *request) bool { return !attachedIn(added, r) }))
	s.leave(a)
	s.mu.Unlock()
	s.watch(uevents, deaf)
	s.look()
	return err
}

// leave notes, while mu is held, which of the requests are not attached, and why.
func (s *Session) leave(a addition) {
	if a.again {
		s.skipped, s.left = nil, nil
	}
	for _, e := range a.skipped {
		s.skipped = appendUnavailable(s.skipped, e)
	}
	for _, r := range a.asked {
		if !slices.ContainsFunc(s.requests, func(o *request) bool { return o.Request == r }) {
			s.left = append(s.left, r)
		}
	}
}

// allRefused returns why all probes are refused. If some are only absent, they may come later.
func allRefused(all []*UnavailableError) error {
	var errs []error
	for _, e := range all {
		if !e.Refused {
			return nil
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// noneLeft returns why no request is left. A program that begins with all of its probes refused has no answer, even if it could do without each of them.
func noneLeft(served []*request, added []*batch, begins bool) error {
	if len(served) == 0 || slices.ContainsFunc(served, func(r *request) bool { return r.OrNone && !begins || attachedIn(added, r) }) {
		return nil
	}
	var all []*UnavailableError
	for _, b := range added {
		for _, e := range b.leftOut {
			all = appendUnavailable(all, e)
		}
	}
	var errs []error
	for _, e := range all {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func attachedIn(batches []*batch, r *request) bool {
	return slices.ContainsFunc(batches, func(b *batch) bool { return slices.Contains(b.requests, r) })
}

func (s *Session) attach(ctx context.Context, added []*batch, a addition, done func()) (err error) {
	var inventories []*inventory
	var inquirers []*inquirer
	for _, b := range added {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.attach(ctx, s.host, a.maps, &s.notes, done); err != nil {
			return err
		}
		inventories, inquirers = append(inventories, b.inventories...), append(inquirers, b.inquirers...)
	}
	if len(inventories)+len(inquirers) == 0 {
		return nil
	}
	if a.early {
		stop := s.ring.keepEarly()
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := s.correction.begin(ctx, inventories); err != nil {
		return err
	}
	return inquire(ctx, inquirers, &s.notes)
}

// watch follows modules that are loaded and CPUs that come online, until the session is detached, if that concerns the session. deaf is why
// there are no messages.
func (s *Session) watch(uevents *os.File, deaf error) {
	switch {
	case s.watcher != nil:
	case !slices.ContainsFunc(s.batches, (*batch).changes) && len(s.unloaded()) == 0:
		uevents.Close()
	case deaf != nil:
		s.notes.add(nil, fmt.Sprintf("a module that is loaded, or a CPU that comes online, will not be traced: cannot read the kernel's messages: %v", deaf))
	default:
		s.watcher = newWatcher(uevents, &s.notes, func(do func([]*batch, []unloaded)) {
			s.changing.Lock()
			defer s.changing.Unlock()
			do(s.batches, s.unloaded())
		})
	}
}

// unloaded returns the probes that wait for modules.
func (s *Session) unloaded() (all []unloaded) {
	for _, e := range s.Skipped() {
		if !errors.Is(e.Causes, kernel.ErrNotLoaded) {
			continue
		}
		for _, p := range e.Probes {
			o := s.host.catalog.origin(p)
			all = append(all, unloaded{p, o.object.moduleOf(o.hook).All()})
		}
	}
	return all
}

// look notes what keeps attached programs from seeing events.
func (s *Session) look() {
	s.mu.Lock()
	requests := s.requests
	s.mu.Unlock()
	s.silence.look(requests, &s.notes)
	if slices.ContainsFunc(requests, (*request).readsCgroup) {
		s.lookAtCgroups()
	}
	for _, r := range requests {
		for _, c := range r.clocks() {
			if c.look() {
				r.gap()
				s.notes.add(r.Probe, c.whyThrottled())
			}
		}
	}
}

// lookAtCgroups notes that the tree of cgroups that is shown is no longer the right one.
func (s *Session) lookAtCgroups() {
	if dir, is := s.host.catalog.cgroups.Overtaken(); is {
		s.overtaken.Do(func() {
			s.notes.add(nil, fmt.Sprintf("cgroup v2 at %s is in use by now, but cgroups are shown as in cgroup v1: start again", dir))
		})
	}
}

// Correct compares the reported objects with the kernel's own list, and reports differences as events: the kernel may have skipped a
// program. If nothing points to a difference, it only asks for the number of objects.
func (s *Session) Correct(ctx context.Context) { s.correction.correct(ctx) }

// Notes returns what is missing from the attached probes, or was for a while. It returns each note once.
func (s *Session) Notes() []string { return s.notes.take() }

// SkippedForks returns how many forks of processes the kernel did not follow, on the whole machine.
func (s *Session) SkippedForks() (uint64, error) { return s.family.skipped() }

// SkippedCgroups returns how many new cgroups the kernel did not follow, on the whole machine.
func (s *Session) SkippedCgroups() (uint64, error) {
	n, err := s.cgroups.skipped()
	for _, a := range s.answers {
		if more, e := a.skipped(); e != nil {
			err = e
		} else {
			n = max(n, more) // each misses the same ones
		}
	}
	return n, err
}

// Attached is a probe that is attached, with the name of its variant, like fexit.
type Attached struct {
	Probe   *event.Probe
	Variant string
}

// Attached returns the attached probes.
func (s *Session) Attached() []Attached {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Attached
	for _, r := range s.requests {
		all = append(all, Attached{r.Probe, r.variant})
	}
	return all
}

// Skipped returns why probes with IfAvailable are not attached.
func (s *Session) Skipped() []*UnavailableError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skipped)
}

// Refused returns why better variants of the attached probes were not used.
func (s *Session) Refused() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, r := range s.requests {
		for _, v := range r.tried {
			errs = append(errs, fmt.Errorf("%s: %s: %w", r.Probe, v.Name, v.Err))
		}
	}
	return errs
}

// Losses returns the counts of each probe so far, including removed requests.
func (s *Session) Losses() ([]Losses, error) {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Losses
	for _, r := range s.requests {
		l, err := s.batchOf(r).losses(r)
		if err != nil {
			return nil, err
		}
		all = addLosses(all, l)
	}
	for _, l := range s.removed {
		all = addLosses(all, l)
	}
	for i := range all {
		s.records.addCounts(&all[i])
	}
	return all, nil
}

func (s *Session) batchOf(r *request) *batch {
	return s.batches[slices.IndexFunc(s.batches, func(b *batch) bool { return slices.Contains(b.requests, r) })]
}

// Left returns how many records are in the buffer. The number is exact once the probes are detached.
func (s *Session) Left() (int, error) { return s.ring.unread() }

// Share returns which part of the time from one moment to another, on the clock of nsecs, the windows of [AttachOptions.Burst] were open. The
// time before the first one and after the last one does not count. ok is false if no window was open meanwhile.
func (s *Session) Share(from, to uint64) (share float64, ok bool) { return s.windows.share(from, to) }

// Detach ends the stream of events: when it returns, programs no longer run. What is in the ring buffer can still be read.
func (s *Session) Detach() error {
	var err error
	s.detach.Do(func() {
		s.windows.end()
		s.changing.Lock()
		s.detached = true
		s.changing.Unlock()
		// Nothing is added or removed from here on.
		var inventories []*inventory
		for _, b := range s.batches {
			inventories = append(inventories, b.inventories...)
		}
		s.correction.end(inventories)
		s.watcher.stop()
		err = errors.Join(sideBySide(s.batches), s.family.detach(), s.cgroups.detach())
		for _, a := range s.answers {
			err = errors.Join(err, a.detach())
		}
	})
	return err
}

// sideBySide detaches batches at the same time, because each request waits until the kernel has left its programs.
func sideBySide(batches []*batch) error {
	var wg sync.WaitGroup
	var all []func() error
	for _, b := range batches {
		all = append(all, b.detachers()...)
	}
	errs := make([]error, len(all))
	for i, detach := range all {
		wg.Go(func() { errs[i] = detach() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close detaches and releases everything.
func (s *Session) Close() error {
	if s.deaf != nil {
		s.deaf()
	}
	s.silence.close()
	err := s.Detach()
	for _, a := range s.answers {
		err = errors.Join(err, a.close())
	}
	return errors.Join(err, closeAll(s.batches), s.family.close(), s.cgroups.close(), s.ring.close())
}
