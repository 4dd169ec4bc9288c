package agg

import (
	"fmt"
	"math"

	"trace/lang/result"
)

// Quantile computes percentiles. Its buckets are 1/16 of a power of two wide, so a result is at most 3.1 % off, and exact below 32.
// Values from 2^40 up share one bucket.
type Quantile struct {
	histogram
	Percentiles []float64
}

// NewQuantile returns a Quantile of the percentiles.
func NewQuantile(percentiles ...float64) Quantile {
	return Quantile{histogram{Ranges: Log{Bits: 4, Top: 40}}, percentiles}
}

// Name returns the name in the language.
func (Quantile) Name() string { return "quantile" }

// Params returns the percentiles.
func (q Quantile) Params() string { return fmt.Sprint(q.Percentiles) }

// Traits returns the properties of quantile.
func (q Quantile) Traits() Traits {
	return Traits{Many: true, Counts: true, Adds: result.Counts, Metric: result.Distribution, Exemplars: q.exemplars}
}

// Result returns the value of each percentile.
func (q Quantile) Result(state []uint64, o Show) result.Value {
	out := result.Quantiles{All: make([]result.Quantile, len(q.Percentiles))}
	out.Histogram = q.histogram.Result(state, o).(result.Histogram)
	state = q.counts(state)
	out.Count = o.estimated(sumOf(state))
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

// percentile returns the value that p percent of the values do not exceed: the middle of its bucket. For values below 0 and from
// 2^40 up it returns the bound instead, with below or above true.
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
