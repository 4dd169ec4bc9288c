//go:build linux

package probes

import (
	"errors"
	"fmt"
	"sync"
)

// A session is the [traps] of its windows.
var _ traps = (*Session)(nil)

func (s *Session) let(open bool) error {
	var value byte
	if open {
		value = 1
	}
	var errs []error
	for _, b := range s.batches {
		errs = append(errs, b.gate.set(value))
	}
	return errors.Join(errs...)
}

func (s *Session) pause() error {
	errs := []error{s.eachTrap(pausable.Pause)}
	for _, b := range s.batches {
		errs = append(errs, b.gate.empty())
	}
	return errors.Join(errs...)
}

func (s *Session) resume() error { return s.eachTrap(pausable.Resume) }

func (s *Session) change(do func() error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := do(); err != nil {
		s.notes.add(nil, fmt.Sprintf("--burst: a window could not be opened or closed: %v", err))
	}
}

// eachTrap calls a method of all links of traps side by side: each may wait until the kernel has left the programs.
func (s *Session) eachTrap(do func(pausable) error) error {
	var all []pausable
	for _, b := range s.batches {
		for _, r := range b.requests {
			all = append(all, r.pausables()...)
		}
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pausables returns the links of the traps.
func (r *request) pausables() (all []pausable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attached {
		for _, l := range a.links {
			if p, ok := l.(pausable); ok {
				all = append(all, p)
			}
		}
	}
	return all
}
