package probes

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// Code is generated code for the events of a probe: the functions that its programs call but do not define (see EVENT in bpf/trace.h).
type Code struct {
	// Filter is the body of X_filter(ctx, e), which returns a bit for each clause that wants the event. Action is the body of X_action(ctx,
	// e, passed), which is called if any bit is set. Both begin with a plain mov, and their labels are unique among both.
	Filter, Action asm.Instructions
	// Before are the bytes of the event that Filter reads, After the bytes that only Action reads. A field is captured if any of its own
	// bytes is among them. The byte with its presence bit, which it shares with other fields, does not count.
	Before, After []Span
	// Text is shown above the first instructions in the verifier's log.
	Text string
}

// LeastStack is how many bytes of stack the filter and the action of any probe may use.
const LeastStack = 88

// Span is Size bytes of the event from Offset.
type Span struct{ Offset, Size int }

// holds reports whether a byte of the field is in one of the spans.
func holds(spans []Span, f *event.Field) bool {
	return slices.ContainsFunc(spans, func(s Span) bool {
		return s.Offset < f.Offset+f.Type.Size && f.Offset < s.Offset+s.Size
	})
}

// Stages of capture, enum stage in trace.h.
const (
	stageNever = iota
	stageBefore
	stageAfter
)

// stage returns the stage in which the code wants a field captured.
func (c *Code) stage(f *event.Field) byte {
	switch {
	case holds(c.Before, f):
		return stageBefore
	case holds(c.After, f):
		return stageAfter
	default:
		return stageNever
	}
}

// structName returns the name of the event's struct in C, which is also the prefix of its functions and maps.
func structName(p *event.Probe) string { return p.Group + "_" + p.Name }

func filterName(p *event.Probe) string { return structName(p) + "_filter" }
func actionName(p *event.Probe) string { return structName(p) + "_action" }
func countsName(p *event.Probe) string { return structName(p) + "_counts" }

// LostCounter returns where generated code counts the records that did not fit into the ring buffer: 64 bits in the only value of a per-CPU
// array.
func LostCounter(p *event.Probe) (mapName string, offset int) {
	return countsName(p), 8 * countRingFull
}

// RingName is the name of the ring buffer in generated code.
const RingName = "events"

// MembersName is the name in generated code of the processes of [AttachOptions.Roots] and their descendants: an array whose only value has
// a byte for each possible PID (bpf/children.bpf.c).
const (
	MembersName = "members"
	PIDs        = 4 << 20
)

// CgroupsName is the name in generated code of the cgroup of [AttachOptions.Cgroup] and those below it: a hash whose keys are the ids
// (bpf/cgroups.bpf.c).
const CgroupsName = "cgroups"

// QuestionName returns the name of the map of question i of [AttachOptions.Questions].
func QuestionName(i int) string { return fmt.Sprintf("cgroups%d", i) }

// Counters of an event, enum counter in trace.h.
const (
	countPassed = iota
	countRejected
	countRingFull
	countUnmatched
	countInflightFull
	countUnseen
	countUnended
	countCut
	countLate
	counters
)
