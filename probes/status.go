//go:build linux

package probes

import (
	"fmt"
	"slices"
	"strings"

	"trace/probes/event"
)

// Status describes the availability of a probe on this host.
type Status struct {
	Probe *event.Probe
	// Variant that would be used if all fields were wanted, or "" if the probe is not available.
	Variant string
	// Reason why it is not available, and what to do.
	Reason string
	// Notes describe what the probe lacks here although it is available, and what else is worth knowing.
	Notes []string
	// Variants are all the ways to attach it, best first.
	Variants []VariantStatus
}

// Err returns why the probe is not available, or nil: a [*kernel.PermissionError] if capabilities are missing, otherwise an
// [*UnavailableError].
func (s Status) Err() error {
	if s.Variant != "" {
		return nil
	}
	causes := make([]error, len(s.Variants))
	for i, v := range s.Variants {
		causes[i] = v.Err
	}
	return unavailable(s.Probe, causes, func() string { return s.Reason })
}

// Status examines a probe on this host. It loads nothing into the kernel.
func (h *Host) Status(p *event.Probe) Status {
	s := Status{Probe: p}
	whole := h.request(Request{Probe: p, Code: &Code{Before: []Span{{0, p.Size}}}})
	for _, v := range h.hostHookFor(whole, whole.origin.hook).variants() {
		err := v.check()
		s.Variants = append(s.Variants, VariantStatus{Name: v.name(), Err: err, Caps: v.caps})
		if err == nil && s.Variant == "" {
			s.Variant = v.name()
			s.Notes = h.notes(whole.origin, v)
		}
	}
	if s.Variant == "" {
		s.Reason = reason(s.Variants)
	}
	return s
}

// VariantFor returns the variant that would be attached for a request, or "" and why there is none. The kernel may still refuse it.
func (h *Host) VariantFor(r Request) (name, why string) {
	served := h.request(r)
	var all causes
	for _, v := range h.hostHookFor(served, served.origin.hook).variants() {
		err := v.check()
		if err == nil {
			return v.name(), ""
		}
		all = append(all, err)
	}
	return "", h.reasonOf(r.Probe, all)
}

// reason joins the reasons why no variant can be used.
func reason(variants []VariantStatus) string {
	var all causes
	for _, v := range variants {
		all = append(all, v.Err)
	}
	return all.Error()
}

// notes describe the types that a probe reads but this kernel does not describe, optional functions that it lacks, and when another variant
// is used.
func (h *Host) notes(src *origin, v variant) []string {
	var notes []string
	m := src.object.moduleOf(src.hook)
	if missing := missingTypes(h.kernel, src.object, m); len(missing) > 0 && !v.way.readsFtrace() {
		notes = append(notes, fmt.Sprintf("no types of %s (%s): fields that need them are absent or checked guesses; provide them with --btf FILE",
			m.Describer(), strings.Join(missing, " ")))
	}
	if absent := h.absent(v); len(absent) > 0 {
		notes = append(notes, "not traced, because the kernel does not have it (yet): "+strings.Join(absent, ", "))
	}
	return notes
}

// absent returns the names of the optional functions of a variant that are missing.
func (h *Host) absent(v variant) []string {
	there := present(h.kernel, v.programs)
	var names []string
	for _, p := range v.programs {
		isThere := slices.ContainsFunc(there, func(o program) bool { return o.name == p.name && o.target == p.target })
		if !isThere && !slices.Contains(names, p.target) {
			names = append(names, p.target)
		}
	}
	return names
}

// IsTrap reports whether each call that a probe sees is a trap in the traced program, see [Burst].
func (h *Host) IsTrap(p *event.Probe) bool {
	whole := h.request(Request{Probe: p, Code: &Code{Before: []Span{{0, p.Size}}}})
	return slices.ContainsFunc(h.hostHookFor(whole, whole.origin.hook).variants(), func(v variant) bool { return v.way.traps() })
}
