//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// attached is a program and what attaches it.
type attached struct {
	program *ebpf.Program
	place   program
	arg     Arg
	links   []io.Closer // none after detaching
	missed  uint64      // by links that are closed now
	before  uint64      // skipped while it served another request
	// hook is the hook that the program belongs to. helper means that it is a helper: without it events lack fields, but none is lost.
	hook   string
	helper bool
	// delivers means that it delivers events. If what another program keeps for it was skipped, it counts that itself.
	delivers bool
}

// attach attaches a program.
func (a *attached) attach() error {
	links, err := a.place.way.attach(a.program, a.place.target, a.arg)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) { // wherever it would be attached
		return explain(err)
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", a.place.target, err)
	}
	a.links = links
	return nil
}

// misses returns how many runs of the program the kernel has skipped.
func (a *attached) misses() (uint64, error) {
	stats, err := a.program.Stats()
	if err != nil {
		return 0, err
	}
	n := a.missed + stats.RecursionMisses
	for _, l := range a.links {
		n += a.place.way.missed(l)
	}
	return n - a.before, nil
}

// detach closes the links, and keeps the counts that only they have.
func (a *attached) detach() error {
	for _, l := range a.links {
		a.missed += a.place.way.missed(l)
	}
	err := closeAll(a.links)
	a.links = nil
	return err
}

// reattach attaches the program again to the same target.
func (a *attached) reattach() error {
	a.detach() // the links may be gone, so an error means nothing
	return a.attach()
}

// Close detaches and releases the program.
func (a *attached) Close() error { return errors.Join(a.detach(), a.program.Close()) }

// detachAll detaches in the opposite order of attaching: a program at an end goes before the one at its beginning.
func detachAll(all []*attached) error {
	var errs []error
	for _, a := range slices.Backward(all) {
		errs = append(errs, a.detach())
	}
	return errors.Join(errs...)
}

// closeAll closes in the opposite order, like detachAll.
func closeAll[C io.Closer](all []C) error {
	var errs []error
	for _, c := range slices.Backward(all) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
