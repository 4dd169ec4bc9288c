package codegen

import (
	"math"
	"testing"
)

func TestBucketsCoverEverything(t *testing.T) {
	aggs := []Agg{
		{Func: Hist}, {Func: Hist, Bits: 3}, {Func: Hist, Bits: 5, Signed: true}, {Func: Hist, Low: 20, Shift: 3}, {Func: Hist, Low: -5, Signed: true},
		{Func: LHist, Low: 0, High: 1000, Step: 100}, {Func: LHist, Low: -50, High: 55, Step: 10, Signed: true}, {Func: LHist, Low: 7, High: 8, Step: 10},
		{Func: Quantile}, {Func: Quantile, Signed: true},
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
			i := a.Bucket(x)
			if i < 0 || i >= a.Words() {
				t.Fatalf("%+v: %d is in bucket %d of %d", a, x, i, a.Words())
			}
			lo, hi, below, above := a.Bounds(i)
			less := func(x, y uint64) bool {
				if a.Signed {
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
