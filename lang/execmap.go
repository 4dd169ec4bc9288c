package lang

import (
	"time"

	"trace/lang/output"
	"trace/probes/event"
)

// This file is what clauses do with whole maps, and with the end of the program.

// exit ends the program, with the status that values hold, if they hold one.
func (m *machine) exit(values []any) {
	m.stopped = true
	if len(values) == 0 {
		return
	}
	status := 1 // of an absent value: 0 would say that all is well
	switch v := values[0].(type) {
	case nil:
	case bool:
		if !v {
			status = 0
		}
	default:
		status = int(event.To[uint64](v) & maxStatus) // as the kernel does with that of a process
	}
	m.status = &status
}

// printMap prints a map. Rates are those since they were last printed, so they begin again.
func (m *machine) printMap(info *mapInfo, o mapOptions) error {
	if err := m.show(info, m.printer, o); err != nil || info.agg == nil || !info.agg.Traits().Restarts {
		return err
	}
	return m.empty(info, m.now(), mapStore.zero)
}

// show prints what a map holds.
func (m *machine) show(info *mapInfo, p *output.Printer, o mapOptions) error {
	entries, err := m.stores[info].entries()
	if err != nil {
		return err
	}
	o.elapsed = m.elapsed(info)
	t := info.table(entries, o)
	m.namedTable(&t)
	return p.Map(t)
}

// printElement prints the value of a key, zero if there is none.
func (m *machine) printElement(info *mapInfo, key []any) error {
	e := info.newEntry(key)
	found, ok, err := m.find(info, key)
	if err != nil {
		return err
	}
	if ok {
		e.value, e.state = found.value, found.state
	}
	o := mapOptions{elapsed: m.elapsed(info)}
	return m.printer.Element(m.namedResult(info.result(e, o)), info.unit(o))
}

// clear does what a clause wants to be cleared.
func (m *machine) clear(info *mapInfo) error {
	if m.cleared == nil {
		m.cleared = map[*mapInfo]bool{}
	}
	m.cleared[info] = true
	return m.empty(info, m.now(), mapStore.clear)
}

// silent tells whether a map has nothing to show at the end: not even that nothing was counted, as it was cleared.
func (m *machine) silent(info *mapInfo) (bool, error) {
	if !m.cleared[info] {
		return false, nil
	}
	entries, err := m.stores[info].entries()
	if len(info.key) == 0 && info.agg != nil && len(entries) > 0 { // in the kernel what adds up to nothing looks like none
		return isZero(entries[0].state), err
	}
	return len(entries) == 0, err
}

// empty clears or zeroes a map, at nsecs.
func (m *machine) empty(info *mapInfo, nsecs uint64, how func(mapStore) error) error {
	if m.since == nil {
		m.since = map[*mapInfo]uint64{}
	}
	m.since[info] = nsecs
	return how(m.stores[info])
}

// elapsed is the time since a map began to count.
func (m *machine) elapsed(info *mapInfo) time.Duration {
	since, ok := m.since[info]
	if !ok {
		since = m.started
	}
	return time.Duration(m.now() - since)
}
