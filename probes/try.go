//go:build linux

package probes

import (
	"context"
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"trace/probes/event"
)

// Try examines probes as [Host.Status] does, and attaches those that seem to be available, the way a run would, and detaches them: what it calls
// available, this kernel has attached, and does not silence. The programs read all fields and pass no event on. No process of others is read or
// changed for that: programs for calls of libibverbs are attached to code of this process.
//
// Where the kernel refuses a program that reads all fields, one that reads none is tried. If it is attached, the probe is available, with a note.
func (h *Host) Try(ctx context.Context, all []*event.Probe) ([]Status, error) {
	found := make([]Status, len(all))
	for i, p := range all {
		found[i] = h.Status(p)
	}
	refused, err := h.attempt(ctx, found, readsAll)
	if err != nil || len(refused) == 0 {
		return found, err
	}
	some := make([]Status, len(refused))
	for i, s := range refused {
		some[i] = Status{Probe: s.Probe, Variant: s.Variants[0].Name, Variants: s.Variants}
	}
	still, err := h.attempt(ctx, some, func(*event.Probe) *Code { return noClause() })
	if err != nil {
		return found, err
	}
	without := make(map[*event.Probe]bool)
	for _, s := range still {
		without[s.Probe] = true
	}
	for i, s := range refused {
		if !without[s.Probe] {
			why := s.Reason
			*s = some[i]
			used := slices.IndexFunc(s.Variants, func(v VariantStatus) bool { return v.Name == s.Variant })
			s.Variants[used].Err = nil // it was of the first attempt
			s.Notes = append(s.Notes, "some fields cannot be read: "+why)
		}
	}
	return found, nil
}

// readsAll is code that reads all fields of a probe and passes no event on.
func readsAll(p *event.Probe) *Code {
	c := noClause()
	c.Before = []Span{{0, p.Size}}
	return c
}

// attempt attaches the probes that are available so far, completes their status, and returns those that cannot be attached.
func (h *Host) attempt(ctx context.Context, found []Status, code func(*event.Probe) *Code) (refused []*Status, err error) {
	trial := &Host{kernel: h.kernel, catalog: h.catalog, fullTables: h.fullTables,
		finder: finder{kernel: h.kernel, cgroups: h.finder.cgroups, events: h.finder.events, trial: true}}
	var tried []*Status
	var served []*request
	for i := range found {
		s := &found[i]
		if s.Variant == "" {
			continue
		}
		r, err := trial.serve(Request{Probe: s.Probe, Code: code(s.Probe), Arg: leastArg(s.Probe), IfAvailable: true, Reduced: true})
		if err != nil {
			return nil, err
		}
		r.among = nobody
		tried, served = append(tried, s), append(served, r)
	}
	why, err := trial.refusals(ctx, served)
	for i, s := range tried {
		s.tried(served[i])
		if s.Reason = why[s.Probe]; s.Reason != "" {
			s.Variant = ""
			refused = append(refused, s)
		}
	}
	return refused, err
}

// refusals attaches requests, detaches them, and returns why some could not be attached, or hear nothing.
func (h *Host) refusals(ctx context.Context, served []*request) (why map[*event.Probe]string, err error) {
	why = make(map[*event.Probe]string)
	if len(served) == 0 {
		return why, nil
	}
	ring, err := openRing(0, true)
	if err != nil { // it refuses all of bpf(2)
		for _, r := range served {
			why[r.Probe] = err.Error()
		}
		return why, nil
	}
	quiet := newSilence(silencers())
	defer quiet.close()
	attached := batches(served)
	for _, b := range attached {
		if err = b.imply(h); err == nil {
			err = b.attach(ctx, h, map[string]*ebpf.Map{RingName: ring.buffer}, &notes{}, func() {})
		}
		if err != nil {
			break
		}
		for _, e := range b.leftOut {
			why[e.Probes[0]] = e.Reason
		}
		b.deaf(h, quiet.unheard(b.requests), why)
	}
	return why, errors.Join(err, sideBySide(attached), closeAll(attached), ring.close())
}

// deaf adds why requests see nothing or lack fields although they are attached, by what silences hooks. Requests may share helpers.
func (b *batch) deaf(h *Host, unheard map[string]string, why map[*event.Probe]string) {
	for _, r := range b.requests {
		for _, o := range b.requests {
			if o != r && !slices.Contains(h.implied(r), o.Probe) {
				continue
			}
			for _, hk := range o.hooks {
				if reason := unheard[hk.name]; reason != "" {
					why[r.Probe] = reason
				}
			}
		}
	}
}

// tried completes a status with what became of a request.
func (s *Status) tried(r *request) {
	s.Variant = r.variant
	for i, v := range r.tried {
		if i < len(s.Variants) && s.Variants[i].Name == v.Name {
			s.Variants[i].Err = v.Err
		}
	}
}

// leastArg is the argument of a request that asks for as few events as there may be.
func leastArg(p *event.Probe) Arg {
	if p.Sampled {
		return Rate(1)
	}
	return nil
}

// nobody are no processes.
var nobody = &chosen{conditions: []func(int) bool{func(int) bool { return false }}}
