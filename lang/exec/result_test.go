package exec

import (
	"fmt"
	"slices"
	"testing"

	"trace/lang/check"
	"trace/lang/langtest"
	"trace/lang/result"
	"trace/probes/event"
)

// remade are cgroups by their ids. now has the id of a path that is there.
type remade struct {
	paths map[uint64]string
	now   map[string]uint64
}

func (r remade) ID(path string) (uint64, bool) { id, ok := r.now[path]; return id, ok }
func (remade) Ended(string) bool               { return false }
func (remade) Workload(uint64) event.Workload  { return event.Workload{} }
func (r remade) Path(id uint64) string         { return r.paths[id] }

// A service that was started again has one assigned value: its present cgroup's. What adds up stays.
func TestNewestCgroup(t *testing.T) {
	names := event.NewCgroupEnum(remade{map[uint64]string{1: "/a", 2: "/a", 9: "/b", 3: "/b", 4: "/c", 5: "/c", 6: ""}, map[string]uint64{"/a": 2, "/b": 3}})
	column := result.Column{Type: event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup, Enum: names}}
	table := result.Table{Key: []result.Column{{Type: event.Type{Kind: event.String}}, column}}
	for _, id := range []uint64{2, 1, 9, 3, 4, 5, 6, 7} {
		table.Rows = append(table.Rows, result.Row{Key: []any{"x", id}})
	}
	table.Rows = append(table.Rows, result.Row{Key: []any{"y", uint64(1)}}, result.Row{Key: []any{"x", nil}})
	keys := func() (all []string) {
		added := table
		newest(&added)
		for _, r := range added.Rows {
			all = append(all, fmt.Sprint(r.Key))
		}
		return all
	}
	if got := keys(); len(got) != len(table.Rows) {
		t.Errorf("of values that add up: %s", got)
	}
	table.Assigned = true
	if got, want := keys(), []string{"[x 2]", "[x 3]", "[x 5]", "[x 6]", "[x 7]", "[y 1]", "[x <nil>]"}; !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The program shows whether values are assigned.
func TestAssigned(t *testing.T) {
	program, err := compile("program", "begin { @a = 7; @b += 7; @c++; @d = sum(7); @e++; @e = 7; @f = gauge(7) }", langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var assigned []string
	for _, m := range program.Maps {
		if program.Assigns(m) {
			assigned = append(assigned, m.Name)
		}
	}
	if want := []string{"@a", "@e"}; !slices.Equal(assigned, want) {
		t.Errorf("%s are assigned, want %s", assigned, want)
	}
}
