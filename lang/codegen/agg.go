package codegen

import (
	"math"
	"math/bits"
)

// Func is an aggregation: what a map does with the values that it is given.
type Func uint8

const (
	Count Func = iota
	Sum
	Avg
	Min
	Max
	Stats
	Hist
	LHist
	Quantile
	Rate
	Gauge
)

// Agg is an aggregation with its parameters. Its state is 64-bit words; adding a value and merging two states are all that happens
// to it, so it may be kept in as many parts as there are CPUs.
//
//	Count, Sum, Rate, Gauge   n
//	Avg, Stats                n, sum
//	Min, Max                  is there a value (0 or 1), value
//	Hist, LHist, Quantile     how many values in each bucket
//
// In the kernel Min and Max have two words, too, each of which changes in one step: see extremeMask.
type Agg struct {
	Func   Func
	Signed bool // the values are signed
	// Hist: 2^Bits buckets for each power of two of (x-Low)>>Shift, and one bucket for what is below Low.
	Bits, Shift int
	// LHist: buckets of Step from Low to High, and one for what is below and above.
	Low, High, Step int64
}

// quantileBits make buckets of 1/16 of a power of two: a quantile is at most 3.1 % off. Values from 2^quantileTop are in one bucket.
const (
	quantileBits = 4
	quantileTop  = 40
)

// Words is the size of a state.
func (a *Agg) Words() int {
	switch a.Func {
	case Avg, Stats, Min, Max:
		return 2
	case Hist:
		return logBucket(math.MaxUint64>>a.Shift, a.Bits) + 1
	case LHist:
		return a.steps() + 2
	case Quantile:
		return logBucket(1<<quantileTop-1, quantileBits) + 2
	}
	return 1
}

// steps between Low and High; the last one may be cut short by High.
func (a *Agg) steps() int {
	span := uint64(a.High) - uint64(a.Low)
	return int((span-1)/uint64(a.Step)) + 1
}

// Add adds a value, given as its 64 bits; Count ignores it, and so that Rate counts it is given 1.
func (a *Agg) Add(state []uint64, x uint64) {
	switch a.Func {
	case Count:
		state[0]++
	case Sum, Rate, Gauge:
		state[0] += x
	case Avg, Stats:
		state[0]++
		state[1] += x
	case Min, Max:
		if state[0] == 0 || a.better(x, state[1]) {
			state[0], state[1] = 1, x
		}
	default:
		state[a.Bucket(x)]++
	}
}

// Updates is how many values are in a state, as far as that is known: at least one.
func (a *Agg) Updates(state []uint64) uint64 {
	switch a.Func {
	case Count, Avg, Stats:
		return state[0]
	case Hist, LHist, Quantile:
		return a.Total(state)
	}
	return 1
}

// better tells whether x takes the place of y.
func (a *Agg) better(x, y uint64) bool {
	if a.Func == Min {
		x, y = y, x
	}
	if a.Signed {
		return int64(x) > int64(y)
	}
	return x > y
}

// Merge adds the state from to into.
func (a *Agg) Merge(into, from []uint64) {
	if a.Func == Min || a.Func == Max {
		if from[0] != 0 {
			a.Add(into, from[1])
		}
		return
	}
	for i, n := range from {
		into[i] += n
	}
}

// MergeKernel adds what the kernel has.
func (a *Agg) MergeKernel(into, from []uint64) {
	if a.Func != Min && a.Func != Max {
		a.Merge(into, from)
		return
	}
	if from[0]|from[1] != 0 {
		a.Add(into, from[1]^a.extremeMask())
	}
}

// extremeMask makes numbers of values, by exclusive or, of which the largest is the best one. In the kernel the second word of Min and
// Max is the largest number so far. That is 0, too, before there is any; the first word is 1 if a value came whose number is 0.
func (a *Agg) extremeMask() uint64 {
	var mask uint64
	if a.Signed {
		mask = 1 << 63
	}
	if a.Func == Min {
		mask = ^mask
	}
	return mask
}

// Bucket returns the index of the bucket of a value of Hist, LHist or Quantile.
func (a *Agg) Bucket(x uint64) int {
	switch a.Func {
	case LHist:
		switch {
		case a.less(x, a.Low):
			return 0
		case !a.less(x, a.High):
			return a.Words() - 1
		}
		return 1 + int((x-uint64(a.Low))/uint64(a.Step))
	case Quantile:
		if a.less(x, 0) {
			return 0
		}
		if x>>quantileTop != 0 {
			return a.Words() - 1
		}
		return logBucket(x, quantileBits)
	}
	if a.less(x, a.Low) {
		return 0
	}
	return logBucket((x-uint64(a.Low))>>a.Shift, a.Bits)
}

// less compares a value with a bound, mathematically.
func (a *Agg) less(x uint64, bound int64) bool {
	if a.Signed {
		return int64(x) < bound
	}
	return bound > 0 && x < uint64(bound)
}

// logBucket returns the index of the log-linear bucket of n, the first being 1: 2^k buckets for each power of two.
func logBucket(n uint64, k int) int {
	if n>>k == 0 {
		return 1 + int(n)
	}
	shift := bits.Len64(n) - 1 - k
	return 1 + shift<<k + int(n>>shift)
}

// logLow returns the lowest number of a bucket.
func logLow(bucket, k int) uint64 {
	i := bucket - 1
	if i < 1<<k {
		return uint64(i)
	}
	shift := i>>k - 1
	return uint64(i-shift<<k) << shift
}

// Bounds returns the range [lo, hi) of a bucket as 64-bit numbers of the sign of the values; below says that there is no lower
// bound, above that there is no upper one.
func (a *Agg) Bounds(bucket int) (lo, hi uint64, below, above bool) {
	last := bucket == a.Words()-1
	if a.Func == LHist {
		switch {
		case bucket == 0:
			return 0, uint64(a.Low), true, false
		case last:
			return uint64(a.High), 0, false, true
		}
		lo = uint64(a.Low) + uint64(bucket-1)*uint64(a.Step)
		if bucket == a.Words()-2 {
			return lo, uint64(a.High), false, false
		}
		return lo, lo + uint64(a.Step), false, false
	}
	low, shift, k := uint64(a.Low), a.Shift, a.Bits
	if a.Func == Quantile {
		low, shift, k = 0, 0, quantileBits
	}
	if bucket == 0 {
		return 0, low, true, false
	}
	lo = low + logLow(bucket, k)<<shift
	hi = low + logLow(bucket+1, k)<<shift
	if last || a.Signed && int64(hi) < int64(lo) { // the highest bucket of signed values ends at 2^63
		return lo, 0, false, true
	}
	return lo, hi, false, false
}

// Total is the number of values in a histogram.
func (a *Agg) Total(state []uint64) uint64 {
	var n uint64
	for _, c := range state {
		n += c
	}
	return n
}

// Percentile returns the value that p percent of the values of a Quantile do not exceed: the middle of its bucket, exact below
// 32. Of values below 0 and from 2^40 on it knows only that: then it returns the bound, and below or above is true.
func (a *Agg) Percentile(state []uint64, p float64) (x uint64, below, above bool) {
	total := a.Total(state)
	rank := uint64(math.Ceil(p / 100 * float64(total)))
	rank = min(max(rank, 1), total)
	var seen uint64
	for i, n := range state {
		if seen += n; seen < rank || n == 0 {
			continue
		}
		lo, hi, below, above := a.Bounds(i)
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
