package result_test

import (
	"testing"

	"trace/lang/agg"
	"trace/lang/result"
	"trace/probes/event"
)

var nanoseconds = event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}

// tableOf is a map of an aggregation on one host, with values by key.
func tableOf(f agg.Func, values map[string][]uint64) result.Table {
	a := &agg.Agg{Func: f}
	t := result.Table{Name: "@", Func: f.Name(), Key: []result.Column{{Name: "disk"}}, Type: nanoseconds, Merger: a.Merger(nanoseconds)}
	for key, all := range values {
		state := make([]uint64, a.Words())
		for _, x := range all {
			a.Add(state, x)
		}
		t.Rows = append(t.Rows, result.Row{Key: []any{key}, Value: t.Merger.Result(state), State: state})
	}
	return t
}

// Merged tables of two hosts are equal to the table of one host with the values of both.
func TestMerge(t *testing.T) {
	for _, f := range []agg.Func{agg.Count{}, agg.Sum{}, agg.Avg{}, agg.NewMin(), agg.Max{}, agg.Stats{}, agg.NewHist(2, 0, 0), agg.NewQuantile(50)} {
		merged, err := result.Merge(tableOf(f, map[string][]uint64{"a": {1, 9}, "b": {5}}), tableOf(f, map[string][]uint64{"b": {7, 8}, "c": {3}}))
		if err != nil {
			t.Fatal(err)
		}
		want := tableOf(f, map[string][]uint64{"a": {1, 9}, "b": {5, 7, 8}, "c": {3}})
		merged.Sort(result.ByKey, 0)
		want.Sort(result.ByKey, 0)
		if len(merged.Rows) != len(want.Rows) {
			t.Fatalf("%s: %d rows, want %d", f.Name(), len(merged.Rows), len(want.Rows))
		}
		for i, row := range merged.Rows {
			if got, all := row.Value.Rank()[0], want.Rows[i].Value.Rank()[0]; row.Key[0] != want.Rows[i].Key[0] || got != all {
				t.Errorf("%s: %v is %v, want %v of %v", f.Name(), row.Key, got, all, want.Rows[i].Key)
			}
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	counts, sums := tableOf(agg.Count{}, map[string][]uint64{"a": {1}}), tableOf(agg.Sum{}, map[string][]uint64{"a": {1}})
	short := tableOf(agg.Count{}, map[string][]uint64{"a": {1}})
	short.Rows[0].State = nil
	for want, tables := range map[string][]result.Table{
		"merge tables: no tables are given":                                          nil,
		"merge @: its values are assigned, so they cannot be added":                  {{Name: "@"}},
		"merge " + counts.Name + " count and " + sums.Name + " sum: the maps differ": {counts, sums},
		"merge " + counts.Name + ": its values have different shapes":                {counts, short},
	} {
		if _, err := result.Merge(tables...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The largest values are kept. Equal values have the order of their keys. Absent ones come first.
func TestSort(t *testing.T) {
	row := func(key string, v any) result.Row {
		return result.Row{Key: []any{key}, Value: result.Number{Type: nanoseconds, V: v}}
	}
	table := result.Table{Name: "@", Type: nanoseconds, Rows: []result.Row{row("c", uint64(5)), row("a", uint64(5)), row("b", nil), row("d", uint64(9))}}
	table.Sort(result.ByNature, 3)
	got := ""
	for _, r := range table.Rows {
		got += r.Key[0].(string)
	}
	if got != "acd" {
		t.Errorf("got %s, want acd", got)
	}
}
