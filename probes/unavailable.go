//go:build linux

package probes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"trace/probes/event"
)

// This file is why a host does not have a probe.

// Denied returns what a process lacks for requests that the kernel has refused with EPERM, or nil if it lacks nothing.
func (h *Host) Denied(reqs []Request) *PermissionError {
	var denied *PermissionError
	if err := (&Session{host: h}).choose(reqs); errors.As(err, &denied) {
		return denied
	}
	if missing := h.lacking([]string{capBPF}); len(missing) > 0 { // for the maps, if there is nothing to attach
		return &PermissionError{Missing: missing}
	}
	return nil
}

// UnavailableError says why a host does not have some probes.
type UnavailableError struct {
	Probes []*event.Probe
	Reason string
}

func (e *UnavailableError) Error() string {
	verb := "is"
	if len(e.Probes) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s not available: %s", e.Names(), verb, e.Reason)
}

// Names of the probes.
func (e *UnavailableError) Names() string {
	names := make([]string, len(e.Probes))
	for i, p := range e.Probes {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}

// appendUnavailable appends an error, or puts its probes to those that lack for the same reason.
func appendUnavailable(to []*UnavailableError, e *UnavailableError) []*UnavailableError {
	for i, other := range to {
		if other.Reason == e.Reason {
			to[i] = &UnavailableError{slices.Concat(other.Probes, e.Probes), e.Reason}
			return to
		}
	}
	return append(to, e)
}
