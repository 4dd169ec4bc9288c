package output

import (
	"math"
	"strconv"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file writes parts of results for displays that show more than a [Printer] does.

// KeyTexts are the elements of a key as they are printed.
func KeyTexts(t result.Table, r result.Row) []string {
	texts := make([]string, len(r.Key))
	for i, x := range r.Key {
		texts[i] = string(format.Append(nil, t.Key[i].Type, nil, x))
	}
	return texts
}

// ValueText is a value as it is printed; of a histogram how many values it has.
func ValueText(v result.Value) string {
	if h, ok := v.(result.Histogram); ok {
		return strconv.FormatUint(h.Total, 10)
	}
	return string(appendText(nil, v))
}

// PerSecond is a number of values or their sum in a second, as the map of a rate is printed.
func PerSecond(n float64, unit event.Unit) string { return string(appendPerSecond(nil, n, unit)) }

// About is a number with a unit, which is not known better than to three digits.
func About(n float64, unit event.Unit) string { return string(appendAbout(nil, n, unit)) }

// BucketLabel is the range of a bucket.
func BucketLabel(h result.Histogram, bucket int) string { return label(h, bucket) }

// Percentile is a value below or at which so many percent of all are.
type Percentile struct {
	Name, Value string
	// At is the value as a number, or the bound beyond which it lies.
	At float64
}

// Percentiles of a histogram, about, as its buckets tell no more, and of quantiles.
func Percentiles(v result.Value) []Percentile {
	var all []Percentile
	switch v := v.(type) {
	case result.Histogram:
		for _, p := range []float64{50, 90, 99} {
			if len(v.Counts) > 0 {
				all = append(all, percentileOf(v, v.Percentile(p)))
			}
		}
	case result.Quantiles:
		for _, q := range v.All {
			if v.Count > 0 {
				all = append(all, Percentile{quantileName(q.P), string(appendQuantile(nil, q)), result.Float(q.Value.V)})
			}
		}
	}
	return all
}

func percentileOf(h result.Histogram, e result.Estimate) Percentile {
	p := Percentile{Name: quantileName(e.P), At: e.At}
	switch {
	case e.Below:
		p.Value = "< " + bound(h, e.Bound, e.Bucket+1)
	case e.Above:
		p.Value = "≥ " + bound(h, e.Bound, e.Bucket)
	case e.Exact:
		p.Value = bound(h, e.Bound, e.Bucket)
	default:
		p.Value = "≈" + About(e.At, h.Type.Unit)
	}
	return p
}

// appendAbout appends a value that is not known better than to three digits.
func appendAbout(b []byte, n float64, unit event.Unit) []byte {
	switch unit {
	case event.Nanoseconds:
		return format.AppendDuration(b, int64(math.Round(n)))
	case event.Bytes:
		return appendAboutSize(b, n)
	}
	return strconv.AppendInt(b, int64(math.Round(n)), 10)
}
