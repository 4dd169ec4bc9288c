//go:build linux

package probes

import (
	"errors"
	"slices"

	"trace/probes/kernel"
)

// choose returns what serves the requests whose probes this host has, and why it lacks others. It fails, before anything is loaded, if a
// required probe is missing, and names all missing ones; or if no request is left.
func (h *Host) choose(reqs []Request) (served []*request, skipped []*UnavailableError, err error) {
	var missing []*UnavailableError
	for _, r := range reqs {
		rq, err := h.serve(r)
		if err != nil {
			return nil, nil, err
		}
		err = h.available(rq)
		var unavailable *UnavailableError
		switch {
		case err == nil:
			served = append(served, rq)
		case !errors.As(err, &unavailable):
			return nil, nil, err
		case r.IfAvailable:
			skipped = appendUnavailable(skipped, unavailable)
		default:
			missing = appendUnavailable(missing, unavailable)
		}
	}
	if len(served) == 0 && !slices.ContainsFunc(reqs, func(r Request) bool { return r.OrNone }) {
		for _, e := range skipped {
			missing = appendUnavailable(missing, e)
		}
	}
	var errs []error
	for _, e := range missing {
		errs = append(errs, e)
	}
	return served, skipped, errors.Join(errs...)
}

// Available returns the error that [Attach] would return because a probe is missing, without loading anything.
func Available(h *Host, reqs []Request) error {
	_, _, err := h.choose(reqs)
	return err
}

// Denied returns the capabilities that a process lacks for requests that the kernel has refused with EPERM, or nil if it lacks none.
func (h *Host) Denied(reqs []Request) *kernel.PermissionError {
	var denied *kernel.PermissionError
	if _, _, err := h.choose(reqs); errors.As(err, &denied) {
		return denied
	}
	if missing := h.kernel.Lacking([]string{kernel.CapBPF}); len(missing) > 0 { // for the maps, if there is nothing to attach
		return &kernel.PermissionError{Missing: missing}
	}
	return nil
}
