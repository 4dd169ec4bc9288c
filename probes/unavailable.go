//go:build linux

package probes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"trace/probes/event"
	"trace/probes/kernel"
)

// UnavailableError explains why a host does not have some probes, or its kernel refuses them.
type UnavailableError struct {
	Probes []*event.Probe
	Reason string
	// Refused means that the host has the probes and they cannot be attached: the kernel refuses it, or shows too little.
	Refused bool
	// Causes are why each variant cannot be used.
	Causes error
}

// Unwrap returns the causes, and that the host does not support the probes.
func (e *UnavailableError) Unwrap() []error { return []error{errors.ErrUnsupported, e.Causes} }

func (e *UnavailableError) Error() string {
	verb := "is"
	if len(e.Probes) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s not available: %s", e.Names(), verb, e.Reason)
}

// unavailable returns the error of a probe that no variant can attach: a [*kernel.PermissionError] if capabilities are missing for one.
func unavailable(p *event.Probe, causes []error, reason func() string) error {
	all := errors.Join(causes...)
	var denied *kernel.PermissionError
	if errors.As(all, &denied) {
		return fmt.Errorf("%s: %w", p, denied)
	}
	refused := slices.ContainsFunc(causes, func(err error) bool { return err != nil && !absent(err) })
	return &UnavailableError{Probes: []*event.Probe{p}, Reason: reason(), Refused: refused, Causes: all}
}

// absent reports whether a variant cannot be used because this host does not have what it traces.
func absent(err error) bool {
	var function *noFunctionError
	var tracepoint kernel.NoTracepoint
	return errors.Is(err, kernel.ErrNotLoaded) || errors.As(err, &function) || errors.As(err, &tracepoint)
}

// refusedProbe is the error of a probe that the kernel refuses to attach.
func refusedProbe(p *event.Probe, why error) *UnavailableError {
	reason := strings.TrimPrefix(why.Error(), p.String()+": ")
	return &UnavailableError{Probes: []*event.Probe{p}, Reason: strings.ReplaceAll(reason, "\n", "; "), Refused: true, Causes: why}
}

// Of returns the error of one of the probes.
func (e *UnavailableError) Of(p *event.Probe) *UnavailableError {
	return &UnavailableError{Probes: []*event.Probe{p}, Reason: e.Reason, Refused: e.Refused, Causes: e.Causes}
}

// Names returns the names of the probes.
func (e *UnavailableError) Names() string {
	names := make([]string, len(e.Probes))
	for i, p := range e.Probes {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}

// appendUnavailable appends an error, or adds its probes to an error with the same reason.
func appendUnavailable(to []*UnavailableError, e *UnavailableError) []*UnavailableError {
	for i, other := range to {
		if other.Reason == e.Reason {
			to[i] = &UnavailableError{slices.Concat(other.Probes, e.Probes), e.Reason, e.Refused, e.Causes}
			return to
		}
	}
	return append(to, e)
}
