package family

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// Config describes how the maps of a program become metrics.
type Config struct {
	// Program is the name of the program: lower-case letters, digits and underscores.
	Program string
	// Series is how many keys of a map have a series of their own; 0: 1000. The others share the series [Other].
	Series int
	// Labels are on every series.
	Labels map[string]string
	// Maps changes how maps are shown, by their names without the @.
	Maps map[string]MapConfig
}

// MapConfig describes how a map is shown.
type MapConfig struct {
	// Metric replaces the names of the program and the map in the name of the metric; "" does not.
	Metric string
	Help   string
}

// usualSeries is how many keys of a map have series of their own.
const usualSeries = 1000

// Exporter makes families of the snapshots of one run. Its methods may be called from several goroutines.
type Exporter struct {
	config  Config
	reading sync.Mutex // while a snapshot is taken and counted
	mu      sync.Mutex
	maps    map[string]*exported // by the name of the map
	// restored has what was counted before the first snapshot of a map.
	restored State
}

// New returns an exporter.
func New(c Config) *Exporter {
	c.Series = cmp.Or(c.Series, usualSeries)
	return &Exporter{config: c, maps: map[string]*exported{}}
}

// Check returns why maps cannot be metrics, with advice for each, or nil if all can.
func (e *Exporter) Check(tables []result.Table) error {
	var errs []error
	names := Names[string]{}
	for _, f := range About() {
		names.Take(f, "trace itself")
	}
	for _, t := range tables {
		m, err := e.config.describe(t)
		if err == nil {
			if name, other, clash := names.Take(m, t.Name); clash {
				err = fmt.Errorf("%s and %s would both have the name %s: give one another name", other, t.Name, name)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Metric returns the metric that a map would be, without series, or why it can be none and what to do.
func (e *Exporter) Metric(t result.Table) (Family, error) { return e.config.describe(t) }

// Read takes a snapshot and returns its metrics. Two readers take turns: an older snapshot after a newer one would look like maps that were
// emptied, and be counted again.
func (e *Exporter) Read(take func() (Snapshot, error)) ([]Family, error) {
	e.reading.Lock()
	defer e.reading.Unlock()
	s, err := take()
	if err != nil {
		return nil, err
	}
	return e.Families(s), nil
}

// Families returns the metrics of a snapshot: the maps that can be metrics, and what is known of the run itself.
func (e *Exporter) Families(s Snapshot) []Family {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Family
	for _, t := range s.Tables {
		m := e.maps[t.Name]
		if m == nil {
			described, err := e.config.describe(t)
			if err != nil {
				continue
			}
			m = newExported(described, &e.config, t, s.Started)
			m.restore(e.restored[t.Name])
			e.maps[t.Name] = m
		}
		all = append(all, m.family(t, s))
	}
	return append(all, e.about(s).filled()...)
}

// exported is a map that is a metric.
type exported struct {
	Family // without series
	config *Config
	ranges *ranges // of a distribution
	// created is when everything was 0.
	created time.Time
	// entries are the keys of the map, by their labels, and keys that were in it lately. order has them sorted by their labels, which byName has in
	// the order of their names, as scrapes show them. own counts those with a series of their own.
	entries map[string]*entry
	order   []*entry
	byName  []int
	own     int
	// assigned reports that values do not add up.
	assigned bool
	// crowded reports that a key got no series for lack of room.
	crowded bool
	// snapshots is how many there were.
	snapshots int
	key       []byte // of the current row
	// ended has which paths of cgroups have ended, as far as this snapshot has asked.
	ended map[format.Verbatim]bool
	// gone is what keys without an entry had.
	gone amount
	// lost is how many updates without room belong to the keys that have no series.
	lost uint64
}

// newExported returns a map without values. One without a key has its only series from the beginning: what was not counted yet is 0.
func newExported(f Family, c *Config, t result.Table, created time.Time) *exported {
	m := &exported{Family: f, config: c, created: created, entries: map[string]*entry{}, byName: f.ByName(), ended: map[format.Verbatim]bool{}}
	if h, is := distributionOf(t.Zero); is {
		m.ranges = rangesOf(h)
	}
	if f.Kind != Gauge && m.keyed() == 0 {
		m.enter(&entry{labels: c.withLabels(nil), own: true, stays: true})
	}
	return m
}

// keyed returns how many labels come from the key.
func (m *exported) keyed() int { return len(m.Labels) - len(m.config.Labels) }

// enter adds a key.
func (m *exported) enter(e *entry) {
	m.entries[e.key], m.order = e, append(m.order, e)
	m.own += int(one(e.own))
}

// entry is a key. Its amount only grows: if the map is emptied, base has what was in it.
type entry struct {
	key              string
	labels           []string
	base, last, next amount
	// own reports that the key has a series of its own. A key that has none gets none later, as the series of the others would fall.
	own bool
	// stays reports that the key keeps its series also when it is absent.
	stays bool
	// restored reports that the key was counted in another process, and not in this one yet. It keeps its series until another key needs the room.
	restored bool
	// seen is the last snapshot that has the key, and ended reports that all its cgroups had ended then. absent counts the snapshots since the
	// key was there, and a cgroup of it.
	seen   int
	ended  bool
	absent int
	// exemplars are of the last snapshot that has the key.
	exemplars []result.Exemplar
}

func (e *entry) total() amount { return e.base.plus(e.last) }

// add adds what a row of a snapshot has to a key. Of several assigned values, of keys whose labels are equal, the largest is shown.
func (m *exported) add(e *entry, a amount, v result.Value, ended bool) {
	if first := e.seen != m.snapshots; first {
		e.seen, e.ended, e.next, e.restored, e.exemplars = m.snapshots, true, amount{}, false, nil
	} else if m.assigned {
		a, e.next = larger(a, e.next), amount{}
	}
	e.next, e.ended = e.next.plus(a), e.ended && ended
	if h, is := distributionOf(v); is {
		e.exemplars = append(e.exemplars, h.Exemplars...)
	}
}

// patience is in how many snapshots a key may be absent before it loses its series.
const patience = 2

// family returns the family of a table.
func (m *exported) family(t result.Table, s Snapshot) Family {
	m.snapshots++
	clear(m.ended)
	m.assigned = t.Assigned
	m.read(t)
	m.order = slices.DeleteFunc(m.order, m.settle)
	if t.Metric == result.Counter && t.Adds == result.Counts { // each update adds 1
		m.lost = s.lostOf(t.Name)
	}
	f := m.Family
	f.Series = make([]Series, 0, m.own+1)
	for _, e := range m.order {
		if e.own {
			f.Series = append(f.Series, m.series(e.labels, e.total(), e.exemplars))
		}
	}
	if other, any := m.other(); any {
		f.Series = append(f.Series, other)
	}
	for i := range f.Series {
		f.Series[i].Created = m.created
	}
	return f
}

// read takes over the rows of a snapshot. Rows with the same labels are one key.
func (m *exported) read(t result.Table) {
	var unknown []result.Row
	for _, r := range t.Rows {
		a, ok := amountOf(r.Value)
		if !ok {
			continue
		}
		if e, ended := m.find(t, r); e != nil {
			m.add(e, a, r.Value, ended)
		} else {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 {
		m.welcome(t, unknown)
	}
}

// find returns the key of a row, or nil if it is not known. The labels are in m.key then. It reports whether one of its cgroups has ended.
func (m *exported) find(t result.Table, r result.Row) (e *entry, ended bool) {
	m.key = m.key[:0]
	for i, v := range r.Key {
		m.key = appendKey(m.key, labelOf(t.Key[i].Type, v))
		ended = ended || m.hasEnded(t.Key[i].Type, v)
	}
	return m.entries[string(m.key)], ended
}

// welcome takes over rows whose keys are not known. If there is no room for all of them, those with the largest values get series of their own.
func (m *exported) welcome(t result.Table, rows []result.Row) {
	if m.own+len(rows) > m.config.Series {
		t.Rows = rows
		t.Sort(result.ByValue, 0)
		slices.Reverse(rows)
	}
	for _, r := range rows {
		e, ended := m.find(t, r)
		if e == nil {
			e = &entry{key: string(m.key), labels: m.config.withLabels(labelsOf(t.Key, r.Key)), own: !ended && m.own < m.config.Series}
			m.enter(e)
			m.crowded = m.crowded || m.own == m.config.Series && !e.own
		}
		a, _ := amountOf(r.Value)
		m.add(e, a, r.Value, ended)
	}
	slices.SortFunc(m.order, func(a, b *entry) int {
		for _, i := range m.byName {
			if c := strings.Compare(a.labels[i], b.labels[i]); c != 0 {
				return c
			}
		}
		return 0
	})
}

// hasEnded reports whether an element of a key is the path of a cgroup that has ended. It asks once for each path: that is a system call.
func (m *exported) hasEnded(t event.Type, v any) bool {
	path, is := v.(format.Verbatim)
	if !is {
		return false
	}
	ended, known := m.ended[path]
	if !known {
		ended = t.Enum.Ended(string(path))
		m.ended[path] = ended
	}
	return ended
}

// appendKey appends labels so that the labels of another key never give the same bytes.
func appendKey(key []byte, labels ...string) []byte {
	for _, label := range labels {
		key = append(binary.AppendUvarint(key, uint64(len(label))), label...)
	}
	return key
}

// settle ends a snapshot for a key. It reports whether the key is forgotten: it was absent for some time, so it is added to the others. The value of
// a gauge is not kept.
func (m *exported) settle(e *entry) (forgotten bool) {
	present := e.seen == m.snapshots
	switch {
	case !present:
		e.base, e.last = e.total(), amount{}
	case e.next.fell(e.last) && m.Kind != Gauge:
		e.base, e.last = e.total(), e.next
	default:
		e.last = e.next
	}
	if present && !e.ended || e.stays || e.restored && !m.crowded {
		e.absent = 0
		return false
	}
	if e.absent++; e.absent < patience && (present || m.Kind != Gauge) {
		return false
	}
	m.own -= int(one(e.own))
	e.own = false
	if present {
		return false
	}
	m.gone = m.gone.plus(e.base)
	delete(m.entries, e.key)
	return true
}

// other returns the series of all keys that have none of their own. Gauges cannot be added.
func (m *exported) other() (s Series, any bool) {
	if m.Kind == Gauge || m.keyed() == 0 {
		return s, false
	}
	all := m.gone.plus(amount{Sum: m.lost})
	any = all.Sum > 0 || all.Count > 0
	var exemplars []result.Exemplar
	for _, e := range m.order {
		if !e.own {
			all, any, exemplars = all.plus(e.total()), true, append(exemplars, e.exemplars...)
		}
	}
	s = m.series(m.config.withLabels(slices.Repeat([]string{Other}, m.keyed())), all, exemplars)
	s.Overflow = true
	return s, any
}

// series returns a series.
func (m *exported) series(labels []string, a amount, exemplars []result.Exemplar) Series {
	s := Series{Labels: labels, Count: a.Count}
	if m.Kind == Distribution {
		s.Buckets = m.ranges.buckets(a)
		s.Buckets.Exemplars = m.ranges.exemplars(exemplars)
		return s
	}
	s.Value = a.sumIn(m.Unit)
	return s
}
