package family

import (
	"trace/lang/result"
	"trace/probes/event"
)

// amount is the value of a series: a number, or a number of values with their sum, or the counts of buckets. Sums are kept as integers, in the
// units of the map, so that they stay exact. Their names are in a [State].
type amount struct {
	// Count is the number of values, and Sum their sum, or the number of a counter or gauge.
	Count, Sum uint64
	// Signed reports that the sum has a sign.
	Signed bool
	// First is the first bucket of Counts.
	First  int
	Counts []uint64
}

// amountOf returns the value of a row. ok is false for an absent one.
func amountOf(v result.Value) (a amount, ok bool) {
	switch v := v.(type) {
	case result.Number:
		if v.Whole != nil {
			return amountOf(*v.Whole)
		}
		if v.V == nil {
			return a, false
		}
		_, a.Signed = v.V.(int64)
		a.Sum = event.To[uint64](v.V)
	case result.Stats:
		a.Count, a.Signed = v.Count, v.Total.Type.Kind == event.Int
		a.Sum = event.To[uint64](v.Total.V)
	case result.Quantiles:
		return amountOf(v.Histogram)
	case result.Histogram:
		a.Count, a.First, a.Counts = v.Total, v.First, v.Counts
	}
	return a, true
}

// plus returns the sum of two amounts.
func (a amount) plus(b amount) amount {
	a.Count += b.Count
	a.Sum += b.Sum
	a.Signed = a.Signed || b.Signed
	switch {
	case len(b.Counts) == 0:
		return a
	case len(a.Counts) == 0:
		a.First, a.Counts = b.First, b.Counts
		return a
	}
	first := min(a.First, b.First)
	counts := make([]uint64, max(a.First+len(a.Counts), b.First+len(b.Counts))-first)
	for _, x := range []amount{a, b} {
		for i, n := range x.Counts {
			counts[x.First-first+i] += n
		}
	}
	a.First, a.Counts = first, counts
	return a
}

// larger returns the larger one of two numbers.
func larger(a, b amount) amount {
	if a.Signed && int64(a.Sum) > int64(b.Sum) || !a.Signed && a.Sum > b.Sum {
		return a
	}
	return b
}

// fell reports whether a map was emptied between two amounts of a key.
func (a amount) fell(before amount) bool {
	if a.Count < before.Count || !a.Signed && a.Sum < before.Sum {
		return true
	}
	for i, n := range before.Counts {
		at := before.First + i - a.First
		if n > 0 && (at < 0 || at >= len(a.Counts) || a.Counts[at] < n) {
			return true
		}
	}
	return false
}

// sumIn returns the sum in the unit of a family.
func (a amount) sumIn(unit string) float64 {
	scale := 1.0
	if unit == "seconds" {
		scale = nanoseconds
	}
	if a.Signed {
		return float64(int64(a.Sum)) / scale
	}
	return float64(a.Sum) / scale
}

// distributionOf returns the histogram of a value, if it has one.
func distributionOf(v result.Value) (h result.Histogram, is bool) {
	switch v := v.(type) {
	case result.Histogram:
		return v, true
	case result.Quantiles:
		return v.Histogram, true
	}
	return h, false
}
