package event

import (
	"path"
	"slices"
	"time"
)

// Field is one named value of an event.
type Field struct {
	// Name as the user writes it, like latency or qp.state.
	Name string
	// Doc is one line: meaning, and origin.
	Doc  string
	Type Type
	// Common fields are in every event: nsecs pid tid uid cpu cgroup comm ppid pgid pidns pcomm.
	Common bool
	// Optional fields may be absent from an event.
	Optional bool
	// Line is when a line of text has the field.
	Line Line

	// Offset is where the value is in the event struct, in bytes.
	Offset int
	// Presence is the bit of the event struct that is set if an optional field is present.
	Presence Bit
	// Of, unless it is nil, is the field with the cgroup whose workload this field names. It has no bytes of its own: whoever wants it captures
	// the cgroup.
	Of *Field

	index int // in Probe.Fields
}

// Bit is a bit of a struct: its byte, and its mask.
type Bit struct {
	Offset int
	Mask   byte
}

// Probe is one kind of event.
type Probe struct {
	// Group and Name form the name that the user writes: nvme:complete_rq.
	Group, Name string
	// Doc is one line: when the event happens.
	Doc string
	// Fields in the order of the event struct; the common ones come first.
	Fields []*Field
	// Workload are the fields that name the workload of the event's cgroup; none if events have no cgroup. They are printed if they are asked for.
	Workload []*Field
	// Size of the event struct in bytes; 0 for a probe of a recording.
	Size int
	// Targets are the functions and tracepoints of kernels where the probe may be attached.
	Targets []string
	// Apart means that a program must name the probe to get its events: they belong to one driver, come often, describe what is there instead of what
	// happens, are dense, or are made of readings.
	Apart bool
	// Echoes means that whoever delivers the events makes more of them: trace leaves out its own.
	Echoes bool
	// Dense, unless it is "", means that the events come too often to send them to user space: what becomes of them must run in the kernel.
	// It names the probe whose events can be sent in place of them.
	Dense string
	// Sampled means that the events are samples: a program must give their rate.
	Sampled bool
	// Period, unless it is 0, means that the events are made of readings, and no task makes them. It is the usual time from one reading to the
	// next. A program may give another one, of at least LeastPeriod.
	Period, LeastPeriod time.Duration
	// Elsewhere means that the task of the events, which their common fields describe, may be another one than the current task, although no
	// common field is absent.
	Elsewhere bool
	// StackOf, unless it is nil, is the argument of its tracepoint that is the task whose stack the kernel stack of an event is, counted from
	// 0; its stack in user space is not known. Otherwise both stacks are the current task's.
	StackOf *int
	// Selector is the field whose values can be written like names of probes, "" if there is none.
	Selector string
}

// NewProbe makes a probe with these fields.
func NewProbe(group, name, doc string, fields []Field) *Probe {
	p := &Probe{Group: group, Name: name, Doc: doc}
	for i, f := range fields {
		f.index = i
		p.Fields = append(p.Fields, &f)
	}
	if cgroup := p.Field("cgroup"); cgroup != nil && cgroup.Common && cgroup.Type.Unit == Cgroup {
		p.Workload = WorkloadOf(cgroup)
	}
	return p
}

// String returns group:name.
func (p *Probe) String() string { return p.Group + ":" + p.Name }

// Field returns the field called name, or nil.
func (p *Probe) Field(name string) *Field {
	for _, fields := range [][]*Field{p.Fields, p.Workload} {
		for _, f := range fields {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}

// AllFields returns all fields. The workload comes last.
func (p *Probe) AllFields() []*Field { return slices.Concat(p.Fields, p.Workload) }

// Match returns the probes whose names match a glob such as nvme:* or *:*_qp.
func Match(all []*Probe, glob string) []*Probe {
	var found []*Probe
	for _, p := range all {
		if ok, err := path.Match(glob, p.String()); ok && err == nil {
			found = append(found, p)
		}
	}
	return found
}

// Describe completes a recorded probe from the catalog's probe of the same name: its documentation, and how lines of text show its fields
// and enums. A recording has only types and values, so events of old recordings are shown like new ones.
func (p *Probe) Describe(known *Probe) {
	p.Apart, p.Sampled, p.Selector = known.Apart, known.Sampled, known.Selector
	p.Period, p.LeastPeriod = known.Period, known.LeastPeriod
	for _, f := range p.Fields {
		k := known.Field(f.Name)
		if k == nil || k.Type.Kind != f.Type.Kind {
			continue
		}
		f.Line = k.Line
		if f.Type.Enum != nil && k.Type.Enum != nil {
			f.Type.Enum.Classes = k.Type.Enum.Classes
		}
	}
}
