package result

import "trace/probes/event"

// Number is a value of a type: of a number, but also a string, a boolean or an address. V is nil where it is absent.
type Number struct {
	Type event.Type
	V    any
	// Mean says that it is the average of several.
	Mean bool
	// Error is how much less the number may be. It is no more than V.
	Error uint64
}

// Rank is the number.
func (n Number) Rank() []any { return []any{n.V} }

// Tuple is several values.
type Tuple struct{ Elems []Number }

// Rank is that of the first element, then the second.
func (t Tuple) Rank() []any { return t.Values() }

// Values are those of the elements.
func (t Tuple) Values() []any {
	all := make([]any, len(t.Elems))
	for i, e := range t.Elems {
		all[i] = e.V
	}
	return all
}

// Stats is how many values there were, and their average and sum. Without values the average is absent.
type Stats struct {
	Count          uint64
	Average, Total Number
}

// Rank is the average.
func (s Stats) Rank() []any { return []any{s.Average.V} }

// Rate is a sum, and what it is in a second.
type Rate struct {
	Total     Number
	PerSecond float64
	// Timed says that some time has passed; otherwise nobody knows PerSecond.
	Timed bool
	// Unit of PerSecond.
	Unit event.Unit
}

// Rank is the total.
func (r Rate) Rank() []any { return []any{r.Total.V} }

// Quantiles are values that so many percent of all do not exceed.
type Quantiles struct {
	Count uint64
	All   []Quantile
}

// Rank is how many values there are.
func (q Quantiles) Rank() []any { return []any{q.Count} }

// Quantile is the value that P percent of all do not exceed, absent if there are none. Below says that it is known only to be less than
// Value, and Above that it is Value or more.
type Quantile struct {
	P            float64
	Value        Number
	Below, Above bool
}

// Buckets are the ranges that a histogram counts in, from 0 on.
type Buckets interface {
	// Bounds returns the range of a bucket, [lo, hi), as int64 or uint64; nil where it is open.
	Bounds(bucket int) (lo, hi any)
	// Step is the width of buckets that all have the same, 0 where they grow.
	Step() uint64
}

// Histogram is how many values there are in the buckets from First on. The first and the last of Counts are above 0; without values there
// are none.
type Histogram struct {
	Buckets
	Type   event.Type
	First  int
	Counts []uint64
	// Total is how many values there are. Where print(@m, top, div) divides counts, it is of those before.
	Total uint64
}

// Rank is how many values there are.
func (h Histogram) Rank() []any { return []any{h.Total} }

// Width is that of a bucket, and of the one before if it is open above.
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

// Estimate is a percentile as a histogram tells it: about At, or Exact. Below says that it is known only to be less than Bound, the lowest
// of all bounds, and Above that it is Bound or more. Bucket is where it is.
type Estimate struct {
	P            float64
	At           float64
	Bucket       int
	Bound        any
	Exact        bool
	Below, Above bool
}

// Percentile looks for a percentile. Within its bucket it lies as if the values there were spread evenly. There has to be a value.
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

// Float is a value as a number to draw: 1 for true, 0 for what is no number.
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

// Size is what a value is drawn by; that of a tuple is 0.
func Size(v Value) float64 {
	if _, several := v.(Tuple); several {
		return 0
	}
	return Float(v.Rank()[0])
}
