package output

import (
	"fmt"
	"math"
	mathbits "math/bits"
	"slices"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file writes keys and values of maps as text. They look like bpftrace's: keys in brackets, histograms as bars.

// appendKey appends the key in brackets, or nothing if the map has no key.
func appendKey(b []byte, t result.Table, key []any) []byte {
	if len(key) == 0 {
		return b
	}
	b = format.TextStyle.Parts(append(b, '['), t.Form, len(key), func(b []byte, i int) []byte {
		return format.Append(b, t.Key[i].Type, nil, key[i])
	})
	return append(b, ']')
}

// elements returns the types and the values of a tuple.
func elements(t result.Tuple) (types []event.Type, values []any) {
	for _, e := range t.Elems {
		types = append(types, e.Type)
	}
	return types, t.Values()
}

// estimated is before a number that is an estimate.
const estimated = '~'

// appendNumber appends a number as text. A number that is not known exactly is written as bounds, or is marked as an estimate.
func appendNumber(b []byte, n result.Number) []byte {
	if n.Estimate && n.V != nil {
		b = append(b, estimated)
	}
	if most, ok := n.V.(uint64); ok && n.Error > 0 {
		b = append(format.Append(b, n.Type, nil, most-n.Error), ".."...)
	}
	return format.Append(b, n.Type, nil, n.V)
}

// appendText appends a value.
func appendText(b []byte, v result.Value) []byte {
	switch v := v.(type) {
	case result.Number:
		return appendNumber(b, v)
	case result.Tuple:
		types, values := elements(v)
		return format.Append(b, event.Type{Kind: format.Tuple}, types, format.Shaped(v.Form, values))
	case result.Histogram:
		return appendHistogram(b, v)
	case result.Stats:
		b = appendCount(append(b, "{ .count = "...), v.Count, v.Total.Estimate)
		b = appendNumber(append(b, ", .average = "...), v.Average)
		return append(appendNumber(append(b, ", .total = "...), v.Total), " }"...)
	case result.Quantiles:
		return appendQuantiles(b, v)
	case result.Series:
		return appendSeries(b, v)
	case result.Rate:
		if !v.Timed {
			return append(b, '-')
		}
		if v.Total.Estimate {
			b = append(b, estimated)
		}
		return appendPerSecond(b, v.PerSecond, v.Unit)
	}
	return b
}

// appendCount appends how many there are of something.
func appendCount(b []byte, n uint64, estimate bool) []byte {
	if estimate {
		b = append(b, estimated)
	}
	return strconv.AppendUint(b, n, 10)
}

// appendPerSecond appends a rate per second.
func appendPerSecond(b []byte, rate float64, unit event.Unit) []byte {
	switch unit {
	case event.Nanoseconds:
		b = append(append(b, rateDigits(rate)...), "ns"...)
	case event.Bytes:
		b = appendAboutSize(b, rate)
	default:
		b = append(b, rateDigits(rate)...)
	}
	return append(b, "/s"...)
}

// appendAboutSize appends bytes with about three digits.
func appendAboutSize(b []byte, n float64) []byte {
	unit := "B"
	for _, next := range format.SizeUnits {
		if math.Abs(n) < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	return append(append(b, rateDigits(n)...), unit...)
}

// rateDigits returns a number with three digits, or with all digits before the point and one after it: 1234.5 12.3 0.0123.
func rateDigits(x float64) string {
	if math.Abs(x) >= 10 {
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// quantileName is like p99.9.
func quantileName(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) }

func appendQuantiles(b []byte, v result.Quantiles) []byte {
	for i, q := range v.All {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, quantileName(q.P)...), ' ')
		b = appendQuantile(b, q)
	}
	return b
}

// appendQuantile appends a percentile, which may only be known to be below or above a bound.
func appendQuantile(b []byte, q result.Quantile) []byte {
	switch {
	case q.Below:
		b = append(b, '<')
	case q.Above:
		b = append(b, ">="...)
	}
	return appendNumber(b, q.Value)
}

// barWidth is the length of the longest bar, in characters.
const barWidth = 52

// appendHistogram appends a line for each bucket. The lines are bpftrace's to the last space, but columns widen if needed.
func appendHistogram(b []byte, h result.Histogram) []byte {
	if h.Counts == nil {
		return b
	}
	most := slices.Max(h.Counts)
	labels, longest := make([]string, len(h.Counts)), 0
	counts := make([]string, len(h.Counts))
	for i, n := range h.Counts {
		counts[i] = string(appendCount(nil, n, h.Estimate))
		labels[i] = label(h, h.First+i)
		longest = max(longest, len(labels[i]))
	}
	labelWidth, countWidth := columnWidth(16, longest), columnWidth(8, len(appendCount(nil, most, h.Estimate)))
	for i, n := range h.Counts {
		length := int(float32(n) / float32(max(most, 1)) * barWidth) // bpftrace rounds this way
		b = fmt.Appendf(b, "%-*s%*s |%-*s|\n", labelWidth, labels[i], countWidth, counts[i], barWidth, strings.Repeat("@", length))
	}
	return b
}

// columnWidth returns the usual width, or longest if that is more.
func columnWidth(usual, longest int) int {
	if longest <= usual {
		return usual
	}
	return longest + 1
}

// label returns the range of a bucket: [lo, hi), or [lo] if it has one value.
func label(h result.Histogram, bucket int) string {
	lo, hi := h.Bounds(bucket)
	switch {
	case lo == nil:
		return "(..., " + bound(h, hi, bucket+1) + ")"
	case hi == nil:
		return "[" + bound(h, lo, bucket) + ", ...)"
	case h.Width(bucket) == 1:
		return "[" + bound(h, lo, bucket) + "]"
	}
	return "[" + bound(h, lo, bucket) + ", " + bound(h, hi, bucket+1) + ")"
}

// bound writes v, the lower bound of a bucket, with enough digits to differ from the bounds of its neighbours.
func bound(h result.Histogram, v any, bucket int) string {
	width := h.Width(bucket)
	switch h.Type.Unit {
	case event.Nanoseconds:
		return string(format.AppendDurationWithin(nil, v, width))
	case event.Bytes:
		return string(format.AppendExactSize(nil, v))
	}
	// Like bpftrace: if buckets grow it writes 1K from the bucket on that is 1K wide, otherwise if all are multiples of 1K.
	steps := (mathbits.Len64(width) - 1) / 10
	if step := h.Step(); step > 0 {
		steps = 0
		if step%1024 == 0 {
			steps = 2
		}
	}
	return string(appendScaled(nil, v, steps))
}

// appendScaled appends a number. It divides it by 1024 at most steps times, as long as that is exact: 1K 2M 4G.
func appendScaled(b []byte, v any, steps int) []byte {
	b, n := format.AppendSign(b, v)
	i := 0
	for ; i < steps && n != 0 && n%1024 == 0; i++ {
		n /= 1024
	}
	b = strconv.AppendUint(b, n, 10)
	if i > 0 {
		b = append(b, "KMGTPE"[i-1])
	}
	return b
}
