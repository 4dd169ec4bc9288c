package output

import (
	"slices"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// This file writes events as JSON objects.

// member is a member of a JSON object: a field, or an object of the fields whose names begin with its name and a dot.
type member struct {
	name    string
	field   *event.Field // nil for an object, and for a chosen field that the probe lacks
	members []member
}

// objects are the forms of the events seen so far.
type objects map[*event.Probe][]member

// append appends the chosen fields of an event.
func (o objects) append(b []byte, c Columns, probe *event.Probe, e event.Source) []byte {
	object, ok := o[probe]
	if !ok {
		object = c.objectOf(probe)
		o[probe] = object
	}
	return appendObject(b, object, e)
}

// objectOf makes an object of the printed fields, in their order: qp.num and qp.state are members of one object, qp. The probe and
// the time of day always stand beside it.
func (c Columns) objectOf(probe *event.Probe) (object []member) {
	if c.Names != nil {
		for _, name := range c.Names {
			if f := probe.Field(name); f != nil || name != ProbeColumn && name != TimeColumn {
				object = insert(object, name, f)
			}
		}
		return object
	}
	for _, f := range probe.Fields {
		object = insert(object, f.Name, f)
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

func appendObject(b []byte, object []member, e event.Source) []byte {
	b = append(b, '{')
	for i, m := range object {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(format.AppendJSONString(b, m.name), ':')
		switch {
		case m.members != nil:
			b = appendObject(b, m.members, e)
		case m.field == nil:
			b = append(b, "null"...)
		default:
			b = appendTyped(b, m.field.Type, get(e, m.field))
		}
	}
	return append(b, '}')
}
