package agg

import (
	"fmt"
	"math"
	"testing"

	"trace/lang/result"
	"trace/probes/event"
)

// sample is a value of a time.
type sample struct{ at, x uint64 }

// TestSeries adds values and compares the intervals that remain, also if a part of the values comes from another state.
func TestSeries(t *testing.T) {
	const far = math.MaxUint64
	minus := func(x int64) uint64 { return uint64(x) }
	for _, test := range []struct {
		s       Series
		signed  bool
		samples []sample
		want    string
	}{
		{Series{10, 3, ""}, false, []sample{{5, 1}, {9, 2}, {12, 3}}, "[{0 2} {1 3}]"},
		{Series{10, 3, ""}, false, []sample{{9, 2}, {5, 1}}, "[{0 2}]"}, // a late value is not the last one
		{Series{10, 3, "sum"}, false, []sample{{5, 1}, {9, 2}, {12, 3}}, "[{0 3} {1 3}]"},
		{Series{10, 3, "avg"}, true, []sample{{5, minus(-3)}, {9, minus(-4)}, {29, 7}}, "[{0 -3} {2 7}]"},
		{Series{10, 3, "min"}, true, []sample{{5, minus(-3)}, {9, minus(-4)}, {9, 8}}, "[{0 -4}]"},
		{Series{10, 3, "max"}, false, []sample{{5, 3}, {9, minus(-4)}}, "[{0 18446744073709551612}]"},
		{Series{10, 3, "sum"}, false, []sample{{5, 1}, {35, 2}, {5, 4}, {36, 8}}, "[{3 10}]"}, // the ring has one place for both
		{Series{1, 2, ""}, false, []sample{{far - 2, 1}, {far - 1, 2}, {far, 3}}, "[{18446744073709551613 1} {18446744073709551614 2}]"},
		{Series{math.MaxInt64, 2, ""}, false, []sample{{0, 1}, {far, 3}}, "[{2 3}]"},
	} {
		for split := range len(test.samples) + 1 {
			one, other := make([]uint64, test.s.Words()), make([]uint64, test.s.Words())
			for i, p := range test.samples {
				if i < split {
					test.s.AddAt(one, p.at, p.x, test.signed)
				} else {
					test.s.AddAt(other, p.at, p.x, test.signed)
				}
			}
			test.s.Merge(one, other, test.signed)
			v := test.s.Result(one, Show{Type: event.Type{Kind: event.Uint, Size: 8}, Signed: test.signed}).(result.Series)
			if got := fmt.Sprint(v.Points); got != test.want {
				t.Errorf("%+v of %v, split at %d: got %s, want %s", test.s, test.samples, split, got, test.want)
			}
		}
	}
}

// TestSeriesEnds shows intervals at the end of all times: the loop over them ends.
func TestSeriesEnds(t *testing.T) {
	for _, last := range []uint64{0, 1, 4, 5, math.MaxUint64 - 1, math.MaxUint64} {
		s := result.Series{Interval: 1, N: 5, Last: last, Points: []result.Point{{Epoch: last, Value: uint64(7)}}}
		if last > 100 {
			s.Points = append([]result.Point{{Epoch: 1, Value: uint64(1)}, {Epoch: last - 2, Value: uint64(2)}}, s.Points...)
		}
		all := s.All()
		if want := map[bool]int{true: 3, false: 1}[last > 100]; len(all) != want || all[len(all)-1].Epoch != last {
			t.Errorf("the series that ends at %d is %v", last, all)
		}
	}
}
