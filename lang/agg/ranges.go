package agg

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"trace/lang/result"
)

// Ranges are the buckets of a histogram.
type Ranges interface {
	// Count returns the number of buckets.
	Count() int
	// Index returns the bucket of a value.
	Index(x uint64, signed bool) int
	// Bounds returns the range [lo, hi) of a bucket, as 64-bit numbers with the sign of the values. below reports that there is no
	// lower bound, above that there is no upper one.
	Bounds(bucket int, signed bool) (lo, hi uint64, below, above bool)
	// Step returns the width of the buckets, or 0 if it varies.
	Step() uint64
}

// Log has 2^Bits buckets for each power of two of (x-Low)>>Shift, and one for values below Low.
type Log struct {
	Bits, Shift int
	Low         int64
	// Top makes values from 2^Top up share one bucket; 0: there is no such bound.
	Top int
}

// Linear has buckets of Width from Low to High, one for values below and one for values above.
type Linear struct{ Low, High, Width int64 }

// Count returns the number of buckets.
func (l Log) Count() int {
	if l.Top > 0 {
		return logBucket(1<<l.Top-1, l.Bits) + 2
	}
	return logBucket(math.MaxUint64>>l.Shift, l.Bits) + 1
}

// Index returns the bucket of a value.
func (l Log) Index(x uint64, signed bool) int {
	if less(x, l.Low, signed) {
		return 0
	}
	if l.Top > 0 && x>>l.Top != 0 {
		return l.Count() - 1
	}
	return logBucket((x-uint64(l.Low))>>l.Shift, l.Bits)
}

// Bounds returns the range of a bucket.
func (l Log) Bounds(bucket int, signed bool) (lo, hi uint64, below, above bool) {
	if bucket == 0 {
		return 0, uint64(l.Low), true, false
	}
	lo = uint64(l.Low) + logLow(bucket, l.Bits)<<l.Shift
	hi = uint64(l.Low) + logLow(bucket+1, l.Bits)<<l.Shift
	if bucket == l.Count()-1 || signed && int64(hi) < int64(lo) { // the last bucket of signed values ends at 2^63
		return lo, 0, false, true
	}
	return lo, hi, false, false
}

// Step returns 0: the width varies.
func (Log) Step() uint64 { return 0 }

// Count returns the number of buckets. High may cut the last one short.
func (l Linear) Count() int {
	span := uint64(l.High) - uint64(l.Low)
	return int((span-1)/uint64(l.Width)) + 3
}

// Index returns the bucket of a value.
func (l Linear) Index(x uint64, signed bool) int {
	switch {
	case less(x, l.Low, signed):
		return 0
	case !less(x, l.High, signed):
		return l.Count() - 1
	}
	return 1 + int((x-uint64(l.Low))/uint64(l.Width))
}

// Bounds returns the range of a bucket.
func (l Linear) Bounds(bucket int, _ bool) (lo, hi uint64, below, above bool) {
	last := l.Count() - 1
	switch bucket {
	case 0:
		return 0, uint64(l.Low), true, false
	case last:
		return uint64(l.High), 0, false, true
	}
	lo = uint64(l.Low) + uint64(bucket-1)*uint64(l.Width)
	if bucket == last-1 {
		return lo, uint64(l.High), false, false
	}
	return lo, lo + uint64(l.Width), false, false
}

// Step returns the width of the buckets.
func (l Linear) Step() uint64 { return uint64(l.Width) }

// less reports whether a value is below a bound, both taken as mathematical numbers.
func less(x uint64, bound int64, signed bool) bool {
	if signed {
		return int64(x) < bound
	}
	return bound > 0 && x < uint64(bound)
}

// logBucket returns the index of the log-linear bucket of n, counted from 1: there are 2^k buckets for each power of two.
func logBucket(n uint64, k int) int {
	if n>>k == 0 {
		return 1 + int(n)
	}
	shift := bits.Len64(n) - 1 - k
	return 1 + shift<<k + int(n>>shift)
}

// logLow returns the smallest number of a bucket.
func logLow(bucket, k int) uint64 {
	i := bucket - 1
	if i < 1<<k {
		return uint64(i)
	}
	shift := i>>k - 1
	return uint64(i-shift<<k) << shift
}

// histogram is the number of values in each bucket, and perhaps exemplars of them.
type histogram struct {
	Ranges
	exemplars bool
}

func (h histogram) Words() int {
	if h.exemplars {
		return h.Count() + Slots*SlotSize
	}
	return h.Count()
}

func (h histogram) buckets() Buckets { return Buckets{h.Ranges, h.exemplars} }
func (h histogram) Shape() Shape     { return h.buckets() }

// counts returns the part of a state that counts values.
func (h histogram) counts(state []uint64) []uint64 {
	if h.exemplars {
		return state[:h.Count()]
	}
	return state
}

func (h histogram) Add(state []uint64, x uint64, signed bool) {
	state[h.Index(x, signed)]++
}

func (h histogram) Merge(into, from []uint64, signed bool) {
	words{}.Merge(h.counts(into), h.counts(from), signed)
	if !h.exemplars {
		return
	}
	for slot := range Slots {
		if e, ok := h.exemplar(from, slot); ok {
			h.offer(into, e)
		}
	}
}

func (h histogram) FromKernel(into, kernel []uint64, signed bool) { h.Merge(into, kernel, signed) }

func (h histogram) Updates(state []uint64) uint64 { return sumOf(h.counts(state)) }

func (h histogram) Traits() Traits {
	return Traits{Many: true, Counts: true, Course: result.Spread, Adds: result.Counts, Metric: result.Distribution, Exemplars: h.exemplars}
}

func sumOf(state []uint64) uint64 {
	var n uint64
	for _, c := range state {
		n += c
	}
	return n
}

// shownBuckets are the ranges, for values with or without a sign.
type shownBuckets struct {
	Ranges
	show Show
}

// Bounds returns the range of a bucket.
func (b shownBuckets) Bounds(bucket int) (lo, hi any) {
	from, to, below, above := b.Ranges.Bounds(bucket, b.show.Signed)
	if !below {
		lo = b.show.Number(from)
	}
	if !above {
		hi = b.show.Number(to)
	}
	return lo, hi
}

// Result returns the histogram from the first to the last bucket that has a value.
func (h histogram) Result(state []uint64, o Show) result.Value {
	out := result.Histogram{Buckets: shownBuckets{h.Ranges, o}, Type: o.Type, Estimate: o.Share > 0, Exemplars: h.shownExemplars(state, o.Clock)}
	state = h.counts(state)
	out.Total = o.estimated(sumOf(state))
	out.First = slices.IndexFunc(state, func(n uint64) bool { return n != 0 })
	if out.First < 0 {
		out.First = 0
		return out
	}
	end := len(state)
	for state[end-1] == 0 {
		end--
	}
	for _, n := range state[out.First:end] {
		out.Counts = append(out.Counts, o.estimated(n))
	}
	return out
}

// Hist is a histogram whose buckets grow.
type Hist struct{ histogram }

// NewHist returns a Hist with 2^k buckets for each power of two of (x-low)>>shift.
func NewHist(k, shift int, low int64) Hist {
	return Hist{histogram{Ranges: Log{Bits: k, Shift: shift, Low: low}}}
}

// Name returns the name in the language.
func (Hist) Name() string { return "hist" }

// Params returns k, min and shift.
func (h Hist) Params() string {
	l := h.Ranges.(Log)
	return fmt.Sprintf("k %d min %d shift %d", l.Bits, l.Low, l.Shift)
}

// Result returns the histogram. Its counts are divided, as in bpftrace.
func (h Hist) Result(state []uint64, o Show) result.Value {
	out := h.histogram.Result(state, o).(result.Histogram)
	if o.Div > 1 {
		for i := range out.Counts {
			out.Counts[i] /= uint64(o.Div)
		}
	}
	return out
}

// LHist is a histogram whose buckets have one width.
type LHist struct{ histogram }

// NewLHist returns an LHist with buckets of step from low to high.
func NewLHist(low, high, step int64) LHist {
	return LHist{histogram{Ranges: Linear{Low: low, High: high, Width: step}}}
}

// Name returns the name in the language.
func (LHist) Name() string { return "lhist" }

// Params returns min, max and step.
func (h LHist) Params() string {
	l := h.Ranges.(Linear)
	return fmt.Sprintf("%d to %d by %d", l.Low, l.High, l.Width)
}
