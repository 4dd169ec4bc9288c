package lang

import (
	"slices"
	"strconv"

	"trace/probes"
)

// View is what a map holds at a moment, for displays that show more than [Printer] does.
type View struct {
	Name string // with its @
	// Fn is the aggregation, like hist, or "" for values.
	Fn   string
	Unit probes.Unit
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
	// Percentiles of a histogram, as far as its buckets tell: the upper bounds of those where they lie.
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
}

// Views returns what the maps hold, also after End.
func (r *Run) Views() ([]View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		row.Key[i] = string(appendShown(nil, m.key[i].typ, nil, x))
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
			row.Percentiles = append(row.Percentiles, Percentile{quantileName(p), m.percentileOf(first, counts, p)})
		}
	}
	return row
}

// percentileOf is the upper bound of the bucket where the percentile lies, after a sign that says so.
func (m *mapInfo) percentileOf(first int, counts []uint64, p float64) string {
	var total, below uint64
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		below += n
		if float64(below) < p/100*float64(total) {
			continue
		}
		lo, hi, _, above := m.agg.Bounds(first + i)
		switch {
		case above:
			return "≥ " + m.bound(lo, first+i)
		case hi == lo+1:
			return m.bound(lo, first+i)
		}
		return "< " + m.bound(hi, first+i+1)
	}
	return "-"
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.plan.program.maps {
		if err := r.machine.empty(m, r.machine.now(), mapStore.clear); err != nil {
			return err
		}
	}
	return nil
}
