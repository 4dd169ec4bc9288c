package exec

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"trace/lang/ir"
	"trace/lang/result"
	"trace/probes/event"
)

// Tables returns what the maps hold, also after End. The row with the largest value comes first.
func (r *Run) Tables() ([]result.Table, error) {
	all, err := r.tables(result.ByValue)
	m := r.namer()
	for i := range all {
		m.namedTable(&all[i])
		all[i] = m.sink.PresentableTable(all[i])
	}
	return all, err
}

// Unsorted returns the same with the rows in no order, and stacks as their numbers, in less time. Of assigned values it has only the one of the
// newest of several cgroups with the same name.
func (r *Run) Unsorted() ([]result.Table, error) {
	all, err := r.tables(result.NoOrder)
	for i := range all {
		newest(&all[i])
		all[i] = r.machine.sink.PresentableTable(all[i])
	}
	return all, err
}

// newest leaves out rows whose cgroups are replaced by newer ones of the same names, as when a service starts again, if values are assigned:
// they do not add up.
func newest(t *result.Table) {
	if !t.Assigned || !slices.ContainsFunc(t.Key, func(c result.Column) bool { return c.Type.Enum != nil }) {
		return
	}
	seen := map[string]int{}
	var rows []result.Row
	for _, r := range t.Rows {
		name := ""
		for i, c := range t.Key {
			name += strconv.Quote(elementName(c, r.Key[i]))
		}
		at, again := seen[name]
		switch {
		case !again:
			seen[name] = len(rows)
			rows = append(rows, r)
		case isNewer(t.Key, r.Key, rows[at].Key):
			rows[at] = r
		}
	}
	t.Rows = rows
}

// elementName returns what an element of a key is told by.
func elementName(c result.Column, v any) string {
	if v != nil && c.Type.Enum != nil {
		if name := c.Type.Enum.NameOf(event.To[int64](v)); name != "" {
			return name
		}
	}
	return fmt.Sprint(v)
}

// isNewer compares two keys with the same names: the cgroup that has its path now is the newest one, and otherwise that with the larger id.
func isNewer(columns []result.Column, a, b []any) bool {
	for i, c := range columns {
		if a[i] == b[i] {
			continue
		}
		now, there := c.Type.Enum.Value(elementName(c, a[i]))
		id, other := event.To[int64](a[i]), event.To[int64](b[i])
		if there && (id == now || other == now) {
			return id == now
		}
		return id > other
	}
	return false
}

// tables returns what the maps hold, without names.
func (r *Run) tables(by result.Order) ([]result.Table, error) {
	defer r.lock()()
	var all []result.Table
	for _, m := range r.plan.Program.Maps {
		t, err := r.contents(m, by)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Table returns what one map holds, like Tables.
func (r *Run) Table(name string) (result.Table, error) {
	t, err := r.table(name)
	if err != nil {
		return result.Table{}, err
	}
	m := r.namer()
	m.namedTable(&t)
	return m.sink.PresentableTable(t), nil
}

// namer names stacks for a caller who waits for them, while events are counted.
func (r *Run) namer() *machine {
	return &machine{stacks: r.stacks, search: r.patience.asked(), sink: r.machine.sink}
}

func (r *Run) table(name string) (result.Table, error) {
	defer r.lock()()
	m, err := r.plan.Program.MapNamed(name)
	if err != nil {
		return result.Table{}, err
	}
	return r.contents(m, result.ByValue)
}

// contents returns what a map holds, and what only the program and its plan know of it.
func (r *Run) contents(m *ir.Map, by result.Order) (result.Table, error) {
	t, err := r.machine.contents(m, by)
	t.Metric, t.Assigned = r.plan.Program.Metric(m, t), r.plan.Program.Assigns(m)
	if len(m.Key) > 0 {
		t.Size = r.maxKeys(m)
	}
	return t, err
}

// contents returns what a map holds, without names. A map that was never set has no row.
func (m *machine) contents(info *ir.Map, by result.Order) (result.Table, error) {
	elements, err := m.stores[info].elements()
	if err != nil {
		return result.Table{}, err
	}
	rest, err := m.stores[info].rest()
	if err != nil {
		return result.Table{}, err
	}
	clock := func(nsecs uint64) time.Time { return m.sink.Clock(nsecs) }
	t := info.Table(elements, m.collected(info, m.now(), ir.MapOptions{By: by, Rest: rest, Clock: clock}))
	if len(info.Key) == 0 && len(elements) == 0 {
		t.Rows = nil
	}
	slices.Reverse(t.Rows)
	return t, nil
}

// Clear empties all maps, like clear().
func (r *Run) Clear() error {
	defer r.lock()()
	for _, m := range r.plan.Program.Maps {
		if err := r.machine.empty(m, r.machine.now(), mapStore.clear); err != nil {
			return err
		}
	}
	return nil
}
