package family

import "strings"

// Names knows whose each name of a metric is. Two metrics may not share one: whoever reads them would take one for a part of the other, or refuse
// all of them.
type Names[Owner any] map[claim]Owner

// claim is a name of a family or, in the text formats, of series.
type claim struct {
	name     string
	ofSeries bool
}

// Take gives the names of a family to an owner. If another one has one of them, nothing is taken, and it returns the name and who has it.
func (n Names[Owner]) Take(f Family, by Owner) (taken string, other Owner, clash bool) {
	all := f.claims()
	for _, c := range all {
		if other, clash = n[c]; clash {
			return c.name, other, true
		}
	}
	for _, c := range all {
		n[c] = by
	}
	return "", other, false
}

// suffixes are what is added to the name of a family in the names of its series. OpenMetrics has _created.
var suffixes = map[Kind][]string{
	Counter: {"_total", "_created"}, Gauge: {""}, Summary: {"", "_sum", "_count", "_created"}, Distribution: {"_bucket", "_sum", "_count", "_created"},
}

// claims returns all names of a family. OpenMetrics calls a counter by its name without _total.
func (f Family) claims() []claim {
	name := f.Name
	if f.Kind == Counter {
		name = strings.TrimSuffix(name, "_total")
	}
	var all []claim
	for _, s := range suffixes[f.Kind] {
		all = append(all, claim{name + s, true})
	}
	return append(all, claim{name, false})
}
