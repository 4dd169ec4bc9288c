package output

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file has what displays show that show more than a [Printer] does: the page and the live view.

// Maps are those of a program that runs, for what shows them meanwhile and at the end.
type Maps interface {
	// Tables are what they hold now, the rows with the largest value first.
	Tables() ([]result.Table, error)
	// Clear empties them.
	Clear() error
}

// view is a map for people who look at it: the page and the live view.
type view struct {
	result.Table
	Rows []row
}

// row is an entry of a view.
type row struct {
	// Key holds its elements as they are printed.
	Key []string
	// Value as it is printed; of a histogram how many values it has.
	Value string
	// Number is what is drawn of the value; absent values are 0.
	Number float64
	// histogram is empty of what is none.
	histogram   result.Histogram
	Percentiles []Percentile
}

// viewsOf are the maps of a program.
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

// columns are the names of the elements of a key.
func (v view) columns() []string {
	var names []string
	for _, c := range v.Key {
		names = append(names, c.Name)
	}
	return names
}

// isHistogram tells whether the values are histograms.
func (v view) isHistogram() bool {
	_, is := v.Zero.(result.Histogram)
	return is
}

// isQuantiles tells whether the values are percentiles.
func (v view) isQuantiles() bool {
	_, is := v.Zero.(result.Quantiles)
	return is
}

// label is the range of a bucket, also of one without a value.
func (v view) label(bucket int) string { return label(v.Zero.(result.Histogram), bucket) }

// text writes a number of the course of a value: of a rate what comes in a second.
func (v view) text(n float64) string {
	if v.Course == result.Growth {
		return PerSecond(n, v.unit())
	}
	return about(n, v.unit())
}

func (v view) unit() event.Unit { return v.Table.Unit }

// keyTexts are the elements of a key as they are printed.
func keyTexts(t result.Table, r result.Row) []string {
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

// about is a number with a unit, which is not known better than to three digits.
func about(n float64, unit event.Unit) string { return string(appendAbout(nil, n, unit)) }

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
		p.Value = "≈" + about(e.At, h.Type.Unit)
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

func hasValues(v view) bool {
	return slices.ContainsFunc(v.Rows, func(r row) bool { return r.Number != 0 })
}

// hasCourse returns whether it says something how the values of a map changed: counts only grow.
func hasCourse(v view) bool { return v.Course != result.NoCourse }

// lowerBound is that of a label like [1us, 2us), which several buckets in a line have in common.
func lowerBound(label string) string {
	if strings.HasPrefix(label, "(...") {
		return label
	}
	low, _, _ := strings.Cut(strings.Trim(label, "[]"), ",")
	return low
}

// axis is what the percentiles of a map have in common. It is logarithmic, as buckets are: a fast and a slow device are both seen.
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

// place is where a value is on it, from 0 to 1. There is no logarithm of 0, so the scale is that of one more.
func (a axis) place(x float64) float64 {
	if a.most <= a.least {
		return 0
	}
	return (math.Log1p(max(x, 0)) - math.Log1p(a.least)) / (math.Log1p(a.most) - math.Log1p(a.least))
}
