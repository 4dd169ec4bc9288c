package family

import (
	"trace/lang/result"
	"trace/probes/event"
)

// amount is the value of a series: a number, or a number of values with their sum, or the counts of buckets. Sums are kept as integers, in the
// units of the map, so that they stay exact.
type amount struct {
	// count is the number of values, and sum their sum, or the number of a counter or gauge.
	count, sum uint64
	// signed reports that the sum has a sign.
	signed bool
	// first is the first bucket of counts.
	first  int
	counts []uint64
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
		_, a.signed = v.V.(int64)
		a.sum = event.To[uint64](v.V)
	case result.Stats:
		a.count, a.signed = v.Count, v.Total.Type.Kind == event.Int
		a.sum = event.To[uint64](v.Total.V)
	case result.Quantiles:
		return amountOf(v.Histogram)
	case result.Histogram:
		a.count, a.first, a.counts = v.Total, v.First, v.Counts
	}
	return a, true
}

// plus returns the sum of two amounts.
func (a amount) plus(b amount) amount {
	a.count += b.count
	a.sum += b.sum
	a.signed = a.signed || b.signed
	switch {
	case len(b.counts) == 0:
		return a
	case len(a.counts) == 0:
		a.first, a.counts = b.first, b.counts
		return a
	}
	first := min(a.first, b.first)
	counts := make([]uint64, max(a.first+len(a.counts), b.first+len(b.counts))-first)
	for _, x := range []amount{a, b} {
		for i, n := range x.counts {
			counts[x.first-first+i] += n
		}
	}
	a.first, a.counts = first, counts
	return a
}

// fell reports whether a map was emptied between two amounts of a key.
func (a amount) fell(before amount) bool {
	if a.count < before.count || !a.signed && a.sum < before.sum {
		return true
	}
	for i, n := range before.counts {
		at := before.first + i - a.first
		if n > 0 && (at < 0 || at >= len(a.counts) || a.counts[at] < n) {
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
	if a.signed {
		return float64(int64(a.sum)) / scale
	}
	return float64(a.sum) / scale
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
