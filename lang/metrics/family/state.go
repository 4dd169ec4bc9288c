package family

import (
	"fmt"
	"hash/fnv"
	"time"
)

// State is what an exporter has counted, by the names of its maps, for an exporter in another process that goes on from there. It has no
// gauges: they have only what their maps hold now.
type State map[string]MapState

// MapState is what was counted of a map.
type MapState struct {
	// Shape is what the amounts depend on: the kind of metric, its unit and its buckets.
	Shape string
	// Created is when everything was 0.
	Created time.Time
	// Keys have series of their own, and Gone has what the others had.
	Keys []KeyState
	Gone amount
}

// KeyState is what was counted of a key.
type KeyState struct {
	Labels []string
	Amount amount
}

// State returns what was counted up to the last snapshot.
func (e *Exporter) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := State{}
	for name, s := range e.restored { // of maps that were in no snapshot yet
		all[name] = s
	}
	for name, m := range e.maps {
		if m.Kind != Gauge {
			all[name] = m.state()
		}
	}
	return all
}

// Restore makes an exporter without a snapshot go on from a state of the same program.
func (e *Exporter) Restore(s State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restored = s
}

func (m *exported) state() MapState {
	s := MapState{Shape: m.shape(), Created: m.created, Gone: m.gone.plus(amount{Sum: m.lost})}
	for _, e := range m.order {
		if e.own {
			s.Keys = append(s.Keys, KeyState{e.labels[:m.keyed()], e.total()})
		} else {
			s.Gone = s.Gone.plus(e.total())
		}
	}
	return s
}

// restore goes on from a state. What a trace of another version has counted in another way cannot be added.
func (m *exported) restore(s MapState) {
	if s.Shape != m.shape() {
		return
	}
	m.created, m.gone = s.Created, s.Gone
	for _, k := range s.Keys {
		key := string(appendKey(nil, k.Labels...))
		if m.entries[key] == nil {
			m.enter(&entry{key: key, labels: m.config.withLabels(k.Labels), own: true})
		}
		e := m.entries[key]
		e.base, e.restored = k.Amount, true
	}
}

// shape returns a number that differs where amounts cannot be added.
func (m *exported) shape() string {
	h := fnv.New64a()
	fmt.Fprint(h, m.Kind, m.Unit, m.Labels)
	for i := 0; m.ranges != nil; i++ {
		lo, hi := m.ranges.Bounds(i)
		if fmt.Fprint(h, lo, hi); hi == nil {
			break
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
