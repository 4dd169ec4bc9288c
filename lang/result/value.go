package result

import (
	"time"

	"trace/lang/format"
	"trace/probes/event"
)

// Number is a value of a type: a number, but also a string, a boolean or an address. V is nil if it is absent.
type Number struct {
	Type event.Type
	V    any
	// Mean reports that the number is an average, and Whole what it is the average of.
	Mean  bool
	Whole *Stats
	// Error is by how much the number may be less. It is at most V.
	Error uint64
	// Estimate reports that the number is an estimate, because only a part of the values was seen.
	Estimate bool
}

// Rank returns the number.
func (n Number) Rank() []any { return []any{n.V} }

// Tuple is several values. Form is how they are nested and named.
type Tuple struct {
	Elems []Number
	Form  *format.Form
}

// Rank returns the values: the first element decides, then the second.
func (t Tuple) Rank() []any { return t.Values() }

// Values returns the values of the elements.
func (t Tuple) Values() []any {
	all := make([]any, len(t.Elems))
	for i, e := range t.Elems {
		all[i] = e.V
	}
	return all
}

// Stats is the number of values, their average and their sum. Without values the average is absent. If the sum is an estimate, so is the
// number.
type Stats struct {
	Count          uint64
	Average, Total Number
}

// Rank returns the average.
func (s Stats) Rank() []any { return []any{s.Average.V} }

// Rate is a sum, in total and per second.
type Rate struct {
	Total     Number
	PerSecond float64
	// Timed reports that time has passed. Otherwise PerSecond is unknown.
	Timed bool
	// Unit is the unit of PerSecond.
	Unit event.Unit
}

// Rank returns the total.
func (r Rate) Rank() []any { return []any{r.Total.V} }

// Quantiles are percentiles of values.
type Quantiles struct {
	Count uint64
	All   []Quantile
	// Histogram is what they are computed of.
	Histogram Histogram
}

// Rank returns the number of values.
func (q Quantiles) Rank() []any { return []any{q.Count} }

// Quantile is the value that P percent of all values do not exceed, absent if there are no values. Below reports that it is only
// known to be less than Value, and Above that it is Value or more.
type Quantile struct {
	P            float64
	Value        Number
	Below, Above bool
}

// Buckets are the ranges that a histogram counts in, from 0 up.
type Buckets interface {
	// Bounds returns the range [lo, hi) of a bucket, as int64 or uint64; nil for an open side.
	Bounds(bucket int) (lo, hi any)
	// Step returns the width of the buckets, or 0 if it varies.
	Step() uint64
}

// Histogram is the number of values in the buckets from First on. The first and the last of Counts are above 0. Without values
// Counts is empty.
type Histogram struct {
	Buckets
	Type   event.Type
	First  int
	Counts []uint64
	// Total is the number of values. If print(@m, top, div) divides the counts, it is the number before the division.
	Total uint64
	// Estimate reports that the counts are estimates, because only a part of the values was seen.
	Estimate bool
	// Exemplars are events that values of the highest buckets came from, if they are kept.
	Exemplars []Exemplar
}

// Exemplar is the last event that gave a value in a bucket: its thread and its time.
type Exemplar struct {
	Bucket int
	TID    uint32
	Time   time.Time
}

// Rank returns the number of values.
func (h Histogram) Rank() []any { return []any{h.Total} }

// Width returns the width of a bucket, or of the previous one if the bucket is open above.
func (h Histogram) Width(bucket int) uint64 {
	lo, hi := h.Bounds(bucket)
	if hi == nil {
		return h.Width(bucket - 1)
	}
	if lo == nil {
		return event.To[uint64](hi)
	}
	return event.To[uint64](hi) - event.To[uint64](lo)
}

// Estimate is a percentile as far as a histogram determines it: about At, or Exact. Below reports that it is only known to be less
// than Bound, the lowest of all bounds, and Above that it is Bound or more. Bucket is the bucket that it is in.
type Estimate struct {
	P            float64
	At           float64
	Bucket       int
	Bound        any
	Exact        bool
	Below, Above bool
}

// Percentile estimates a percentile, as if the values in a bucket were spread evenly. The histogram must have a value.
func (h Histogram) Percentile(p float64) Estimate {
	var total, seen uint64
	for _, n := range h.Counts {
		total += n
	}
	rank, i := p/100*float64(total), 0
	for seen += h.Counts[0]; float64(seen) < rank; seen += h.Counts[i] {
		i++
	}
	e := Estimate{P: p, Bucket: h.First + i}
	lo, hi := h.Bounds(e.Bucket)
	switch {
	case lo == nil:
		e.Below, e.Bound, e.At = true, hi, Float(hi)
	case hi == nil:
		e.Above, e.Bound, e.At = true, lo, Float(lo)
	case h.Width(e.Bucket) == 1:
		e.Exact, e.Bound, e.At = true, lo, Float(lo)
	default:
		part := 1 - (float64(seen)-rank)/float64(h.Counts[i])
		e.At = Float(lo) + part*(Float(hi)-1-Float(lo))
	}
	return e
}

// Float returns a value as a number to draw: 1 for true, 0 for values that are not numbers.
func Float(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case bool:
		return float64(one(v))
	}
	return 0
}

// Size returns the number by which a value is drawn. It is 0 for a tuple and for a time series.
func Size(v Value) float64 {
	switch v.(type) {
	case Tuple, Series:
		return 0
	}
	return Float(v.Rank()[0])
}
