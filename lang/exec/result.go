package exec

import (
	"slices"

	"trace/lang/ir"
	"trace/lang/result"
)

// Tables returns what the maps hold, also after End. The row with the largest value comes first.
func (r *Run) Tables() ([]result.Table, error) {
	defer r.lock()()
	var all []result.Table
	for _, m := range r.plan.Program.Maps {
		t, err := r.machine.contents(m)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Table returns what one map holds, like Tables.
func (r *Run) Table(name string) (result.Table, error) {
	defer r.lock()()
	m, err := r.plan.Program.MapNamed(name)
	if err != nil {
		return result.Table{}, err
	}
	return r.machine.contents(m)
}

// contents returns what a map holds. A map that was never set has no row.
func (m *machine) contents(info *ir.Map) (result.Table, error) {
	elements, err := m.stores[info].elements()
	if err != nil {
		return result.Table{}, err
	}
	rest, err := m.stores[info].rest()
	if err != nil {
		return result.Table{}, err
	}
	if len(info.Key) == 0 && len(elements) == 0 {
		t := info.Table(nil, ir.MapOptions{})
		t.Rows = nil
		return t, nil
	}
	t := info.Table(elements, m.collected(info, m.now(), ir.MapOptions{By: result.ByValue, Rest: rest}))
	slices.Reverse(t.Rows)
	m.namedTable(&t)
	return m.sink.PresentableTable(t), nil
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
