package output

import (
	"slices"
	"strings"
	"time"

	"trace/lang/format"
	"trace/probes/event"
)

// This file writes events as JSON objects.

// member is a member of a JSON object: a field, the name of the probe, the time of day, or an object of the fields whose names begin with
// its name and a dot.
type member struct {
	name    string
	field   *event.Field // nil for all others, and for a chosen field that the probe lacks
	members []member
}

// objectOf returns the object of the events of a probe.
func (p *Printer) objectOf(probe *event.Probe) []member {
	object, ok := p.objects[probe]
	if !ok {
		object = p.columns.objectOf(probe)
		p.objects[probe] = object
	}
	return object
}

// objectOf makes an object of what is printed, in its order: qp.num and qp.state are members of one object, qp. Without a choice the time
// of day comes after nsecs, which it is computed from. The name of the probe is in any case there.
func (c Columns) objectOf(probe *event.Probe) []member {
	object := []member{{name: ProbeColumn}}
	if c.Names != nil {
		for _, name := range c.Names {
			if name != ProbeColumn {
				object = insert(object, name, probe.Field(name))
			}
		}
		return object
	}
	for _, f := range probe.Fields {
		object = insert(object, f.Name, f)
		if f.Name == "nsecs" {
			object = append(object, member{name: TimeColumn})
		}
	}
	return object
}

func insert(object []member, name string, f *event.Field) []member {
	head, rest, nested := strings.Cut(name, ".")
	if !nested {
		return append(object, member{name: name, field: f})
	}
	i := slices.IndexFunc(object, func(m member) bool { return m.name == head && m.members != nil })
	if i < 0 {
		i = len(object)
		object = append(object, member{name: head})
	}
	object[i].members = insert(object[i].members, rest, f)
	return object
}

// appendObject appends the members, and closes the object.
func (p *Printer) appendObject(b []byte, probe *event.Probe, object []member, e Source) []byte {
	for i, m := range object {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(format.AppendJSONString(b, m.name), ':')
		switch {
		case m.members != nil:
			b = p.appendObject(append(b, '{'), probe, m.members, e)
		case m.name == ProbeColumn && m.field == nil:
			b = format.AppendJSONString(b, probe.String())
		case m.name == TimeColumn && m.field == nil:
			b = p.appendTimeJSON(b, probe, e)
		default:
			b = appendField(b, m.field, e)
		}
	}
	return append(b, '}')
}

func (p *Printer) appendTimeJSON(b []byte, probe *event.Probe, e Source) []byte {
	nsecs := get(e, probe.Field("nsecs"))
	if nsecs == nil {
		return append(b, "null"...)
	}
	return append(p.Clock(nsecs).AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendField(b []byte, f *event.Field, e Source) []byte {
	v := get(e, f)
	if v == nil {
		return append(b, "null"...)
	}
	return format.AppendJSONValue(b, f.Type, v)
}
