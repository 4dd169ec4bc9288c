package trace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"trace/lang/exec"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/result"
	"trace/lang/run"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Events runs a program that only selects events, and yields them as values of the struct T. The tags of its fields name what is captured, and
// nothing besides is:
//
//	type flow struct {
//		Time time.Time              `trace:"time"`
//		QP   trace.Optional[uint32] `trace:"qp.num"`
//		SGID netip.Addr             `trace:"sgid"`
//	}
//
// A field has the type of its value, or one that is larger: an integer, a string, a bool; [time.Duration] and [Bytes] for numbers with these
// units; [Name] or a string for enums; [Cgroup]; [netip.Addr] or [16]byte for addresses; any. "time" is the [time.Time] of the event, and
// "probe" the name of its probe. A value that may be absent needs a type that can be: a pointer, [Optional], [Name], [netip.Addr], [Cgroup] or
// any. Before anything is attached, an unknown field, a type that does not fit, and a program that does more than select are an [*Error].
//
// The iteration ends with ctx, with the recording, or when the loop is left. Everything is detached then. The last thing that it yields may be an
// error: of the program, or [ErrPermission], [ErrModule] or [ErrUnsupported]. While the loop runs, events wait in the buffer from the kernel
// (see [Buffer]). The option [WithLogger] logs losses.
func Events[T any](ctx context.Context, h *Host, program string, o ...RunOption) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false
		err := h.events(ctx, program, o, reflect.TypeFor[T](), func(v reflect.Value) bool {
			left = !yield(v.Interface().(T), nil)
			return !left
		})
		if err != nil && !left {
			var none T
			yield(none, err)
		}
	}
}

// events runs a program and calls yield for each event, until it returns false.
func (h *Host) events(ctx context.Context, program string, o []RunOption, t reflect.Type, yield func(reflect.Value) bool) error {
	bound, err := bind(t)
	if err != nil {
		return err
	}
	p := &Program{host: h, options: run.Options{Name: "program", Text: program}}
	s, err := p.settingFor(o)
	if err != nil {
		return err
	}
	s.Columns = output.Columns{Names: bound.columns()}
	r, err := h.prepare(s.Options)
	if err != nil {
		return err
	}
	decoders, err := bound.decoders(r.Program())
	if err != nil {
		return errors.Join(err, r.release())
	}
	console := h.notes()
	ended, err := r.Run(ctx, run.Outputs{Note: unlessLeft(console.Show), Sink: func(printer exec.Sink) exec.Sink {
		return eventSink{printer, t, decoders, yield}
	}})
	if ended != nil {
		console.Report(ended.Report)
		err = errors.Join(err, ended.Close())
	}
	return errors.Join(err, r.release())
}

// eventSink passes the events of a program on.
type eventSink struct {
	exec.Sink
	of       reflect.Type
	decoders map[*event.Probe][]decoder
	yield    func(reflect.Value) bool
}

func (s eventSink) Event(_ result.Moment, p *event.Probe, e event.Source) error {
	v := reflect.New(s.of).Elem()
	for _, d := range s.decoders[p] {
		if x, ok := d.get(s.Sink, e); ok {
			d.set(v.FieldByIndex(d.index), x)
		}
	}
	if !s.yield(v) {
		return run.ErrEnough
	}
	return nil
}

// binding are the fields of a struct that have a tag.
type binding []boundField

type boundField struct {
	reflect.StructField
	column string
}

// bind reads the tags of a struct.
func bind(t reflect.Type) (binding, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("events: %v is not a struct", t)
	}
	var all binding
	for _, f := range reflect.VisibleFields(t) {
		column, tagged := f.Tag.Lookup("trace")
		switch {
		case !tagged:
			continue
		case !f.IsExported():
			return nil, fmt.Errorf("events: field %s of %v has a tag, but is not exported", f.Name, t)
		case throughPointer(t, f.Index):
			return nil, fmt.Errorf("events: field %s of %v is in an embedded pointer: embed the struct itself", f.Name, t)
		case column == "":
			return nil, fmt.Errorf("events: field %s of %v has an empty tag: write `trace:\"pid\"`", f.Name, t)
		}
		all = append(all, boundField{f, column})
	}
	if all == nil {
		return nil, fmt.Errorf("events: no field of %v has a tag like `trace:\"pid\"`", t)
	}
	return all, nil
}

// throughPointer reports whether a field is in an embedded pointer to a struct.
func throughPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

func (b binding) columns() []string {
	var names []string
	for _, f := range b {
		names = append(names, f.column)
	}
	return names
}

// decoder sets a field of the struct.
type decoder struct {
	index []int
	get   func(exec.Presentation, event.Source) (any, bool)
	set   func(reflect.Value, any)
}

// decoders checks the fields against the probes of a program, and returns what fills them.
func (b binding) decoders(p *ir.Program) (map[*event.Probe][]decoder, error) {
	errs := syntax.ErrorList{}
	all := map[*event.Probe][]decoder{}
	for _, c := range p.Clauses {
		if c.Kind != ir.OnEvent || len(c.Probes) > 0 && !c.Sites[c.Probes[0]].Prints {
			errs = append(errs, p.Text.Error(c.Span, "Events takes only programs that select events", "remove the body, or use Host.Compile"))
		}
	}
	if len(errs) > 0 {
		return nil, errs.Err()
	}
	printed := p.Printed()
	for _, f := range b {
		for _, c := range p.Clauses {
			if len(c.Probes) == 0 {
				continue
			}
			if msg, help := f.mistake(c.Probes, printed); msg != "" {
				errs = append(errs, p.Text.Error(c.Span, msg, help))
				break
			}
		}
		for _, probe := range printed {
			if d, ok := f.decoder(probe); ok {
				all[probe] = append(all[probe], d)
			}
		}
	}
	return all, errs.Err()
}

// mistake returns what is wrong with the field for the probes of a clause, and advice, or "". printed are the probes of the whole program.
func (f boundField) mistake(probes, printed []*event.Probe) (msg, help string) {
	if want, is := map[string]reflect.Type{output.TimeColumn: reflect.TypeFor[time.Time](), output.ProbeColumn: reflect.TypeFor[string]()}[f.column]; is {
		if f.Type != want {
			return fmt.Sprintf("%s is a %v: field %s is a %v", f.column, want, f.Name, f.Type), fmt.Sprintf("give it the type %v", want)
		}
		return "", ""
	}
	if err := (output.Columns{Names: []string{f.column}}).Check(printed); err != nil {
		msg, help, _ = strings.Cut(err.Error(), ": ")
		return fmt.Sprintf("field %s of the struct: %s", f.Name, msg), help
	}
	for _, p := range probes {
		field := p.Field(f.column)
		switch {
		case (field == nil || field.Optional) && !canBeAbsent(f.Type):
			return fmt.Sprintf("%s may be absent from events of %s: field %s has the type %v, which cannot be", f.column, p, f.Name, f.Type),
				fmt.Sprintf("use *%v or trace.Optional[%[1]v]", f.Type)
		case field != nil && setterFor(f.Type, field.Type) == nil:
			return fmt.Sprintf("%s of %s is %s: field %s has the type %v", f.column, p, describe(field.Type), f.Name, f.Type), "use " + goTypeFor(field.Type)
		}
	}
	return "", ""
}

// decoder returns what fills the field from events of a probe; ok is false if nothing does.
func (f boundField) decoder(p *event.Probe) (d decoder, ok bool) {
	d.index = f.Index
	d.set = func(to reflect.Value, v any) { to.Set(reflect.ValueOf(v)) }
	switch f.column {
	case output.ProbeColumn:
		name := p.String()
		d.get = func(exec.Presentation, event.Source) (any, bool) { return name, true }
	case output.TimeColumn:
		nsecs := p.Field("nsecs")
		d.get = func(s exec.Presentation, e event.Source) (any, bool) {
			v, ok := e.Get(nsecs)
			if !ok {
				return nil, false
			}
			return s.Clock(v), true
		}
	default:
		field := p.Field(f.column)
		if field == nil {
			return d, false
		}
		d.get = func(_ exec.Presentation, e event.Source) (any, bool) { return e.Get(field) }
		d.set = setterFor(f.Type, field.Type)
	}
	return d, true
}

// canBeAbsent reports whether a type has a value for an absent one.
func canBeAbsent(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[Name](), reflect.TypeFor[Cgroup]():
		return true
	}
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface || isOptional(t)
}

func isOptional(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[optional]())
}

// setterFor returns what sets a Go value to a value of a type, or nil if its Go type does not fit.
func setterFor(to reflect.Type, t event.Type) func(reflect.Value, any) {
	switch {
	case to.Kind() == reflect.Pointer:
		set := setterFor(to.Elem(), t)
		if set == nil {
			return nil
		}
		return func(at reflect.Value, v any) {
			at.Set(reflect.New(to.Elem()))
			set(at.Elem(), v)
		}
	case isOptional(to):
		set := setterFor(to.Field(0).Type, t)
		if set == nil {
			return nil
		}
		return func(at reflect.Value, v any) {
			set(reflect.ValueOf(at.Addr().Interface().(optional).hold()).Elem(), v)
		}
	case to.Kind() == reflect.Interface && to.NumMethod() == 0:
		return func(at reflect.Value, v any) { at.Set(reflect.ValueOf(goValue(t, v))) }
	case t.Kind == event.String && to.Kind() == reflect.String:
		return func(at reflect.Value, v any) { at.SetString(v.(string)) }
	case t.Kind == event.Bool && to.Kind() == reflect.Bool:
		return func(at reflect.Value, v any) { at.SetBool(v.(bool)) }
	case t.Kind == event.GID:
		return addressSetter(to, t)
	case event.IsNumber(t):
		return numberSetter(to, t)
	}
	return nil
}

func addressSetter(to reflect.Type, t event.Type) func(reflect.Value, any) {
	switch to {
	case reflect.TypeFor[netip.Addr]():
		return func(at reflect.Value, v any) { at.Set(reflect.ValueOf(format.Address(t, v.(string)))) }
	case reflect.TypeFor[[16]byte]():
		return func(at reflect.Value, v any) { at.Set(reflect.ValueOf([16]byte([]byte(v.(string))))) }
	}
	return nil
}

func numberSetter(to reflect.Type, t event.Type) func(reflect.Value, any) {
	named := t.Unit == event.Errno || t.Enum != nil
	switch {
	case to == reflect.TypeFor[Cgroup]():
		if t.Unit != event.Cgroup {
			return nil
		}
		return func(at reflect.Value, v any) { at.Set(reflect.ValueOf(cgroupOf(t, v))) }
	case to.Kind() == reflect.String:
		if !named || t.Unit == event.Cgroup {
			return nil
		}
		return func(at reflect.Value, v any) { at.SetString(string(nameOf(t, v))) }
	case to == reflect.TypeFor[time.Duration]() && t.Unit != event.Nanoseconds, to == reflect.TypeFor[Bytes]() && t.Unit != event.Bytes:
		return nil
	case to == reflect.TypeFor[time.Duration](), to == reflect.TypeFor[Bytes]():
		return func(at reflect.Value, v any) { at.SetInt(limited(v)) }
	}
	switch bits := 8 * t.Size; {
	case isInt(to) && (to.Bits() > bits || to.Bits() == bits && t.Kind == event.Int):
		return func(at reflect.Value, v any) { at.SetInt(event.To[int64](v)) }
	case isUint(to) && to.Bits() >= bits && t.Kind == event.Uint:
		return func(at reflect.Value, v any) { at.SetUint(event.To[uint64](v)) }
	}
	return nil
}

// limited returns a number as an int64, the largest one if it is larger: a duration of 292 years.
func limited(v any) int64 {
	if !fits(v) {
		return math.MaxInt64
	}
	return event.To[int64](v)
}

func isInt(t reflect.Type) bool  { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 }
func isUint(t reflect.Type) bool { return t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 }

// describe describes a type for messages.
func describe(t event.Type) string {
	switch {
	case t.Unit == event.Cgroup:
		return "a cgroup"
	case t.Kind == event.GID:
		return "an address"
	case t.Kind == event.String:
		return "a string"
	case t.Kind == event.Bool:
		return "a bool"
	}
	return fmt.Sprintf("a number of the type %s", numberType(t))
}

func numberType(t event.Type) string {
	if t.Kind == event.Int {
		return fmt.Sprintf("int%d", 8*t.Size)
	}
	return fmt.Sprintf("uint%d", 8*t.Size)
}

// goTypeFor returns Go types that hold a value, for advice.
func goTypeFor(t event.Type) string {
	switch {
	case t.Unit == event.Cgroup:
		return "trace.Cgroup"
	case t.Kind == event.GID:
		return "netip.Addr"
	case t.Kind == event.String:
		return "string"
	case t.Kind == event.Bool:
		return "bool"
	case t.Enum != nil:
		return "trace.Name, or " + numberType(t)
	case t.Unit == event.Nanoseconds:
		return "time.Duration, or " + numberType(t)
	case t.Unit == event.Bytes:
		return "trace.Bytes, or " + numberType(t)
	}
	return numberType(t)
}
