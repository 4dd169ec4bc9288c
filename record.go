package trace

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"trace/lang/exec"
	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// Record is something that a program prints or selects: an event, a text, a value, or a map.
type Record struct {
	// Time is when it happened.
	Time time.Time
	// Probe is the probe of an event; otherwise "".
	Probe string
	// Names are the fields of the event, and Values their values like in a [Row], nil where a field is absent.
	Names  []string
	Values []any
	// Text is what printf() or time() printed.
	Text string
	// Value is what print(x) printed, like in a [Row].
	Value any
	// Map is the map whose Rows print(@m) printed, with its @; otherwise "".
	Map  string
	Rows []Row
}

// Field returns a field of an event. It is nil if the event has no such field, or if the field is absent.
func (r *Record) Field(name string) any {
	if i := slices.Index(r.Names, name); i >= 0 {
		return r.Values[i]
	}
	return nil
}

// errNoRecords means that nothing was kept.
var errNoRecords = errors.New("the run keeps no records: start it with trace.Records()")

// Records yields what the program prints and selects, until the run or ctx ends, or the loop is left. What comes after that is discarded. The run
// must be started with the option [Records]. The error of the run is the last thing that it yields.
func (r *Run) Records(ctx context.Context) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if r.records == nil {
			yield(nil, errNoRecords)
			return
		}
		defer r.records.discard()
		defer context.AfterFunc(ctx, r.records.discard)()
		for {
			record, err := r.records.pop()
			if record == nil && err == nil || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// recorder is where a program prints: records, and a printer.
type recorder struct {
	exec.Sink
	columns output.Columns
	records *queue // nil: nobody wants them
	prints  bool
}

func (c *recorder) record(at result.Moment, r Record) {
	r.Time = c.Clock(at.Nsecs())
	c.records.push(&r)
}

func (c *recorder) Event(at result.Moment, p *event.Probe, e event.Source) error {
	if c.records != nil {
		c.record(at, eventRecord(p, c.columns.Fields(p), e))
	}
	if !c.prints {
		return nil
	}
	return c.Sink.Event(at, p, e)
}

// eventRecord copies fields of an event.
func eventRecord(p *event.Probe, fields []*event.Field, e event.Source) Record {
	r := Record{Probe: p.String()}
	for _, f := range fields {
		v, _ := e.Get(f)
		r.Names, r.Values = append(r.Names, f.Name), append(r.Values, goValue(f.Type, v))
	}
	return r
}

func (c *recorder) Text(at result.Moment, b []byte) error {
	if c.records != nil {
		c.record(at, Record{Text: string(b)})
	}
	return c.Sink.Text(at, b)
}

func (c *recorder) Time(at result.Moment, b []byte) error {
	if c.records != nil {
		c.record(at, Record{Text: string(b)})
	}
	return c.Sink.Time(at, b)
}

func (c *recorder) Value(at result.Moment, t event.Type, elems []event.Type, v any, own bool) error {
	if c.records != nil {
		c.record(at, Record{Value: goElement(t, elems, v)})
	}
	return c.Sink.Value(at, t, elems, v, own)
}

func (c *recorder) Map(at result.Moment, t result.Table) error {
	if c.records != nil {
		c.record(at, Record{Map: t.Name, Rows: goRows(t)})
	}
	return c.Sink.Map(at, t)
}

func (c *recorder) Element(at result.Moment, t result.Table) error {
	if c.records != nil {
		c.record(at, Record{Map: t.Name, Rows: goRows(t)})
	}
	return c.Sink.Element(at, t)
}

// queue holds records until they are read. Whoever adds one waits while it is full, unless the run should end: end clauses run while the reader
// may wait for the end.
type queue struct {
	mu        sync.Mutex
	changed   sync.Cond
	all       []*Record
	draining  bool // never full
	reading   int  // who reads maps: whoever adds a record keeps them locked meanwhile
	discarded bool // nobody reads it
	over      bool
	err       error // of the run
}

// fullQueue is how many records may wait.
const fullQueue = 1024

func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

// change changes the queue, and wakes all who wait.
func (q *queue) change(f func()) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.changed.Broadcast()
}

func (q *queue) push(r *Record) {
	q.change(func() {
		for len(q.all) >= fullQueue && !q.draining && !q.discarded && q.reading == 0 {
			q.changed.Wait()
		}
		if !q.discarded {
			q.all = append(q.all, r)
		}
	})
}

// pop waits for a record. Without one it is the end, whose error it returns once.
func (q *queue) pop() (r *Record, err error) {
	q.change(func() {
		for len(q.all) == 0 && !q.over && !q.discarded {
			q.changed.Wait()
		}
		if len(q.all) > 0 {
			r, q.all = q.all[0], q.all[1:]
			return
		}
		err, q.err = q.err, nil
	})
	return r, err
}

// letRead lets maps be read until the end, although the queue is full.
func (q *queue) letRead() (end func()) {
	q.change(func() { q.reading++ })
	return func() { q.change(func() { q.reading-- }) }
}

func (q *queue) drain()   { q.change(func() { q.draining = true }) }
func (q *queue) discard() { q.change(func() { q.discarded, q.all = true, nil }) }

func (q *queue) end(err error) { q.change(func() { q.over, q.err = true, err }) }
