package result

import (
	"errors"
	"fmt"
	"slices"

	"trace/lang/format"
	"trace/probes/event"
)

// Table is what a map holds at a moment.
type Table struct {
	// Name is the name of the map, with its @.
	Name string
	// Func is the aggregation as written, like hist, or "" if values are assigned.
	Func string
	// Key are the columns of the keys; none if the map has only one value.
	Key []Column
	// Form is how the columns of the key are nested and named.
	Form *format.Form
	// Type is the type of the values, or of what was aggregated. The elements of a tuple have types of their own.
	Type event.Type
	// Unit is the unit of the numbers as they are shown. Dividing them removes it.
	Unit event.Unit
	// Zero is a value without anything counted. It has the kind of the values even if there is no row.
	Zero Value
	// Many reports that a value is more than one number, so expressions cannot read it.
	Many bool
	// Course describes what a change of the values means.
	Course Course
	// Estimate reports that only a part of the values was seen: how many there are, and what they add up to, are estimates.
	Estimate bool
	// Adds describes what can be added over values of different keys.
	Adds Addend
	// Metric is how the values can be shown over time, and Instead what does if they cannot.
	Metric  Metric
	Instead string
	// Size is how many keys the map has room for, 0 if it is not known.
	Size uint32
	Rows []Row

	// Ranking, if not nil, describes the rows that are not shown.
	Ranking *Ranking

	// Assigned reports that the program assigns values: two of them do not add up.
	Assigned bool

	// Merger is how the values of the same key of several tables become one; nil: they do not, as values are assigned.
	Merger Merger
}

// Column is an element of a key.
type Column struct {
	Name string
	Type event.Type
}

// Row is an entry of a map.
type Row struct {
	// Key holds a value for each column, nil where it is absent.
	Key   []any
	Value Value
	// State is what the value was computed of, by the aggregation of the map.
	State []uint64
}

// Value is what an entry holds: a Number, Tuple, Stats, Histogram, Quantiles or Rate.
type Value interface {
	// Rank is what rows are sorted by: the number or, of what is more than one, how many values there are, or the average of them. An
	// absent number is nil.
	Rank() []any
}

// Merger makes one value of several.
type Merger interface {
	Merge(into, from []uint64)
	Result(state []uint64) Value
}

// Course is what a change of a value means.
type Course uint8

const (
	// NoCourse is for counts and sums, which only grow.
	NoCourse Course = iota
	// Level is for a value that goes up and down.
	Level
	// Growth is for a total whose increase over time is of interest.
	Growth
	// Spread is for the buckets of a histogram.
	Spread
)

// Addend is what can be added over values of different keys, as a flame graph does.
type Addend uint8

const (
	// NoAddend: they do not add up.
	NoAddend Addend = iota
	// Counts: how many values there are.
	Counts
	// Sums: the values.
	Sums
)

// Metric is how a value can be shown over time.
type Metric uint8

const (
	// NoMetric: it cannot.
	NoMetric Metric = iota
	// Counter: it only grows, until the map is emptied.
	Counter
	// Gauge: it goes up and down.
	Gauge
	// Summary: it is a number of values and their sum.
	Summary
	// Distribution: it counts values in buckets.
	Distribution
)

// Order is the order of rows.
type Order string

const (
	// ByNature sorts by value if the values are numbers, otherwise by key.
	ByNature Order = ""
	ByKey    Order = "key"
	ByValue  Order = "value"
	// NoOrder leaves the rows as they are.
	NoOrder Order = "none"
)

// Sort sorts the rows in ascending order. It keeps the top rows with the largest values, or all if top is 0.
func (t *Table) Sort(by Order, top int64) {
	if by == NoOrder && top == 0 {
		return
	}
	type ranked struct {
		Row
		rank []any
	}
	rows := make([]ranked, len(t.Rows))
	all := make([]*ranked, len(t.Rows)) // to move eight bytes, not all of a row
	for i, r := range t.Rows {
		rows[i] = ranked{r, r.Value.Rank()}
		all[i] = &rows[i]
	}
	byKey := func(a, b *ranked) int { return slices.CompareFunc(a.Key, b.Key, Compare) }
	byValue := func(a, b *ranked) int {
		if c := slices.CompareFunc(a.rank, b.rank, Compare); c != 0 {
			return c
		}
		return byKey(a, b)
	}
	if by != ByNature || t.Func != "" || event.IsNumber(t.Type) {
		slices.SortFunc(all, byValue)
	} else {
		slices.SortFunc(all, byKey)
	}
	if top > 0 && top < int64(len(all)) {
		all = all[int64(len(all))-top:]
	}
	if by == ByKey {
		slices.SortFunc(all, byKey)
	}
	t.Rows = t.Rows[:len(all)]
	for i, r := range all {
		t.Rows[i] = r.Row
	}
	if t.Ranking != nil && by == ByNature {
		t.group()
	}
}

// Compare orders values: absent ones come first, false before true.
func Compare(a, b any) int {
	if a == nil || b == nil {
		return one(a != nil) - one(b != nil)
	}
	if a, ok := a.(bool); ok {
		return one(a) - one(b.(bool))
	}
	return event.Compare(a, b)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Merge merges tables of the same map, from several hosts or times. Values of the same key are added as the aggregation adds them.
// The rows have no order. It fails for values that are assigned, and for maps that differ.
func Merge(tables ...Table) (Table, error) {
	if len(tables) == 0 {
		return Table{}, errors.New("merge tables: no tables are given")
	}
	merged := tables[0]
	merged.Rows = nil
	if merged.Merger == nil {
		return Table{}, fmt.Errorf("merge %s: its values are assigned, so they cannot be added", merged.Name)
	}
	at := make(map[string]int)
	for _, t := range tables {
		if t.Estimate {
			return Table{}, fmt.Errorf("merge %s: its values are estimates", t.Name)
		}
		if t.Name != merged.Name || t.Func != merged.Func || len(t.Key) != len(merged.Key) {
			return Table{}, fmt.Errorf("merge %s %s and %s %s: the maps differ", merged.Name, merged.Func, t.Name, t.Func)
		}
		for _, r := range t.Rows {
			key := keyName(r.Key)
			i, known := at[key]
			if !known {
				i = len(merged.Rows)
				at[key] = i
				merged.Rows = append(merged.Rows, Row{Key: r.Key, State: make([]uint64, len(r.State))})
			}
			if len(merged.Rows[i].State) != len(r.State) {
				return Table{}, fmt.Errorf("merge %s: its values have different shapes", merged.Name)
			}
			merged.Merger.Merge(merged.Rows[i].State, r.State)
		}
	}
	merged.mergeBounds(tables)
	for i := range merged.Rows {
		merged.Rows[i].Value = merged.Merger.Result(merged.Rows[i].State)
	}
	merged.Cut()
	return merged, nil
}

// keyName returns a text that differs between keys.
func keyName(key []any) string { return fmt.Sprintf("%q", key) }
