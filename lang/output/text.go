package output

import (
	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// Text is one readable line for each event: enums as names, durations as 1.2ms, sizes as 4KiB, GIDs as addresses. It omits absent
// values and values that people do not look at (see [Columns]). Maps look like bpftrace's, numbers ascending.
const Text Format = "text"

// textForm writes text.
type textForm struct {
	*pen
	// lines are the forms of the events seen so far.
	lines map[*event.Probe]*lineForm
	// headed reports that the head of the table of benchmarks is written.
	headed bool
}

func newTextForm(p *pen) form { return &textForm{pen: p, lines: map[*event.Probe]*lineForm{}} }

func (p *textForm) show([]*event.Probe) { clear(p.lines) }

func (p *textForm) event(probe *event.Probe, e event.Source) error {
	p.line = p.appendEvent(p.line[:0], probe, e)
	return p.endLine()
}

func (p *textForm) text(_ string, b []byte) error {
	p.written = p.written || len(b) > 0
	_, err := p.w.Write(b)
	return err
}

func (p *textForm) value(t event.Type, elems []event.Type, v any, own bool) error {
	if text, ok := v.(string); ok && t.Kind == event.String && own {
		v = format.Verbatim(text)
	}
	p.line = format.Append(p.line[:0], t, elems, v)
	return p.endLine()
}

func (p *textForm) element(t result.Table) error {
	p.line = appendText(p.line[:0], t.Rows[0].Value)
	return p.endLine()
}

func (p *textForm) table(t result.Table) error {
	for _, r := range t.Rows {
		p.line = append(p.line[:0], t.Name...)
		p.line = appendKey(p.line, t, r.Key)
		p.line = append(p.line, ':')
		switch r.Value.(type) {
		case result.Histogram, result.Series:
			p.line = append(p.line, '\n')
		default:
			p.line = append(p.line, ' ')
		}
		p.line = appendText(p.line, r.Value)
		if err := p.endLine(); err != nil {
			return err
		}
	}
	return nil
}

// appendEvent appends `time probe comm/pid name=value …`, or name=value of the chosen fields.
func (p *textForm) appendEvent(b []byte, probe *event.Probe, e event.Source) []byte {
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
func (p *textForm) appendHead(b []byte, form *lineForm, probe *event.Probe, e event.Source) []byte {
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

// appendChosen appends the chosen fields. An absent one is a dash, so each stays in its column.
func (p *textForm) appendChosen(b []byte, probe *event.Probe, e event.Source) []byte {
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
func (p *textForm) appendClock(b []byte, nsecs any) []byte {
	if nsecs == nil {
		return append(b, '-')
	}
	return p.Clock(nsecs).AppendFormat(b, "15:04:05.000000")
}

// commType is the type of the name of a process.
var commType = event.Type{Kind: event.String}
