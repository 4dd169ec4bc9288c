package agg

import (
	"fmt"
	"math"

	"trace/lang/result"
)

// Quantile tells which value so many percent of all do not exceed. Its buckets are 1/16 of a power of two, so that it is at most 3.1 % off,
// and exact below 32. Values from 2^40 on are in one bucket.
type Quantile struct {
	histogram
	Percentiles []float64
}

// NewQuantile makes one for some percentiles.
func NewQuantile(percentiles ...float64) Quantile {
	return Quantile{histogram{Ranges: Log{Bits: 4, Top: 40}}, percentiles}
}

// Name of the function.
func (Quantile) Name() string { return "quantile" }

// Params are the percentiles.
func (q Quantile) Params() string { return fmt.Sprint(q.Percentiles) }

// Traits of quantile.
func (Quantile) Traits() Traits { return Traits{Many: true, Adds: result.Counts} }

// Result is each of the percentiles.
func (q Quantile) Result(state []uint64, o Show) result.Value {
	out := result.Quantiles{Count: sumOf(state), All: make([]result.Quantile, len(q.Percentiles))}
	for i, p := range q.Percentiles {
		one := result.Quantile{P: p, Value: o.divided(nil)}
		if out.Count > 0 {
			x, below, above := q.percentile(state, p, o.Signed)
			one.Value, one.Below, one.Above = o.divided(o.Number(x)), below, above
		}
		out.All[i] = one
	}
	return out
}

// percentile returns the value that p percent of the values do not exceed: the middle of its bucket. Of values below 0 and from 2^40 on it
// knows only that: then it returns the bound, and below or above is true.
func (q Quantile) percentile(state []uint64, p float64, signed bool) (x uint64, below, above bool) {
	total := sumOf(state)
	rank := uint64(math.Ceil(p / 100 * float64(total)))
	rank = min(max(rank, 1), total)
	var seen uint64
	for i, n := range state {
		if seen += n; seen < rank || n == 0 {
			continue
		}
		lo, hi, below, above := q.Bounds(i, signed)
		switch {
		case below:
			return hi, true, false
		case above:
			return lo, false, true
		}
		return lo + (hi-lo-1)/2, false, false
	}
	return 0, false, false
}
