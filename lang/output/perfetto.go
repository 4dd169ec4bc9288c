package output

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file writes events on a time axis, in the Trace Event Format of Chrome, which Perfetto, chrome://tracing and speedscope
// open.
//
// An event with a latency is a slice that ends at the time of the event; any other event is an instant. Each is on the track of its
// queue or QP, or of its CPU. In the format tracks are threads, and devices are processes. Slices of one thread must not overlap,
// so a track has lanes, each a thread. Printed maps are counters. Other output consists of instants of the program.
//
// Everything is written at once, so memory holds only which tracks and counters there are.

// Perfetto is a JSON object with the events of a trace.
const Perfetto Format = "perfetto"

// perfettoForm writes traces.
type perfettoForm struct {
	*pen
	objects objects
	places  map[*event.Probe]*place
	// separator comes before the next object of the list; "" before the first.
	separator string
	// midnight is the midnight before the first written time, on the clock of nsecs; nil before.
	midnight  *int64
	processes map[string]*process
	threads   int
	// counters are the names of the numbers of each counter of a map, by the names of the map and of the counter.
	counters map[string]map[string][]string
}

func newPerfettoForm(p *pen) form {
	return &perfettoForm{
		pen: p, objects: objects{}, places: map[*event.Probe]*place{}, processes: map[string]*process{}, counters: map[string]map[string][]string{},
	}
}

func (p *perfettoForm) show([]*event.Probe) {
	clear(p.objects)
	clear(p.places)
}

func (p *perfettoForm) begin() error {
	if p.separator != "" {
		return nil
	}
	p.separator = "\n"
	p.line = append(p.line[:0], `{"displayTimeUnit":"ns","traceEvents":[`...)
	return p.flush()
}

func (p *perfettoForm) end() error {
	if p.separator == "" {
		return nil
	}
	p.line = append(p.line[:0], "\n]}\n"...)
	return p.flush()
}

// object begins an object of a phase, the format's word for a kind.
func (p *perfettoForm) object(phase, name string) error {
	if err := p.begin(); err != nil {
		return err
	}
	p.line = append(append(append(p.line[:0], p.separator...), `{"ph":"`...), phase...)
	p.line = format.AppendJSONString(append(p.line, `","name":`...), name)
	p.separator = ",\n"
	return nil
}

// number appends a member.
func (p *perfettoForm) number(name string, n int) {
	p.line = append(append(append(p.line, `,"`...), name...), `":`...)
	p.line = strconv.AppendInt(p.line, int64(n), 10)
}

// micros appends a member with a time, in microseconds.
func (p *perfettoForm) micros(name string, nsecs int64) {
	p.line = append(append(append(p.line, `,"`...), name...), `":`...)
	var n uint64
	p.line, n = format.AppendSign(p.line, nsecs)
	p.line = strconv.AppendUint(p.line, n/1000, 10)
	if rest := n % 1000; rest > 0 {
		digits := strconv.AppendUint(nil, 1000+rest, 10)
		p.line = append(append(p.line, '.'), digits[1:]...)
	}
}

// at appends a time since the midnight before the first one. Readers of traces take times for doubles, which could not distinguish
// nanoseconds if times counted from a boot some hundred days ago.
func (p *perfettoForm) at(nsecs int64) {
	if p.midnight == nil {
		first := p.Clock(nsecs)
		y, m, d := first.Date()
		midnight := nsecs - int64(first.Sub(time.Date(y, m, d, 0, 0, 0, 0, first.Location())))
		p.midnight = &midnight
	}
	p.micros("ts", nsecs-*p.midnight)
}

// place has the fields by which the events of a probe find their place. A field that the probe lacks is nil.
type place struct {
	nsecs, latency, cpu, host *event.Field
	// device has several things that number distinguishes; title is their name.
	device, number *event.Field
	title          string
	// what describes an event besides its probe.
	what *event.Field
}

func placeOf(probe *event.Probe) *place {
	at := &place{
		nsecs: probe.Field(momentField), latency: probe.Field("latency"), cpu: probe.Field("cpu"), host: probe.Field("host"),
		what: cmp.Or(probe.Field("opcode"), probe.Field("nr")),
	}
	if at.latency != nil && !event.IsNumber(at.latency.Type) {
		at.latency = nil
	}
	if at.host != nil && at.host.Line.Shown == event.Verbose { // all events are of the same host
		at.host = nil
	}
	for _, kind := range []struct{ title, device, number string }{{"qid", "ctrl", "qid"}, {"QP", "dev", "qp.num"}} {
		if number := probe.Field(kind.number); number != nil {
			at.title, at.device, at.number = kind.title, probe.Field(kind.device), number
		}
	}
	return at
}

// placing returns the fields of a place.
func placing(probe *event.Probe) []*event.Field {
	at := placeOf(probe)
	all := []*event.Field{at.nsecs, at.latency, at.cpu, at.host, at.device, at.number, at.what}
	return slices.DeleteFunc(all, func(f *event.Field) bool { return f == nil })
}

func (p *perfettoForm) placeOf(probe *event.Probe) *place {
	at := p.places[probe]
	if at == nil {
		at = placeOf(probe)
		p.places[probe] = at
	}
	return at
}

// fieldText returns the value of a field as it is printed, or "" if it is absent.
func fieldText(e event.Source, f *event.Field) string {
	v := get(e, f)
	if v == nil {
		return ""
	}
	return string(format.Append(nil, f.Type, nil, v))
}

// process is a device, the CPUs or the program. track is a part of it.
type process struct {
	id     int
	tracks map[string]*track
}

// track is a queue, a QP or a CPU. Its first lane has its name.
type track struct{ lanes []lane }

// lane is a thread of a track. ended is when its last slice ended.
type lane struct {
	thread int
	ended  int64
}

// process returns the process of a name.
func (p *perfettoForm) process(name string) (*process, error) {
	if known := p.processes[name]; known != nil {
		return known, nil
	}
	found := &process{id: len(p.processes) + 1, tracks: map[string]*track{}}
	p.processes[name] = found
	if err := p.object("M", "process_name"); err != nil {
		return nil, err
	}
	p.number("pid", found.id)
	return found, p.name(name)
}

// track returns the track of a name in a process.
func (p *perfettoForm) track(of *process, name string) (*track, error) {
	if known := of.tracks[name]; known != nil {
		return known, nil
	}
	found := &track{}
	of.tracks[name] = found
	return found, p.addLane(of, found, name)
}

func (p *perfettoForm) addLane(of *process, t *track, name string) error {
	p.threads++
	t.lanes = append(t.lanes, lane{thread: p.threads, ended: math.MinInt64})
	if n := len(t.lanes); n > 1 {
		name += " #" + strconv.Itoa(n)
	}
	if err := p.object("M", "thread_name"); err != nil {
		return err
	}
	p.number("pid", of.id)
	p.number("tid", p.threads)
	return p.name(name)
}

// name ends the object that names a process or a thread.
func (p *perfettoForm) name(name string) error {
	p.line = append(format.AppendJSONString(append(p.line, `,"args":{"name":`...), name), "}}"...)
	return p.flush()
}

// lane returns a lane that is free at begin, and takes it until end. Slices come in the order of their ends, and each gets the lane
// that was free for the shortest time, so there are no more lanes than simultaneous slices. A slice that ends when another begins
// is in its way, because both are rounded.
func (p *perfettoForm) lane(of *process, t *track, name string, begin, end int64) (thread int, err error) {
	best := -1
	for i, l := range t.lanes {
		if l.ended < begin && (best < 0 || l.ended > t.lanes[best].ended) {
			best = i
		}
	}
	if best < 0 {
		best = len(t.lanes)
		err = p.addLane(of, t, name)
	}
	t.lanes[best].ended = end
	return t.lanes[best].thread, err
}

func (p *perfettoForm) event(probe *event.Probe, e event.Source) error {
	at := p.placeOf(probe)
	device, name := "CPUs", "CPU "+fieldText(e, at.cpu)
	if number := fieldText(e, at.number); number != "" {
		device, name = cmp.Or(fieldText(e, at.device), probe.Group), at.title+" "+number
	}
	if host := fieldText(e, at.host); host != "" {
		device += " of " + host
	}
	of, err := p.process(device)
	if err != nil {
		return err
	}
	t, err := p.track(of, name)
	if err != nil {
		return err
	}
	what := strings.TrimPrefix(fieldText(e, at.what)+" "+probe.String(), " ")
	if err := p.slice(e, at, of, t, name, what); err != nil {
		return err
	}
	p.line = format.AppendJSONString(append(p.line, `,"cat":`...), probe.Group)
	p.line = p.objects.append(append(p.line, `,"args":`...), p.columns, probe, e)
	return p.endObject()
}

// slice begins the object of an event, with the times of a slice or an instant.
func (p *perfettoForm) slice(e event.Source, at *place, of *process, t *track, track, name string) error {
	ended, latency := int64(p.moment.Nsecs()), get(e, at.latency)
	if latency == nil {
		return p.instant(name, of.id, t.lanes[0].thread, ended)
	}
	length := event.To[int64](latency)
	thread, err := p.lane(of, t, track, ended-length, ended)
	if err != nil {
		return err
	}
	if err := p.object("X", name); err != nil {
		return err
	}
	p.number("pid", of.id)
	p.number("tid", thread)
	p.at(ended - length)
	p.micros("dur", length)
	return nil
}

// instant begins an object without length.
func (p *perfettoForm) instant(name string, process, thread int, nsecs int64) error {
	if err := p.object("i", name); err != nil {
		return err
	}
	p.line = append(p.line, `,"s":"t"`...)
	p.number("pid", process)
	p.number("tid", thread)
	p.at(nsecs)
	return nil
}

func (p *perfettoForm) endObject() error {
	p.line = append(p.line, '}')
	return p.flush()
}

// ofProgram is the process of what the program prints.
const ofProgram = "program"

// printed begins an instant of what the program prints.
func (p *perfettoForm) printed(name string) error {
	of, err := p.process(ofProgram)
	if err != nil {
		return err
	}
	t, err := p.track(of, "printed")
	if err != nil {
		return err
	}
	return p.instant(name, of.id, t.lanes[0].thread, int64(p.moment.Nsecs()))
}

func (p *perfettoForm) text(_ string, b []byte) error {
	if err := p.printed(strings.Trim(string(b), "\n")); err != nil {
		return err
	}
	return p.endObject()
}

func (p *perfettoForm) count(what, noun string, n uint64) error {
	if err := p.printed(what); err != nil {
		return err
	}
	p.line = fmt.Appendf(p.line, `,"args":{%q:%d}`, noun, n)
	return p.endObject()
}

func (p *perfettoForm) value(t event.Type, elems []event.Type, v any, _ bool) error {
	if err := p.printed(string(format.Append(nil, t, elems, v))); err != nil {
		return err
	}
	return p.endObject()
}

func (p *perfettoForm) element(t result.Table) error { return p.row(t, t.Rows[0]) }

// table writes the rows. Counters of rows that were printed before and are gone become 0.
func (p *perfettoForm) table(t result.Table) error {
	gone := maps.Clone(p.counters[t.Name])
	for _, r := range t.Rows {
		if err := p.row(t, r); err != nil {
			return err
		}
		delete(gone, rowName(t, r))
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if err := p.counter(t.Name, name, nil); err != nil {
			return err
		}
		delete(p.counters[t.Name], name)
	}
	return nil
}

func rowName(t result.Table, r result.Row) string {
	return string(appendKey([]byte(t.Name), t, r.Key))
}

// row writes a row: numbers are a counter, anything else is an instant.
func (p *perfettoForm) row(t result.Table, r result.Row) error {
	name := rowName(t, r)
	if numbers, ok := numbersOf(t, r.Value); ok {
		return p.counter(t.Name, name, numbers)
	}
	if err := p.printed(name); err != nil {
		return err
	}
	p.line = append(appendTypedResult(append(p.line, `,"args":{`...), r.Value), '}')
	return p.endObject()
}

// number is one of the numbers of a value.
type number struct{ name, digits string }

// counter writes the numbers of a counter. Numbers that it had before and that have no value become 0.
func (p *perfettoForm) counter(table, name string, numbers []number) error {
	if p.counters[table] == nil {
		p.counters[table] = map[string][]string{}
	}
	names := p.counters[table][name]
	for _, n := range numbers {
		if !slices.Contains(names, n.name) {
			names = append(names, n.name)
		}
	}
	p.counters[table][name] = names
	if len(names) == 0 {
		return nil
	}
	of, err := p.process(ofProgram)
	if err != nil {
		return err
	}
	if err := p.object("C", name); err != nil {
		return err
	}
	p.number("pid", of.id)
	p.at(int64(p.moment.Nsecs()))
	p.line = append(p.line, `,"args":{`...)
	for i, name := range names {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		digits := "0"
		if at := slices.IndexFunc(numbers, func(n number) bool { return n.name == name }); at >= 0 {
			digits = numbers[at].digits
		}
		p.line = append(append(format.AppendJSONString(p.line, name), ':'), digits...)
	}
	p.line = append(p.line, '}')
	return p.endObject()
}

// numbersOf returns the numbers of a value with their names. ok is false if the value is something else.
func numbersOf(t result.Table, v result.Value) (all []number, ok bool) {
	switch v := v.(type) {
	case result.Number:
		if t.Ranking != nil {
			all = append(all, number{"error", strconv.FormatUint(v.Error, 10)})
		}
		return single(all, cmp.Or(t.Func, "value"), v)
	case result.Tuple:
		ok = true
		for i, e := range v.Elems {
			var is bool
			all, is = single(all, fmt.Sprintf("value%d", i+1), e)
			ok = ok && is
		}
		return all, ok
	case result.Stats:
		all = append(all, count(v.Count))
		all, _ = single(all, "average", v.Average)
		return single(all, "total", v.Total)
	case result.Rate:
		if v.Timed {
			all = append(all, number{"per_second", string(appendFloat(nil, v.PerSecond, true))})
		}
		return single(all, "total", v.Total)
	case result.Histogram:
		all = append(all, count(v.Total))
	case result.Quantiles:
		all = append(all, count(v.Count))
	}
	for _, q := range Percentiles(v) {
		all = append(all, number{q.Name, string(appendFloat(nil, q.At, true))})
	}
	return all, true
}

func count(n uint64) number { return number{"count", strconv.FormatUint(n, 10)} }

// single appends a number unless it is absent. ok is false if the value is not a number.
func single(all []number, name string, n result.Number) ([]number, bool) {
	if !event.IsNumber(n.Type) || n.Type.Enum != nil || n.Type.Unit == event.Hex || n.Type.Unit == event.Cgroup {
		return all, false
	}
	if n.V != nil {
		all = append(all, number{name, string(format.AppendNumber(nil, n.V))})
	}
	return all, true
}
