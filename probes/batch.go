//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A batch is a list of requests that are loaded together and share helpers and maps. They belong to one object. No two are for the same
// probe, because a program calls one filter and one action.
type batch struct {
	requests []*request
	// leftOut are the requests that the kernel refused, and that the program can do without.
	leftOut     []*UnavailableError
	inventories []*inventory
	inquirers   []*inquirer
	maps        []*ebpf.Map
	tended      []io.Closer // what fills or reads the maps
	gate        *gate       // nil if nothing waits for windows
}

// clocksName is the map of the frequencies of devices' counters, by struct verbs_object of bpf/verbs_iterated.h. An object has it where a program
// reads it.
const clocksName = "verbs_clocks"

// batches splits requests into batches.
func batches(requests []*request) (all []*batch) {
	for _, r := range requests {
		fits := func(b *batch) bool {
			return b.requests[0].Probe.Group == r.Probe.Group && !slices.ContainsFunc(b.requests, func(o *request) bool { return o.Probe == r.Probe })
		}
		if i := slices.IndexFunc(all, fits); i >= 0 {
			all[i].requests = append(all[i].requests, r)
			continue
		}
		all = append(all, &batch{requests: []*request{r}})
	}
	return all
}

// noClause is code for events that no clause wants.
func noClause() *Code {
	return &Code{Filter: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, Action: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}}
}

// imply adds requests for the probes whose programs others need and that nobody asked for.
func (b *batch) imply(h *Host) error {
	for _, r := range slices.Clone(b.requests) {
		for _, p := range h.implied(r) {
			if slices.ContainsFunc(b.requests, func(o *request) bool { return o.Probe == p }) {
				continue
			}
			o, err := h.serve(Request{Probe: p, Code: noClause()})
			if err != nil {
				return err
			}
			o.implied, o.among, o.inWindows = true, r.among, r.inWindows
			b.requests = slices.Insert(b.requests, 0, o) // it is attached first
		}
	}
	return nil
}

// removeImplied removes the requests that no other needs.
func (b *batch) removeImplied(h *Host) (err error) {
	for _, o := range slices.Clone(b.requests) {
		if o.implied && !slices.ContainsFunc(b.requests, func(r *request) bool { return slices.Contains(h.implied(r), o.Probe) }) {
			err = errors.Join(err, b.remove(o), b.release(o))
		}
	}
	return err
}

// attach attaches the programs for the requests, and calls done after each request that was not implied. After an error the caller must close the batch.
func (b *batch) attach(ctx context.Context, h *Host, shared map[string]*ebpf.Map, n *notes, done func()) error {
	group := b.requests[0].Probe.Group
	l, err := newLoader(h, b.requests, shared)
	if err != nil {
		return b.leaveAllOut(ctx, h, fmt.Errorf("%s: %w", group, err))
	}
	defer func() { _ = l.release() }()
	for _, m := range l.maps {
		b.maps = append(b.maps, m)
	}
	b.tended = append(b.tended, h.finder.callers.add(l.maps[callersMap]))
	if clocks := l.maps[clocksName]; clocks != nil {
		c, err := h.finder.followClocks(ctx, func(pid int, context, kilohertz uint64) error {
			return clocks.Put([2]uint64{context, uint64(pid)}, kilohertz)
		})
		if err != nil {
			return b.leaveAllOut(ctx, h, fmt.Errorf("%s: %w", group, err))
		}
		b.tended = append(b.tended, c)
	}
	b.gate = newGate(l.spec, l.maps[controlSection], l.maps, func(name string) bool {
		return shared[name] != nil || name == clocksName || name == callersMap
	})
	tried := make(map[string]error) // by the names of hooks: requests may share helpers
	attach := func(r *request, hooks []hook) error {
		for _, hk := range hooks {
			err, done := tried[hk.name]
			if !done {
				if err := ctx.Err(); err != nil { // a batch may take a second
					return err
				}
				err = attachHook(ctx, h, l, r, hk)
				tried[hk.name] = err
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.Probe, err)
			}
		}
		return nil
	}
	all := slices.Clone(b.requests)
	// The kernel calls programs in the order of attaching: helpers see what happens before an event reports it.
	for i, r := range all {
		r.counts, r.failedReads, r.reader = l.maps[countsName(r.Probe)], l.maps[failedReadsName], placeOf(i)
		if err := attach(r, r.hooks[:len(r.hooks)-1]); err != nil {
			if err := b.leaveOut(ctx, h, r, err); err != nil {
				return err
			}
		}
	}
	for _, r := range all {
		if slices.Contains(b.requests, r) { // not left out
			err := attach(r, r.hooks[len(r.hooks)-1:])
			if err == nil {
				err = b.lookBack(ctx, h, l, r, n)
			}
			if err != nil {
				err = b.leaveOut(ctx, h, r, err)
			}
			if err != nil {
				return err
			}
		}
		if !r.implied {
			done()
		}
	}
	return nil
}

// leaveOut goes on without a request that the kernel refuses, and without those that need what its programs keep. If one of them cannot be left
// out, it returns why.
func (b *batch) leaveOut(ctx context.Context, h *Host, r *request, why error) error {
	out := slices.DeleteFunc(slices.Clone(b.requests), func(o *request) bool {
		return o.implied || o != r && !slices.Contains(h.implied(o), r.Probe)
	})
	for _, o := range out {
		if ctx.Err() != nil || !o.canBeLeftOut(why) {
			return why
		}
	}
	var errs []error
	for _, o := range out {
		errs = append(errs, b.remove(o), b.release(o))
		b.leftOut = append(b.leftOut, refusedProbe(o.Probe, why))
	}
	return errors.Join(append(errs, b.removeImplied(h))...)
}

// leaveAllOut leaves out all requests: their object cannot be loaded.
func (b *batch) leaveAllOut(ctx context.Context, h *Host, why error) error {
	for len(b.requests) > 0 {
		if err := b.leaveOut(ctx, h, b.requests[0], why); err != nil {
			return err
		}
	}
	return nil
}

// lookBack prepares that objects from before are reported, if the probe does so.
func (b *batch) lookBack(ctx context.Context, h *Host, l *loader, r *request, n *notes) error {
	if r.origin.hook.seed != nil {
		inv, err := plant(ctx, h, l, r, n)
		if err != nil {
			return err
		}
		b.inventories = append(b.inventories, inv)
	}
	if r.origin.hook.inquiry != nil {
		q, err := newInquirer(l, r)
		if err != nil {
			return err
		}
		b.inquirers = append(b.inquirers, q)
	}
	return nil
}

// attachHook attaches the best variant of a hook that the kernel accepts.
func attachHook(ctx context.Context, h *Host, l *loader, r *request, hk hook) error {
	s := h.hostHook(r.origin.object, hk)
	s.needs = l.needs
	own := hk.name == r.origin.hook.name
	var errs causes
	for _, v := range s.variants() {
		err := v.check()
		if err == nil {
			err = attachVariant(ctx, h, l, r, hk, v)
		}
		if err == nil {
			if own {
				r.variant = v.name()
			}
			return nil
		}
		if own {
			r.tried = append(r.tried, VariantStatus{Name: v.name(), Err: err, Caps: v.caps})
		}
		errs = append(errs, fmt.Errorf("%s: %w", v.name(), err))
		if rejects(err) && errors.Is(err, unix.E2BIG) {
			break // too many paths for the verifier, after seconds; other variants have the same paths
		}
	}
	switch {
	case len(errs) == 0: // the object has no program for it
		return nil
	case own && slices.ContainsFunc(errs, rejects):
		return &RejectedError{Probe: r.Probe, Err: errs}
	default:
		return errs
	}
}

func attachVariant(ctx context.Context, h *Host, l *loader, r *request, hk hook, v variant) error {
	there := present(h.kernel, v.programs)
	programs := l.busy(there)
	specs := make(map[string]*ebpf.ProgramSpec)
	for _, p := range programs {
		specs[p.instance()] = l.program(p)
	}
	var types *btf.Spec
	if slices.ContainsFunc(programs, func(p program) bool { return l.needs(p.name).types }) {
		var err error
		read := l.types
		if v.way.readsFtrace() {
			read = l.typesAndFtrace
		}
		if types, err = read(); err != nil {
			return fmt.Errorf("types of the kernel: %w", err)
		}
	}
	loaded, err := l.verified(specs, types)
	if err != nil {
		return explain(err)
	}
	defer func() { _ = closeAll(slices.Collect(maps.Values(loaded))) }() // what is not attached
	for _, p := range programs {
		if err := l.callItself(p, loaded[p.instance()]); err != nil {
			return explain(err)
		}
	}
	if v.search != nil {
		searching, err := v.search(ctx)
		if err != nil {
			return err
		}
		defer searching.Close() // what is attached goes on with it
	}
	var all []*attached
	for _, p := range programs {
		for _, o := range l.overflows(p.name) {
			r.overflows[o] = true
		}
		a := &attached{program: loaded[p.instance()], place: p, arg: r.argAt(hk.place), hook: hk.name, helper: hk.isHelper(), delivers: l.delivering[p.name]}
		if err := a.attach(); err != nil {
			return errors.Join(err, detachAll(all))
		}
		all = append(all, a)
	}
	for _, p := range programs {
		delete(loaded, p.instance())
	}
	r.attached = append(r.attached, all...)
	for _, p := range v.programs {
		if !slices.ContainsFunc(there, func(o program) bool { return o.name == p.name && o.target == p.target }) {
			r.absent = append(r.absent, p.target)
		}
	}
	return nil
}

// inventoriesOf returns the inventories of a request: one or none.
func (b *batch) inventoriesOf(r *request) []*inventory {
	return slices.DeleteFunc(slices.Clone(b.inventories), func(inv *inventory) bool { return inv.request != r })
}

// remove detaches a request. Others of the batch keep the helpers that they need.
func (b *batch) remove(r *request) error {
	b.requests = slices.DeleteFunc(slices.Clone(b.requests), func(o *request) bool { return o == r })
	err := r.handOver(func(helper string) *request {
		i := slices.IndexFunc(b.requests, func(o *request) bool { return o.needs(helper) })
		if i < 0 {
			return nil
		}
		return b.requests[i]
	})
	for _, inv := range b.inventoriesOf(r) {
		err = errors.Join(err, inv.detach())
	}
	return err
}

// release releases a removed request.
func (b *batch) release(r *request) error {
	gone := b.inventoriesOf(r)
	b.inventories = slices.DeleteFunc(slices.Clone(b.inventories), func(inv *inventory) bool { return inv.request == r })
	return errors.Join(r.Close(), closeAll(gone))
}

// detachers returns functions that end the streams of events. Each waits until the kernel has left its programs, so they should run side by
// side.
func (b *batch) detachers() (all []func() error) {
	for _, r := range b.requests {
		all = append(all, r.detach)
	}
	for _, inv := range b.inventories {
		all = append(all, inv.detach)
	}
	return all
}

// Close detaches and releases everything.
func (b *batch) Close() error {
	return errors.Join(closeAll(b.requests), closeAll(b.inventories), closeAll(b.inquirers), closeAll(b.tended), closeAll(b.maps))
}

// plant attaches the programs that see existing objects. They report nothing before the first step. If they cannot be attached, events of
// new objects are still reported.
func plant(ctx context.Context, h *Host, l *loader, r *request, n *notes) (*inventory, error) {
	inv, err := newInventory(l, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Probe, err)
	}
	before := len(r.attached)
	if err := attachHook(ctx, h, l, r, r.origin.hook.seed.visit); err != nil {
		n.add(r.Probe, fmt.Sprintf("objects from before are not counted, and events that the kernel skips are not corrected: %v", err))
		inv.blind = true
	}
	// A skipped visitor costs no event: the next walk meets the object.
	inv.visitors, r.attached = slices.Clone(r.attached[before:]), r.attached[:before]
	return inv, nil
}
