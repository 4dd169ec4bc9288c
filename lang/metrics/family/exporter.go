package family

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"trace/lang/result"
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
	config Config
	mu     sync.Mutex
	maps   map[string]*exported // by the name of the map
}

// New returns an exporter.
func New(c Config) *Exporter {
	c.Series = cmp.Or(c.Series, usualSeries)
	return &Exporter{config: c, maps: map[string]*exported{}}
}

// Check returns why maps cannot be metrics, with advice for each, or nil if all can.
func (e *Exporter) Check(tables []result.Table) error {
	var errs []error
	seen := map[string]string{}
	for _, t := range tables {
		m, err := e.config.describe(t)
		if err == nil && seen[m.Name] != "" {
			err = fmt.Errorf("%s and %s would both be the metric %s: give one another name", seen[m.Name], t.Name, m.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[m.Name] = t.Name
	}
	return errors.Join(errs...)
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
			m = newExported(described, &e.config)
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
	// entries are the keys of the map, by their labels, and keys that were in it lately. order has them in the order in which they came, and own
	// counts those with a series of their own.
	entries map[string]*entry
	order   []*entry
	own     int
	// snapshots is how many there were.
	snapshots int
	key       []byte // of the current row
	// gone is what keys without an entry had.
	gone amount
	// lost is how many updates without room belong to the keys that have no series.
	lost uint64
}

// newExported returns a map without values. One without a key has its only series from the beginning: what was not counted yet is 0.
func newExported(f Family, c *Config) *exported {
	m := &exported{Family: f, config: c, entries: map[string]*entry{}}
	if f.Kind != Gauge && len(f.Labels) == len(c.Labels) {
		m.enter(&entry{labels: c.withLabels(nil), own: true, stays: true})
	}
	return m
}

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
	// seen is the last snapshot that has the key, and ended reports that all its cgroups had ended then. absent counts the snapshots since the
	// key was there, and a cgroup of it.
	seen   int
	ended  bool
	absent int
}

func (e *entry) total() amount { return e.base.plus(e.last) }

// patience is in how many snapshots a key may be absent before it loses its series.
const patience = 2

// family returns the family of a table.
func (m *exported) family(t result.Table, s Snapshot) Family {
	if h, is := distributionOf(t.Zero); is && m.ranges == nil {
		m.ranges = rangesOf(h)
	}
	m.snapshots++
	for _, r := range t.Rows {
		m.read(t, r)
	}
	m.order = slices.DeleteFunc(m.order, m.settle)
	if t.Metric == result.Counter && t.Adds == result.Counts { // each update adds 1
		m.lost = s.lostOf(t.Name)
	}
	f := m.Family
	for _, e := range m.order {
		if e.own {
			f.Series = append(f.Series, m.series(e.labels, e.total()))
		}
	}
	if other, any := m.other(); any {
		f.Series = append(f.Series, other)
	}
	for i := range f.Series {
		f.Series[i].Created = s.Started
	}
	return f
}

// read takes over a row. Rows with the same labels are one key. The rows with the largest values come first, and get series of their own.
func (m *exported) read(t result.Table, r result.Row) {
	a, ok := amountOf(r.Value)
	if !ok {
		return
	}
	m.key = m.key[:0]
	ended := false
	for i, v := range r.Key {
		label := labelOf(t.Key[i].Type, v)
		m.key = append(binary.AppendUvarint(m.key, uint64(len(label))), label...)
		ended = ended || hasEnded(t.Key[i].Type, v)
	}
	e := m.entries[string(m.key)]
	if e == nil {
		e = &entry{key: string(m.key), labels: m.config.withLabels(labelsOf(t.Key, r.Key)), own: !ended && m.own < m.config.Series}
		m.enter(e)
	}
	if e.seen != m.snapshots {
		e.seen, e.ended, e.next = m.snapshots, true, amount{}
	}
	e.next, e.ended = e.next.plus(a), e.ended && ended
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
	if present && !e.ended || e.stays {
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
	keyed := len(m.Labels) - len(m.config.Labels)
	if m.Kind == Gauge || keyed == 0 {
		return s, false
	}
	all := m.gone.plus(amount{sum: m.lost})
	any = all.sum > 0 || all.count > 0
	for _, e := range m.order {
		if !e.own {
			all, any = all.plus(e.total()), true
		}
	}
	s = m.series(m.config.withLabels(slices.Repeat([]string{Other}, keyed)), all)
	s.Overflow = true
	return s, any
}

// series returns a series.
func (m *exported) series(labels []string, a amount) Series {
	s := Series{Labels: labels, Count: a.count}
	if m.Kind == Distribution {
		s.Buckets = m.ranges.buckets(a)
		return s
	}
	s.Value = a.sumIn(m.Unit)
	return s
}
