package lang

import (
	"math"
	"slices"
	"strconv"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/probes/event"
)

// View is what a map holds at a moment, for displays that show more than [Printer] does.
type View struct {
	Name string // with its @
	// Fn is the aggregation, like hist, or "" for values.
	Fn   string
	Unit event.Unit
	Keys int // elements of a key
	// Rows, the largest value first.
	Rows []Row
}

// Row is an entry of a map.
type Row struct {
	// Key holds its elements as they are printed.
	Key []string
	// Value as it is printed; of a histogram how many values it has.
	Value string
	// Number is what the rows are sorted by: the value, or how many there are; absent values are 0.
	Number float64
	// Buckets of a histogram, from the first to the last that has a value.
	Buckets []Bucket
	// Percentiles of a histogram, about, as its buckets tell no more, and of a quantile.
	Percentiles []Percentile
}

// Bucket is one of a histogram. Index is that in the whole histogram, so the same in all rows and at all times.
type Bucket struct {
	Index int
	Label string
	N     uint64
}

// Percentile is a value below or at which so many percent of all are.
type Percentile struct {
	Name, Value string
	// At is the value as a number, or the bound beyond which it lies.
	At float64
}

// PerSecond is a number of values or their sum in a second, as the map of a rate is printed.
func (v View) PerSecond(n float64) string { return string(appendPerSecond(nil, n, v.Unit)) }

// About is a number with the unit of the map's values.
func (v View) About(n float64) string { return string(appendAbout(nil, n, v.Unit)) }

// Views returns what the maps hold, also after End.
func (r *Run) Views() ([]View, error) {
	defer r.lock()()
	var all []View
	for _, m := range r.plan.program.maps {
		entries, err := r.machine.stores[m].entries()
		if err != nil {
			return nil, err
		}
		o := mapOptions{elapsed: r.machine.elapsed(m), by: "value"}
		v := View{Name: m.name, Fn: m.fn, Unit: m.unit(o), Keys: len(m.key)}
		for _, e := range slices.Backward(m.sort(entries, o)) {
			e.key, e.value = r.machine.printer.presentableRow(m.key, e.key), r.machine.printer.presentableRow(m.value, e.value)
			v.Rows = append(v.Rows, m.row(e, o))
		}
		all = append(all, v)
	}
	return all, nil
}

func (m *mapInfo) row(e entry, o mapOptions) Row {
	row := Row{Key: make([]string, len(e.key))}
	for i, x := range e.key {
		row.Key[i] = string(format.Append(nil, m.key[i].typ, nil, x))
	}
	switch {
	case m.agg == nil:
		_, _, v := m.scalar(e, o)
		row.Number = toFloat(v)
	default:
		row.Number = toFloat(m.number(e.state))
	}
	if !m.isHistogram() {
		row.Value = string(m.appendText(nil, e, o))
		row.Percentiles = m.quantiles(e.state)
		return row
	}
	total := m.agg.Total(e.state)
	row.Value = strconv.FormatUint(total, 10)
	first, counts := m.buckets(e.state, o)
	for i, n := range counts {
		row.Buckets = append(row.Buckets, Bucket{Index: first + i, Label: m.label(first + i), N: n})
	}
	for _, p := range []float64{50, 90, 99} {
		if total > 0 {
			row.Percentiles = append(row.Percentiles, m.percentileOf(first, counts, p))
		}
	}
	return row
}

// quantiles are the percentiles of a quantile that has values.
func (m *mapInfo) quantiles(state []uint64) []Percentile {
	if m.agg == nil || m.agg.Func != codegen.Quantile || m.agg.Total(state) == 0 {
		return nil
	}
	all := make([]Percentile, len(m.percentiles))
	for i, p := range m.percentiles {
		x, below, above := m.agg.Percentile(state, p)
		all[i] = Percentile{quantileName(p), string(m.appendQuantile(nil, x, below, above, mapOptions{})), m.float(x)}
	}
	return all
}

// float is an aggregated value for drawing.
func (m *mapInfo) float(x uint64) float64 { return toFloat(m.signed(x)) }

// percentileOf looks for a percentile in the buckets of a histogram. Within its bucket it lies as if the values there were spread evenly.
func (m *mapInfo) percentileOf(first int, counts []uint64, p float64) Percentile {
	var total, seen uint64
	for _, n := range counts {
		total += n
	}
	rank, bucket := p/100*float64(total), 0
	for seen += counts[0]; float64(seen) < rank; seen += counts[bucket] {
		bucket++
	}
	found := Percentile{Name: quantileName(p)}
	lo, hi, below, above := m.agg.Bounds(first + bucket)
	switch {
	case below:
		found.Value, found.At = "< "+m.bound(hi, first+bucket+1), m.float(hi)
	case above:
		found.Value, found.At = "≥ "+m.bound(lo, first+bucket), m.float(lo)
	case hi == lo+1:
		found.Value, found.At = m.bound(lo, first+bucket), m.float(lo)
	default:
		part := 1 - (float64(seen)-rank)/float64(counts[bucket])
		found.At = m.float(lo) + part*(m.float(hi)-1-m.float(lo))
		found.Value = "≈" + string(appendAbout(nil, found.At, m.typ().Unit))
	}
	return found
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

// BucketLabel returns the label of a bucket of a histogram map, also of one without a value.
func (r *Run) BucketLabel(name string, index int) string {
	for _, m := range r.plan.program.maps {
		if m.name == name && m.isHistogram() {
			return m.label(index)
		}
	}
	return ""
}

// toFloat is a number for sorting and drawing; what is none is 0.
func toFloat(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case bool:
		if v {
			return 1
		}
	}
	return 0
}

// Clear empties all maps, as clear() does.
func (r *Run) Clear() error {
	defer r.lock()()
	for _, m := range r.plan.program.maps {
		if err := r.machine.empty(m, r.machine.now(), mapStore.clear); err != nil {
			return err
		}
	}
	return nil
}
