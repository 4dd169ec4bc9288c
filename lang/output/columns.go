package output

import (
	"fmt"
	"slices"

	"trace/lang/syntax"
	"trace/probes/event"
)

// Columns choose what is printed of events. The zero value prints what people look at: see the marks of fields in bpf/trace.h.
type Columns struct {
	// All makes text print every field.
	All bool
	// Names are exactly the fields to print, in this order; they may include time and probe. nil leaves the choice to the format.
	Names []string
	// Placing returns the fields by which the format places the events of a probe, printed or not; nil: it does not place them.
	Placing func(p *event.Probe) []*event.Field
}

// Columns that are not fields of an event.
const (
	TimeColumn  = "time"  // the time of day of nsecs
	ProbeColumn = "probe" // its name
)

// momentField is the time of an event.
const momentField = "nsecs"

// Fields returns the fields that printing an event of a probe may need.
func (c Columns) Fields(p *event.Probe) []*event.Field {
	fields := c.shown(p)
	if c.Placing != nil {
		for _, f := range c.Placing(p) {
			if !slices.Contains(fields, f) {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// Moment returns the field that gives other output at an event of a probe its time, or nil if the format does not place it.
func (c Columns) Moment(p *event.Probe) *event.Field {
	if c.Placing == nil {
		return nil
	}
	return p.Field(momentField)
}

// Check returns an error if a chosen field is in no event that the program prints. printed are the probes of these events.
func (c Columns) Check(printed []*event.Probe) error {
	if c.Names == nil {
		return nil
	}
	if len(printed) == 0 {
		return fmt.Errorf("no clause prints events: only a clause without a body does")
	}
	known := []string{TimeColumn, ProbeColumn}
	for _, p := range printed {
		for _, f := range p.AllFields() {
			known = append(known, f.Name)
		}
	}
	for i, name := range c.Names {
		switch {
		case !slices.Contains(known, name):
			help := "trace -lv shows the fields of each probe"
			if near := syntax.Nearest(name, known); near != "" {
				help = fmt.Sprintf("did you mean %q?", near)
			}
			return fmt.Errorf("no field %s in %s: %s", name, syntax.Enumerate(printed), help)
		case slices.Contains(c.Names[:i], name):
			return fmt.Errorf("field %s is given twice", name)
		}
	}
	return nil
}

// shown returns the fields that are printed.
func (c Columns) shown(p *event.Probe) []*event.Field {
	switch {
	case c.Names == nil && c.All:
		return slices.Clone(p.Fields)
	case c.Names == nil:
		return slices.DeleteFunc(slices.Clone(p.Fields), func(f *event.Field) bool { return f.Line.Shown == event.Verbose })
	}
	var fields []*event.Field
	for _, name := range c.Names {
		if name == TimeColumn {
			name = momentField
		}
		if f := p.Field(name); f != nil && !slices.Contains(fields, f) {
			fields = append(fields, f)
		}
	}
	return fields
}

// lineForm is how lines of text show the events of a probe: first the fields that are always shown, then those that are shown now
// and then, and last those that only -v shows.
type lineForm struct {
	// nsecs, comm and pid begin the line in a form of their own. A field that the probe lacks is nil.
	nsecs, comm, pid *event.Field
	fields           []lineField
}

type lineField struct {
	*event.Field
	usual    int64 // of an Unusual one
	hasUsual bool
	other    *event.Field // of an Instead one
}

// lineOf makes the form of a probe.
func (c Columns) lineOf(p *event.Probe) *lineForm {
	form := &lineForm{nsecs: p.Field("nsecs"), comm: p.Field("comm"), pid: p.Field("pid")}
	for _, f := range p.Fields {
		if f == form.comm || f == form.pid || f == form.nsecs && !c.All || f.Line.Shown == event.Verbose && !c.All {
			continue
		}
		l := lineField{Field: f}
		l.usual, l.hasUsual = f.Line.Usual(f.Type)
		if f.Line.Shown == event.Instead {
			l.other = p.Field(f.Line.Of)
		}
		form.fields = append(form.fields, l)
	}
	slices.SortStableFunc(form.fields, func(a, b lineField) int { return c.rank(a.Field) - c.rank(b.Field) })
	return form
}

// rank returns the place of a field in a line.
func (c Columns) rank(f *event.Field) int {
	switch f.Line.Shown {
	case event.Verbose:
		return 2
	case event.Instead: // beside a field that is usually absent
		return rank(c.All)
	case event.Always:
		return 2 * rank(f.Name == "nsecs")
	}
	return 1
}

// shows reports whether a line without -v shows the field, whose value is v.
func (l *lineField) shows(e event.Source, v any) bool {
	switch {
	case l.hasUsual:
		return event.To[int64](v) != l.usual
	case l.Line.Shown == event.Detail:
		return !isNothing(v)
	case l.other != nil:
		_, there := e.Get(l.other)
		return !there
	}
	return true
}

// isNothing reports whether a value is 0, false, empty or the address ::.
func isNothing(v any) bool {
	switch v := v.(type) {
	case bool:
		return !v
	case string:
		return v == "" || v == string(make([]byte, 16))
	case int64:
		return v == 0
	}
	return v == uint64(0)
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}
