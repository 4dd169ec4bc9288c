package family

import (
	"cmp"
	"math"
	"slices"

	"trace/lang/result"
	"trace/probes/event"
)

// ranges are the buckets of a map, and the bounds of its classic buckets.
type ranges struct {
	result.Buckets
	// unsigned reports that no value is below 0.
	unsigned bool
	// scale is how many units of the map the unit of the metric has.
	scale float64
	// bounds are the upper bounds of classic buckets, and ends the number of the map's buckets below each.
	bounds []float64
	ends   []int
	// native reports that there are native buckets, with this schema.
	native bool
	schema int32
}

// mostBounds is how many classic buckets a linear histogram may have.
const mostBounds = 64

// The bounds of classic buckets of other histograms: 1 us to 137 s, or 1 to 2^40. Native buckets have no such limits.
const (
	leastTime, mostTime = 1 << 10, 1 << 37
	leastBound          = 1
	mostBound           = 1 << 40
)

// rangesOf returns how the buckets of a histogram are shown.
func rangesOf(h result.Histogram) *ranges {
	r := &ranges{Buckets: h.Buckets, unsigned: h.Type.Kind == event.Uint, scale: scaleOf(h.Type.Unit)}
	least, most := float64(leastBound), float64(mostBound)
	if h.Type.Unit == event.Nanoseconds {
		least, most = leastTime, mostTime
	}
	var all []float64 // the upper bounds
	for i := 0; ; i++ {
		_, hi := h.Bounds(i)
		if hi == nil {
			break
		}
		all = append(all, result.Float(hi))
	}
	if h.Step() > 0 {
		every := (len(all) + mostBounds - 1) / mostBounds
		for i := every - 1; i < len(all); i += every {
			r.add(i, all[i])
		}
		return r
	}
	low := base(h)
	for i, hi := range all {
		if hi-low >= least && hi-low <= most && (len(r.ends) == 0 || hi-low >= 2*(all[r.ends[len(r.ends)-1]-1]-low)) {
			r.add(i, hi)
		}
	}
	r.native, r.schema = true, schemaOf(h, all)
	return r
}

// base is where the buckets of a histogram begin to grow.
func base(h result.Histogram) float64 {
	if lo, _ := h.Bounds(1); lo != nil && result.Float(lo) != 1 {
		if first, hi := h.Bounds(0); first == nil {
			return result.Float(hi)
		}
	}
	return 0
}

// add adds a classic bucket that ends with a bucket of the map. Its bound is the largest value in it, as values are integers.
func (r *ranges) add(bucket int, hi float64) {
	if r.unsigned && hi < 1 {
		return // no value is in it
	}
	r.bounds, r.ends = append(r.bounds, (hi-1)/r.scale), append(r.ends, bucket+1)
}

// schemaOf returns the schema of the native buckets: half as fine as the map's, at most 3, whose buckets are 9 % wide.
func schemaOf(h result.Histogram, upper []float64) int32 {
	if len(upper) < 2 {
		return 0
	}
	last := len(upper) - 1
	relative := (upper[last] - upper[last-1]) / upper[last-1] // of the last bucket below a power of two, which is half as wide as the first one above
	return int32(min(max(math.Round(-math.Log2(relative))-2, 0), 3))
}

// buckets returns the buckets of an amount.
func (r *ranges) buckets(a amount) *Buckets {
	b := &Buckets{HasNative: r.native, Schema: r.schema}
	at := 0
	var below uint64
	for i, end := range r.ends {
		for ; at < end; at++ {
			below += a.bucket(at)
		}
		b.Classic = append(b.Classic, ClassicBucket{r.bounds[i], below})
	}
	if !r.native {
		return b
	}
	for i, n := range a.Counts {
		if n > 0 {
			b.count(r.middle(a.First+i)/r.scale, n)
		}
	}
	slices.SortFunc(b.Negative, func(x, y NativeBucket) int { return int(x.Index - y.Index) })
	return b
}

// exemplars returns the last exemplar for each classic bucket. Values beyond all bounds have one, too.
func (r *ranges) exemplars(all []result.Exemplar) (latest []Exemplar) {
	slices.SortFunc(all, func(x, y result.Exemplar) int {
		return cmp.Or(cmp.Compare(r.classic(x.Bucket), r.classic(y.Bucket)), y.Time.Compare(x.Time))
	})
	for i, e := range all {
		if i == 0 || r.classic(e.Bucket) != r.classic(all[i-1].Bucket) {
			latest = append(latest, Exemplar{r.middle(e.Bucket) / r.scale, e.TID, e.Time})
		}
	}
	return latest
}

// classic returns the classic bucket of a bucket of the map: the first one that ends behind it.
func (r *ranges) classic(bucket int) int {
	i, _ := slices.BinarySearch(r.ends, bucket+1)
	return i
}

// bucket returns the count of a bucket of the map.
func (a amount) bucket(i int) uint64 {
	if i < a.First || i >= a.First+len(a.Counts) {
		return 0
	}
	return a.Counts[i-a.First]
}

// middle returns the middle of the values in a bucket, or the bound of an open one.
func (r *ranges) middle(bucket int) float64 {
	lo, hi := r.Bounds(bucket)
	switch {
	case lo == nil:
		return result.Float(hi) - 1
	case hi == nil:
		return result.Float(lo)
	}
	return (result.Float(lo) + result.Float(hi) - 1) / 2
}

// count counts values in their native bucket.
func (b *Buckets) count(v float64, n uint64) {
	if v == 0 {
		b.Zero += n
		return
	}
	to := &b.Positive
	if v < 0 {
		to = &b.Negative
	}
	index := int32(math.Ceil(math.Log2(math.Abs(v)) * math.Exp2(float64(b.Schema))))
	for i := range *to {
		if (*to)[i].Index == index {
			(*to)[i].Count += n
			return
		}
	}
	*to = append(*to, NativeBucket{index, n})
}

// nanoseconds is how many nanoseconds a second has.
const nanoseconds = 1e9

// scaleOf returns how many of a unit its base unit has.
func scaleOf(u event.Unit) float64 {
	if u == event.Nanoseconds {
		return nanoseconds
	}
	return 1
}
