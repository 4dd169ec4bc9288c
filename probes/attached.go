//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"
)

// attached is a program, and what attaches it.
type attached struct {
	program *ebpf.Program
	place   program
	arg     Arg
	links   []io.Closer // none after detaching
	missed  uint64      // by links that are closed
	before  uint64      // skipped when it served another request
	// hook that it belongs to; helper says that this is one of the helpers: without it events lack fields, and none is lost.
	hook   string
	helper bool
	// tells says that it tells of events. What another program keeps for it, and was skipped, it misses and counts itself.
	tells bool
}

// attach attaches a program.
func (a *attached) attach() error {
	links, err := a.place.way.attach(a.program, a.place.target, a.arg)
	if err != nil {
		return fmt.Errorf("attach to %s: %w", a.place.target, explain(err))
	}
	a.links = links
	return nil
}

// misses is how many runs of the program the kernel has skipped.
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

// detach closes the links, and keeps what only they can tell.
func (a *attached) detach() error {
	for _, l := range a.links {
		a.missed += a.place.way.missed(l)
	}
	err := closeAll(a.links)
	a.links = nil
	return err
}

// reattach attaches the program anew where it was.
func (a *attached) reattach() error {
	a.detach() // of what is gone, an error would say nothing
	return a.attach()
}

// Close detaches and releases the program.
func (a *attached) Close() error { return errors.Join(a.detach(), a.program.Close()) }

// detachAll goes in the opposite order of attaching: ends are no longer seen before beginnings are not.
func detachAll(all []*attached) error {
	var errs []error
	for _, a := range slices.Backward(all) {
		errs = append(errs, a.detach())
	}
	return errors.Join(errs...)
}

// closeAll goes in the opposite order, as detachAll does.
func closeAll[C io.Closer](all []C) error {
	var errs []error
	for _, c := range slices.Backward(all) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
