package main

import (
	"trace/lang"
	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// view is a map for people who look at it: the page and the live view.
type view struct {
	result.Table
	// Keys is how many elements a key has.
	Keys int
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
	Percentiles []output.Percentile
}

// viewsOf are the maps of a run.
func viewsOf(exec *lang.Run) ([]view, error) {
	tables, err := exec.Tables()
	if err != nil {
		return nil, err
	}
	all := make([]view, len(tables))
	for i, t := range tables {
		all[i] = view{Table: t, Keys: len(t.Key)}
		for _, r := range t.Rows {
			h, _ := r.Value.(result.Histogram)
			all[i].Rows = append(all[i].Rows, row{
				Key: output.KeyTexts(t, r), Value: output.ValueText(r.Value), Number: result.Size(r.Value), histogram: h,
				Percentiles: output.Percentiles(r.Value),
			})
		}
	}
	return all, nil
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
func (v view) label(bucket int) string { return output.BucketLabel(v.Zero.(result.Histogram), bucket) }

// text writes a number of the course of a value: of a rate what comes in a second.
func (v view) text(n float64) string {
	if v.Course == result.Growth {
		return output.PerSecond(n, v.unit())
	}
	return output.About(n, v.unit())
}

func (v view) unit() event.Unit { return v.Table.Unit }
