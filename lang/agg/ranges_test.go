package agg

import (
	"math"
	"testing"
)

func TestBucketsCoverEverything(t *testing.T) {
	aggs := []struct {
		Ranges
		signed bool
	}{
		{NewHist(0, 0, 0).Ranges, false}, {NewHist(3, 0, 0).Ranges, false}, {NewHist(5, 0, 0).Ranges, true}, {NewHist(0, 3, 20).Ranges, false}, {NewHist(0, 0, -5).Ranges, true},
		{NewLHist(0, 1000, 100).Ranges, false}, {NewLHist(-50, 55, 10).Ranges, true}, {NewLHist(7, 8, 10).Ranges, false},
		{NewQuantile().Ranges, false}, {NewQuantile().Ranges, true},
	}
	for _, a := range aggs {
		var values []uint64
		for n := range 64 {
			for _, d := range []uint64{0, 1, ^uint64(0), 2, 3, 77} {
				values = append(values, 1<<n+d, -(1<<n + d))
			}
		}
		values = append(values, 0, math.MaxUint64)
		for _, x := range values {
			i := a.Index(x, a.signed)
			if i < 0 || i >= a.Count() {
				t.Fatalf("%+v: %d is in bucket %d of %d", a, x, i, a.Count())
			}
			lo, hi, below, above := a.Bounds(i, a.signed)
			less := func(x, y uint64) bool {
				if a.signed {
					return int64(x) < int64(y)
				}
				return x < y
			}
			if !below && less(x, lo) || !above && !less(x, hi) {
				t.Errorf("%+v: %d is in bucket %d, [%d, %d)", a, int64(x), i, int64(lo), int64(hi))
			}
		}
	}
}
