package exec

import (
	"time"

	"trace/lang/ir"
	"trace/lang/result"
	"trace/probes/event"
)

// This file implements how clauses add to maps, what they do with whole maps, and the end of the program.

func (c *bodyCompiler) update(s *ir.UpdateStmt) step {
	key, add := c.row(s.Key), c.adder(s)
	arg := &evaluator{simple: func(*scope) any { return uint64(1) }} // count() and rate() count
	if s.Arg != nil {
		arg = c.expr(s.Arg)
	}
	return func(sc *scope) (flow, error) {
		k, err := key.eval(sc)
		if err != nil {
			return goesOn, err
		}
		x, err := arg.eval(sc)
		if err != nil {
			return goesOn, err
		}
		store := sc.machine.stores[s.Map]
		if x == nil {
			return goesOn, store.update(k, 0, true)
		}
		return goesOn, add(sc, store, k, event.To[uint64](x))
	}
}

// adder adds a value to the state of a key.
type adder func(sc *scope, store mapStore, key []any, x uint64) error

// adder returns how a statement adds values.
func (c *bodyCompiler) adder(s *ir.UpdateStmt) adder {
	plain := func(_ *scope, store mapStore, key []any, x uint64) error { return store.update(key, x, false) }
	switch {
	case s.Thread != nil:
		return addFrom(c.row([]*ir.Expr{s.At, s.Thread}), plain)
	case s.At != nil:
		return addAt(c.expr(s.At))
	}
	return plain
}

// addFrom adds values with the time and the thread of their event. Without both, a value is added as plain does.
func addFrom(origin *row, plain adder) adder {
	return func(sc *scope, store mapStore, key []any, x uint64) error {
		from, err := origin.eval(sc)
		switch {
		case err != nil:
			return err
		case from[0] == nil || from[1] == nil:
			return plain(sc, store, key, x)
		}
		return store.updateFrom(key, event.To[uint64](from[0]), uint32(event.To[uint64](from[1])), x)
	}
}

// addAt adds values with their times. A value without a time is counted as absent.
func addAt(at *evaluator) adder {
	return func(sc *scope, store mapStore, key []any, x uint64) error {
		nsecs, err := at.eval(sc)
		switch {
		case err != nil:
			return err
		case nsecs == nil:
			return store.update(key, 0, true)
		}
		// A time of day that is set back would leave values out.
		boot := sc.sink.Clock(uint64(0)).UnixNano()
		store.(*userStore).updateAt(key, uint64(boot)+event.To[uint64](nsecs), x)
		return nil
	}
}

// exit ends the program. values holds the exit status, if there is one.
func (m *machine) exit(values []any, atEvent bool) {
	m.stopped, m.past = true, m.past || atEvent
	if len(values) == 0 {
		return
	}
	status := 1 // for an absent value, because 0 would report success
	switch v := values[0].(type) {
	case nil:
	case bool:
		if !v {
			status = 0
		}
	default:
		status = int(event.To[uint64](v) & ir.MaxStatus) // like the kernel does with the status of a process
	}
	m.status = &status
}

// printMap prints a map. Rates count from the last time they were printed, so they restart.
func (sc *scope) printMap(info *ir.Map, o ir.MapOptions) error {
	m := sc.machine
	t, err := m.table(info, sc.now(), o)
	if err == nil {
		err = sc.sink.Map(sc, t)
	}
	if err != nil || info.Agg == nil || !info.Agg.Traits().Restarts {
		return err
	}
	return m.empty(info, sc.now(), mapStore.zero)
}

// table returns what a map holds at nsecs.
func (m *machine) table(info *ir.Map, nsecs uint64, o ir.MapOptions) (t result.Table, err error) {
	elements, err := m.stores[info].elements()
	if err != nil {
		return t, err
	}
	if o.Rest, err = m.stores[info].rest(); err != nil {
		return t, err
	}
	t = info.Table(elements, m.collected(info, nsecs, o))
	m.namedTable(&t)
	return t, nil
}

// printElement prints the value of a key, or zero if there is no such key.
func (sc *scope) printElement(info *ir.Map, key []any) error {
	m := sc.machine
	e := info.NewElement(key)
	found, ok, err := m.find(info, key)
	if err != nil {
		return err
	}
	if ok {
		e.Value, e.State = found.Value, found.State
	}
	t := info.Table([]ir.Element{e}, m.collected(info, sc.now(), ir.MapOptions{}))
	m.namedTable(&t)
	return sc.sink.Element(sc, t)
}

// clear clears a map for a clause, at nsecs.
func (m *machine) clear(info *ir.Map, nsecs uint64) error {
	if m.cleared == nil {
		m.cleared = map[*ir.Map]bool{}
	}
	m.cleared[info] = true
	delete(m.zeroed, info)
	return m.empty(info, nsecs, mapStore.clear)
}

// zero zeroes a map for a clause, at nsecs.
func (m *machine) zero(info *ir.Map, nsecs uint64) error {
	if m.zeroed == nil {
		m.zeroed = map[*ir.Map]bool{}
	}
	m.zeroed[info] = true
	return m.empty(info, nsecs, mapStore.zero)
}

// silent reports whether a map prints nothing at the end: a value that nothing has set, and what was cleared, not even a count of 0.
func (m *machine) silent(info *ir.Map) (bool, error) {
	if isValue := len(info.Key) == 0 && info.Agg == nil; !isValue && !m.cleared[info] {
		return false, nil
	}
	elements, err := m.stores[info].elements()
	if len(info.Key) == 0 && info.Agg != nil && len(elements) > 0 { // in the kernel an element of zeros looks like none
		return isZero(elements[0].State), err
	}
	return len(elements) == 0, err
}

// empty clears or zeroes a map, at nsecs.
func (m *machine) empty(info *ir.Map, nsecs uint64, how func(mapStore) error) error {
	if m.since == nil {
		m.since = map[*ir.Map]uint64{}
	}
	m.since[info] = nsecs
	return how(m.stores[info])
}

// collected returns how to print a map with the time from when it began to count until nsecs, and the part of its events that was seen.
func (m *machine) collected(info *ir.Map, nsecs uint64, o ir.MapOptions) ir.MapOptions {
	since, ok := m.since[info]
	if !ok {
		since = m.started
	}
	o.Elapsed, o.Zeroed = time.Duration(nsecs-since), m.zeroed[info]
	if info.Sampled {
		o.Share, ok = m.share(since, nsecs)
		o.Unseen = !ok
	}
	return o
}
