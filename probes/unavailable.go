//go:build linux

package probes

import (
	"fmt"
	"slices"
	"strings"

	"trace/probes/event"
)

// UnavailableError explains why a host does not have some probes.
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
			to[i] = &UnavailableError{slices.Concat(other.Probes, e.Probes), e.Reason}
			return to
		}
	}
	return append(to, e)
}
