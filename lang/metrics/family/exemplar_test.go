package family

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"trace/lang/agg"
	"trace/lang/result"
	"trace/probes/event"
)

// latencies is a map of histograms by name.
type latencies struct {
	agg *agg.Agg
	result.Table
}

func newLatencies(f agg.Func) *latencies {
	a := &agg.Agg{Func: agg.WithExemplars(f)}
	l := &latencies{agg: a, Table: result.Table{Name: "@m", Func: f.Name(), Metric: result.Distribution, Adds: result.Counts, Unit: event.Nanoseconds,
		Key: []result.Column{{Name: "name", Type: event.Type{Kind: event.String}}}}}
	l.Zero = l.result(make([]uint64, a.Words()))
	return l
}

func (l *latencies) result(state []uint64) result.Value {
	return l.agg.Result(state, agg.Show{Type: event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}, Clock: func(nsecs uint64) time.Time { return time.Unix(0, int64(nsecs)) }})
}

// add adds a row with values, each of the thread of its number, from a second on.
func (l *latencies) add(name string, second, tid int, values ...uint64) {
	state := make([]uint64, l.agg.Words())
	for i, v := range values {
		l.agg.AddFrom(state, uint64(second+i)*1e9, uint32(tid+i), v)
	}
	l.Rows = append(l.Rows, result.Row{Key: []any{name}, Value: l.result(state)})
}

// exemplarsOf returns the exemplars of each series, as thread@second=value.
func exemplarsOf(f Family) map[string][]string {
	all := map[string][]string{}
	for _, s := range f.Series {
		for _, e := range s.Buckets.Exemplars {
			all[s.Labels[0]] = append(all[s.Labels[0]], fmt.Sprintf("%d@%d=%.1g", e.TID, e.Time.Unix(), e.Value))
		}
	}
	return all
}

// Rows with the same labels, and keys without a series of their own, have the last exemplar of each classic bucket.
func TestExemplarsOfSeveralRows(t *testing.T) {
	l := newLatencies(agg.NewQuantile(50))
	l.add("a", 10, 100, 3_000_000, 70_000_000, 1)
	l.add("a", 5, 200, 3_100_000, 2_000_000, 1<<39) // the last one is beyond all bounds
	l.add("b", 1, 300, 5_000, 5_000, 5_000)
	l.add("c", 20, 400, 5_000_000)
	l.add("d", 30, 500, 6_000_000, 900_000)
	want := map[string][]string{
		"a":   {"102@12=1e-09", "201@6=0.002", "100@10=0.003", "101@11=0.07", "202@7=6e+02"},
		"b":   {"302@3=5e-06"},
		Other: {"501@31=0.0009", "500@30=0.006"},
	}
	e := New(Config{Program: "p", Series: 2})
	for range 2 { // a second snapshot has the same
		if got := exemplarsOf(find(t, e.Families(snapshot(l.Table)), "trace_p_m_seconds")); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	l.Rows = nil // a key that has gone keeps its exemplars as long as its series
	l.add("c", 40, 600, 5_000_000)
	l.add("a", 50, 700, 1) // and one that has come again only new ones
	if got := exemplarsOf(find(t, e.Families(snapshot(l.Table)), "trace_p_m_seconds")); !reflect.DeepEqual(got["b"], want["b"]) || fmt.Sprint(got["a"]) != "[700@50=1e-09]" || got[Other][1] != "600@40=0.005" {
		t.Errorf("after a key has gone: %v", got)
	}
}
