//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"trace/probes/event"
)

// AddOptions are what the code of added requests uses.
type AddOptions struct {
	// Maps by name, besides the session's. The caller keeps them.
	Maps map[string]*ebpf.Map
	// Layouts of the records that the code writes, besides the session's. IDs must be unique, even after requests were removed.
	Layouts []*event.Layout
}

var errDetached = errors.New("the session is detached")

// Add loads and attaches further requests, as [Attach] does. When it returns, their probes see every event. The other requests of the
// session lose nothing. If Add fails, the session is as before.
//
// A probe that reports objects as they come and go writes a record for each existing object, so the caller should read meanwhile. A session
// that was attached with neither code nor layouts for records has no room for any: then Add fails if the code writes some.
func (s *Session) Add(ctx context.Context, reqs []Request, o AddOptions) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.add(ctx, reqs, o, false)
}

// add does so while nothing else changes; again means that the requests are all that was left out until now.
func (s *Session) add(ctx context.Context, reqs []Request, o AddOptions, again bool) error {
	if s.detached {
		return errDetached
	}
	if s.windows != nil {
		return errors.New("the session is attached a part of the time: nothing can be added")
	}
	served, skipped, err := s.host.choose(reqs)
	if err != nil {
		return err
	}
	if s.ring.small && delivers(served) {
		return errors.New("the session has no room for records: it was attached without layouts")
	}
	if err := s.records.add(o.Layouts); err != nil {
		return err
	}
	shared := maps.Clone(s.maps)
	for name, m := range o.Maps {
		if _, there := shared[name]; !there {
			shared[name] = m
		}
	}
	return s.serve(ctx, served, addition{asked: reqs, skipped: skipped, again: again, maps: shared})
}

// Retry attaches what [Session.Skipped] names, as far as that is possible now: a module may have been loaded, or a policy lifted. The other requests
// lose nothing. Code that the verifier rejects is left out, like what the kernel refuses for other reasons. If Retry fails, the session is as before.
func (s *Session) Retry(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	again := slices.Clone(s.left)
	s.mu.Unlock()
	if len(again) == 0 {
		return nil
	}
	for i := range again {
		again[i].Reduced, again[i].OrNone = true, true
	}
	s.host.Release() // what was read of the kernel may be out of date
	defer s.host.Release()
	return s.add(ctx, again, AddOptions{}, true)
}

// Remove detaches and releases a request of [Attach] or Add. When it returns, its programs no longer run. Records that they have written
// can still be read, and their losses stay counted.
func (s *Session) Remove(r Request) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.detached {
		return errDetached
	}
	i := slices.IndexFunc(s.requests, func(o *request) bool { return o.Request == r })
	if i < 0 {
		return fmt.Errorf("%s is not attached for this request", r.Probe)
	}
	served := s.requests[i]
	b := s.batchOf(served)
	s.correction.end(b.inventoriesOf(served))

	s.mu.Lock()
	defer s.mu.Unlock()
	err := b.remove(served)
	l, uncounted := b.losses(served)
	if uncounted == nil {
		s.removed = addLosses(s.removed, l)
	}
	s.requests = slices.Delete(slices.Clone(s.requests), i, i+1)
	err = errors.Join(err, uncounted, b.release(served), b.removeImplied(s.host))
	if len(b.requests) == 0 {
		s.batches = slices.DeleteFunc(slices.Clone(s.batches), func(o *batch) bool { return o == b })
		err = errors.Join(err, b.Close())
	}
	return err
}
