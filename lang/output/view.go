package output

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file serves the page and the live view, which show more than a [Printer].

// Maps are the maps of a running program.
type Maps interface {
	// Tables returns what they hold now. The row with the largest value comes first.
	Tables() ([]result.Table, error)
	// Clear empties them.
	Clear() error
}

// view is a map for the page and the live view.
type view struct {
	result.Table
	Rows []row
}

// row is a row of a view.
type row struct {
	// Key holds the elements of the key as they are printed.
	Key []string
	// Value is the value as it is printed; of a histogram, the number of values.
	Value string
	// Number is the number to draw; 0 for an absent value.
	Number float64
	// histogram is the value if it is a histogram.
	histogram   result.Histogram
	Percentiles []Percentile
}

// viewsOf returns the views of a program's maps.
func viewsOf(maps Maps) ([]view, error) {
	tables, err := maps.Tables()
	if err != nil {
		return nil, err
	}
	all := make([]view, len(tables))
	for i, t := range tables {
		all[i] = view{Table: t}
		for _, r := range t.Rows {
			h, _ := r.Value.(result.Histogram)
			all[i].Rows = append(all[i].Rows, row{
				Key: keyTexts(t, r), Value: ValueText(r.Value), Number: result.Size(r.Value), histogram: h,
				Percentiles: Percentiles(r.Value),
			})
		}
	}
	return all, nil
}

// columns returns the names of the elements of a key.
func (v view) columns() []string {
	var names []string
	for _, c := range v.Key {
		names = append(names, c.Name)
	}
	return names
}

// isHistogram reports whether the values are histograms.
func (v view) isHistogram() bool {
	_, is := v.Zero.(result.Histogram)
	return is
}

// isQuantiles reports whether the values are percentiles.
func (v view) isQuantiles() bool {
	_, is := v.Zero.(result.Quantiles)
	return is
}

// label returns the range of a bucket, with or without a value.
func (v view) label(bucket int) string { return label(v.Zero.(result.Histogram), bucket) }

// text writes a number of the course of a value; of a rate, the number per second.
func (v view) text(n float64) string {
	switch {
	case v.Course == result.Growth && v.Estimate:
		return string(estimated) + PerSecond(n, v.unit())
	case v.Course == result.Growth:
		return PerSecond(n, v.unit())
	}
	return about(n, v.unit())
}

func (v view) unit() event.Unit { return v.Table.Unit }

// keyTexts returns the elements of a key as they are printed.
func keyTexts(t result.Table, r result.Row) []string {
	texts := make([]string, len(r.Key))
	for i, x := range r.Key {
		texts[i] = string(format.Append(nil, t.Key[i].Type, nil, x))
	}
	return texts
}

// ValueText returns a value as it is printed; of a histogram, the number of values, and of a time series the last value.
func ValueText(v result.Value) string {
	switch v := v.(type) {
	case result.Histogram:
		return string(appendCount(nil, v.Total, v.Estimate))
	case result.Series:
		if n := len(v.Points); n > 0 {
			return string(appendNumber(nil, result.Number{Type: v.Type, V: v.Points[n-1].Value}))
		}
		return "-"
	}
	return string(appendText(nil, v))
}

// PerSecond returns a rate per second as it is printed.
func PerSecond(n float64, unit event.Unit) string { return string(appendPerSecond(nil, n, unit)) }

// about returns a number with a unit, with three digits.
func about(n float64, unit event.Unit) string { return string(appendAbout(nil, n, unit)) }

// Percentile is a value that a percentage of all values do not exceed.
type Percentile struct {
	Name, Value string
	// At is the value as a number, or the bound beyond which it lies.
	At float64
	// Bucket is what a histogram knows of it, if its bucket is wide: an estimate in it may be far from the value. Otherwise it is "".
	Bucket string
}

// Known returns the value as far as it is known.
func (p Percentile) Known() string { return cmp.Or(p.Bucket, p.Value) }

// Percentiles returns percentiles of a histogram, as far as its buckets determine them, or of quantiles.
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
				all = append(all, Percentile{Name: quantileName(q.P), Value: string(appendQuantile(nil, q)), At: result.Float(q.Value.V)})
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
		p.Value = "≈" + about(e.At, h.Type.Unit)
		if float64(h.Width(e.Bucket)) > math.Abs(e.At)/narrow {
			p.Bucket = label(h, e.Bucket)
		}
	}
	return p
}

// narrow is how many times as large as the width of a bucket its values are at least if an estimate in it has two digits that are right.
const narrow = 10

// appendAbout appends a value with three digits.
func appendAbout(b []byte, n float64, unit event.Unit) []byte {
	switch unit {
	case event.Nanoseconds:
		return format.AppendDuration(b, int64(math.Round(n)))
	case event.Bytes:
		return appendAboutSize(b, n)
	}
	return strconv.AppendInt(b, int64(math.Round(n)), 10)
}

func hasValues(v view) bool {
	return slices.ContainsFunc(v.Rows, func(r row) bool { return r.Number != 0 })
}

// hasCourse reports whether changes of the map's values are worth showing: counts only grow.
func hasCourse(v view) bool { return v.Course != result.NoCourse }

// lowerBound returns the lower bound in a label like [1us, 2us), for a line of several buckets.
func lowerBound(label string) string {
	if strings.HasPrefix(label, "(...") {
		return label
	}
	low, _, _ := strings.Cut(strings.Trim(label, "[]"), ",")
	return low
}

// axis is the axis that the percentiles of a map share. It is logarithmic, like buckets, so that a fast and a slow device are both
// visible.
type axis struct{ least, most float64 }

func newAxis(rows []row) axis {
	a := axis{math.Inf(1), 0}
	for _, r := range rows {
		for _, p := range r.Percentiles {
			a.least, a.most = min(a.least, max(p.At, 0)), max(a.most, p.At)
		}
	}
	return a
}

// place returns where a value is on the axis, from 0 to 1. The scale uses x+1, because 0 has no logarithm.
func (a axis) place(x float64) float64 {
	if a.most <= a.least {
		return 0
	}
	return (math.Log1p(max(x, 0)) - math.Log1p(a.least)) / (math.Log1p(a.most) - math.Log1p(a.least))
}
