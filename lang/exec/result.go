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
		elements, err := r.machine.stores[m].elements()
		if err != nil {
			return nil, err
		}
		rest, err := r.machine.stores[m].rest()
		if err != nil {
			return nil, err
		}
		if len(m.Key) > 0 || len(elements) > 0 {
			t := m.Table(elements, r.machine.collected(m, r.machine.now(), ir.MapOptions{By: result.ByValue, Rest: rest}))
			slices.Reverse(t.Rows)
			r.machine.namedTable(&t)
			t = r.machine.sink.PresentableTable(t)
			all = append(all, t)
			continue
		}
		t := m.Table(nil, ir.MapOptions{})
		t.Rows = nil
		all = append(all, t)
	}
	return all, nil
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
