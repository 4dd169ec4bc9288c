package output

import (
	"time"

	"trace/lang/format"
	"trace/probes/event"
)

// This file writes events as lines of text.

// appendText appends `time probe comm/pid name=value …`, or name=value of the chosen fields.
func (p *Printer) appendText(b []byte, probe *event.Probe, e Source) []byte {
	if p.columns.Names != nil {
		return p.appendChosen(b, probe, e)
	}
	form, ok := p.lines[probe]
	if !ok {
		form = p.columns.lineOf(probe)
		p.lines[probe] = form
	}
	b = p.appendHead(b, form, probe, e)
	for i := range form.fields {
		f := &form.fields[i]
		v, ok := e.Get(f.Field)
		if ok && (p.columns.All || f.shows(e, v)) {
			b = append(append(append(b, ' '), f.Name...), '=')
			b = format.AppendValue(b, f.Type, p.Presentable(f.Type, nil, v))
		}
	}
	return b
}

// appendHead appends who did what, and when.
func (p *Printer) appendHead(b []byte, form *lineForm, probe *event.Probe, e Source) []byte {
	b = p.appendClock(b, get(e, form.nsecs))
	b = append(append(append(b, ' '), probe.String()...), ' ')
	if comm := get(e, form.comm); comm != nil {
		b = format.AppendValue(b, commType, p.Presentable(commType, nil, comm))
	} else {
		b = append(b, '-')
	}
	b = append(b, '/')
	if pid := get(e, form.pid); pid != nil {
		return format.AppendNumber(b, pid)
	}
	return append(b, '-')
}

// appendChosen appends the chosen fields. One that is absent is a dash, so that each stays in its column.
func (p *Printer) appendChosen(b []byte, probe *event.Probe, e Source) []byte {
	for i, name := range p.columns.Names {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, name...), '=')
		switch name {
		case TimeColumn:
			b = p.appendClock(b, get(e, probe.Field("nsecs")))
		case ProbeColumn:
			b = append(b, probe.String()...)
		default:
			f := probe.Field(name)
			if v := get(e, f); v != nil {
				b = format.AppendValue(b, f.Type, p.Presentable(f.Type, nil, v))
			} else {
				b = append(b, '-')
			}
		}
	}
	return b
}

// appendClock appends the time of day of nsecs, or a dash.
func (p *Printer) appendClock(b []byte, nsecs any) []byte {
	if nsecs == nil {
		return append(b, '-')
	}
	return p.Clock(nsecs).AppendFormat(b, "15:04:05.000000")
}

// get returns the value of a field, or nil if it is absent, or there is no such field.
func get(e Source, f *event.Field) any {
	if f == nil {
		return nil
	}
	if v, ok := e.Get(f); ok {
		return v
	}
	return nil
}

// Clock is the time of day of nsecs.
func (p *Printer) Clock(nsecs any) time.Time {
	return p.boot.Add(time.Duration(event.To[int64](nsecs)))
}

// commType is the type of the name of a process.
var commType = event.Type{Kind: event.String}
