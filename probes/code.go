package probes

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Code is generated code for the events of a probe: what its programs call and do not define (see EVENT in bpf/trace.h).
type Code struct {
	// Filter is the body of X_filter(ctx, e), which returns a bit for each clause that wants the event; Action is the body of
	// X_action(ctx, e, passed), which is called with them if there are any. Both begin with a plain mov, and their labels are
	// unique among both.
	Filter, Action asm.Instructions
	// Before are the bytes of the event that Filter reads, After those that only Action does. A field is captured if any of its
	// own bytes is among them: the byte that holds its presence bit, which it shares with others, does not count.
	Before, After []Span
	// Source is shown above the first instructions in the verifier's log.
	Source string
}

// Span is Size bytes of the event from Offset.
type Span struct{ Offset, Size int }

// in tells whether a byte of the field is in one of the spans.
func (f *Field) in(spans []Span) bool {
	return slices.ContainsFunc(spans, func(s Span) bool {
		return s.Offset < f.offset+f.Type.Size && f.offset < s.Offset+s.Size
	})
}

// Stages of capture, enum stage in trace.h.
const (
	stageNever = iota
	stageBefore
	stageAfter
)

// stage in which the code wants a field captured.
func (c *Code) stage(f *Field) byte {
	switch {
	case f.in(c.Before):
		return stageBefore
	case f.in(c.After):
		return stageAfter
	default:
		return stageNever
	}
}

// begins is the stage in which the code first wants something that only the beginning of an event tells, X_begins in trace.h.
func (c *Code) begins(p *Probe) byte {
	first := byte(stageNever)
	for _, f := range p.Fields {
		if stage := c.stage(f); len(f.needs) > 0 && stage != stageNever && (first == stageNever || stage < first) {
			first = stage
		}
	}
	return first
}

func (p *Probe) filterName() string { return p.event + "_filter" }
func (p *Probe) actionName() string { return p.event + "_action" }
func (p *Probe) countsName() string { return p.event + "_counts" }

// LostCounter returns where generated code counts the records for which the ring buffer has no room: 64 bits in the only value of
// a per-CPU array.
func (p *Probe) LostCounter() (mapName string, offset int) { return p.countsName(), 8 * countRingFull }

// RingName is the name by which generated code refers to the ring buffer.
const RingName = "events"

// MembersName is the name by which generated code refers to the processes of [AttachOptions.Roots] and their descendants: an array whose
// only value has a byte for each of the PIDs that there can be (bpf/children.bpf.c).
const (
	MembersName = "members"
	PIDs        = 4 << 20
)

// Counters of an event, enum counter in trace.h.
const (
	countPassed = iota
	countRejected
	countRingFull
	countUnmatched
	countInflightFull
	countUnseen
	countUnended
	counters
)

// Request asks for the events of a probe.
type Request struct {
	Probe *Probe
	// Code is what happens to them.
	Code *Code
	// Hz is how often profile:hz samples, a second.
	Hz int
	// Counted lets the programs count the events that pass and that are rejected. Each event costs some ns more.
	Counted bool
	// IfAvailable lets Attach go on without the probe on a host that does not have it; Session.Skipped tells.
	IfAvailable bool
}

// DefaultRingBytes is the size of the ring buffer: about 40,000 events.
const DefaultRingBytes = 4 << 20
