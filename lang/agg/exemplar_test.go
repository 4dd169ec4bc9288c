package agg

import (
	"slices"
	"testing"
	"time"

	"trace/lang/result"
)

// from is a value of an event at a second.
type from struct {
	value  uint64
	second uint64
	thread uint32
}

const nanos = 1e9

func clock(nsecs uint64) time.Time { return time.Unix(0, int64(nsecs)) }

// stateOf returns the state after these events.
func stateOf(a *Agg, events ...from) []uint64 {
	state := make([]uint64, a.Words())
	for _, e := range events {
		a.AddFrom(state, e.second*nanos, e.thread, e.value)
	}
	return state
}

// shown returns the exemplars of a state, as events whose value is the least of the bucket, in the order of their values.
func shown(a *Agg, state []uint64) (all []from) {
	var h result.Histogram
	switch v := a.Result(state, Show{Clock: clock}).(type) {
	case result.Histogram:
		h = v
	case result.Quantiles:
		h = v.Histogram
	}
	for _, e := range h.Exemplars {
		lo, _ := h.Bounds(e.Bucket)
		least, _ := lo.(uint64)
		all = append(all, from{least, uint64(e.Time.UnixNano()) / nanos, e.TID})
	}
	slices.SortFunc(all, func(x, y from) int { return int(x.value) - int(y.value) })
	return all
}

func TestExemplars(t *testing.T) {
	hist, lhist, quantile := NewHist(0, 0, 0), NewLHist(0, 100, 10), NewQuantile(50)
	for _, test := range []struct {
		name   string
		f      Func
		events []from
		want   []from
	}{
		{"none", hist, nil, nil},
		{"the last one of a bucket", hist, []from{{9, 1, 10}, {8, 2, 20}}, []from{{8, 2, 20}}},
		{"also if an earlier one comes later", hist, []from{{8, 2, 20}, {9, 1, 10}}, []from{{8, 2, 20}}},
		{"of the highest buckets", hist, []from{{1 << 8, 1, 8}, {1 << 4, 1, 4}, {1 << 5, 1, 5}, {1 << 6, 1, 6}, {1 << 7, 1, 7}, {1 << 3, 1, 3}},
			[]from{{1 << 5, 1, 5}, {1 << 6, 1, 6}, {1 << 7, 1, 7}, {1 << 8, 1, 8}}},
		{"an old one gives way", hist, []from{{1 << 8, 1, 8}, {1 << 4, 60, 4}, {1 << 4, 70, 5}}, []from{{1 << 4, 70, 5}}},
		{"and not to an earlier one", hist, []from{{1 << 8, 100, 8}, {1 << 4, 1, 4}}, []from{{1 << 8, 100, 8}}},
		{"a power of two has one", quantile, []from{{1 << 20, 1, 1}, {7 << 18, 2, 2}, {3 << 19, 3, 3}, {1 << 19, 4, 4}}, []from{{1 << 19, 4, 4}, {7 << 18, 2, 2}}},
		{"values beyond all bounds", quantile, []from{{1 << 50, 1, 1}}, []from{{1 << 40, 1, 1}}},
		{"linear", lhist, []from{{5, 1, 5}, {15, 1, 15}, {500, 1, 500}, {0, 1, 1}}, []from{{0, 1, 1}, {10, 1, 15}, {100, 1, 500}}},
		{"in the first second", hist, []from{{1, 0, 7}}, []from{{1, 0, 7}}},
	} {
		a := &Agg{Func: WithExemplars(test.f)}
		state := stateOf(a, test.events...)
		if got := shown(a, state); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if n := a.Updates(state); n != uint64(len(test.events)) {
			t.Errorf("%s: %d values, want %d", test.name, n, len(test.events))
		}
		other, merged := stateOf(a, from{1 << 5, 2, 99}), make([]uint64, a.Words()) // of another CPU
		for _, cpu := range [][]uint64{state, other} {
			a.FromKernel(merged, cpu)
		}
		if want := stateOf(a, append(test.events, from{1 << 5, 2, 99})...); test.f == Func(hist) && !slices.Equal(merged, want) {
			t.Errorf("%s: two CPUs have %v, one has %v", test.name, shown(a, merged), shown(a, want))
		}
	}
}

// What exemplars add to the state changes nothing of the rest.
func TestExemplarsApart(t *testing.T) {
	for _, f := range []Func{NewHist(3, 0, 0), NewLHist(0, 100, 10), NewQuantile(50, 99)} {
		without, with := &Agg{Func: f}, &Agg{Func: WithExemplars(f)}
		plain, state := make([]uint64, without.Words()), make([]uint64, with.Words())
		for x := range uint64(100) {
			without.Add(plain, x*x)
			with.AddFrom(state, x, uint32(x), x*x)
		}
		if !slices.Equal(state[:len(plain)], plain) || with.Words() != without.Words()+Slots*SlotSize {
			t.Errorf("%s: the counts differ", f.Name())
		}
		if v, is := with.Result(state, Show{}).(result.Histogram); is && v.Exemplars != nil {
			t.Errorf("%s: there are exemplars without a clock: %v", f.Name(), v.Exemplars)
		}
		if with.Traits().Exemplars == without.Traits().Exemplars {
			t.Errorf("%s: its traits are %+v", f.Name(), with.Traits())
		}
	}
	if f := WithExemplars(Count{}); f.Traits().Exemplars {
		t.Error("count() keeps exemplars")
	}
}

// A slot whose words belong to two events counts as empty, also if their times differ by a nanosecond.
func TestTornExemplars(t *testing.T) {
	a := &Agg{Func: WithExemplars(NewHist(0, 0, 0))}
	for apart := range uint64(1000) {
		state := make([]uint64, a.Words())
		a.AddFrom(state, nanos, 77, 1000)
		later := make([]uint64, a.Words())
		a.AddFrom(later, nanos+1+apart*apart, 78, 1000)
		at := slices.IndexFunc(state[len(state)-Slots*SlotSize:], func(w uint64) bool { return w != 0 }) + len(state) - Slots*SlotSize
		state[at] = later[at]
		if got := shown(a, state); got != nil {
			t.Fatalf("%d ns apart: %v", 1+apart*apart, got)
		}
		merged := make([]uint64, a.Words())
		a.FromKernel(merged, state)
		a.AddFrom(merged, nanos, 5, 1)
		if got := shown(a, merged); len(got) != 1 || got[0].thread != 5 {
			t.Fatalf("%d ns apart: %v", 1+apart*apart, got)
		}
	}
	state := make([]uint64, a.Words())
	a.AddFrom(state, nanos, 77, 1000)
	clear(state[:len(state)-Slots*SlotSize]) // its bucket has no value
	if got := shown(a, state); got != nil {
		t.Errorf("an exemplar of nothing: %v", got)
	}
}
