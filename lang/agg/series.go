package agg

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"trace/lang/result"
)

// Series keeps one number for each of the last intervals of time: the last value, or the sum, average, least or largest value. The
// state is a ring of intervals. The number of an interval, counted from the epoch of the clock, chooses its place, so an interval
// replaces the one that is N older.
type Series struct {
	// Interval is how long an interval is, in nanoseconds.
	Interval uint64
	// N is how many intervals are kept.
	N uint64
	// Agg is avg, max, min, sum, or "" for the last value.
	Agg string
}

// Words in the state of an interval: its number plus 1, which is 0 before the first value; its value; and what the value needs beside
// it. That is how many values an average has, or the time of the last value.
const (
	pointEpoch = iota
	pointValue
	pointBeside
	pointWords
)

// Name returns the name in the language.
func (Series) Name() string { return "tseries" }

// Params returns the interval, how many there are, and what is kept of each.
func (s Series) Params() string {
	return strings.TrimSpace(fmt.Sprintf("%d %d %s", s.Interval, s.N, s.Agg))
}

// Words returns the size of the ring.
func (s Series) Words() int { return pointWords * int(s.N) }

// Traits returns the properties of tseries.
func (s Series) Traits() Traits {
	return Traits{Many: true, Timed: true, Counts: s.Agg == "sum", Instead: "avg(x), or @ = x for the last value"}
}

// Shape returns nil: the kernel keeps no series.
func (Series) Shape() Shape { return nil }

// Updates returns 1: a series does not have the number of values.
func (Series) Updates([]uint64) uint64 { return 1 }

// Add adds a value of the time 0.
func (s Series) Add(state []uint64, x uint64, signed bool) { s.AddAt(state, 0, x, signed) }

// AddAt adds a value of a time. It leaves out a value that is too old for the ring.
func (s Series) AddAt(state []uint64, at, x uint64, signed bool) {
	point := [pointWords]uint64{at/s.Interval + 1, x, 1}
	if s.Agg == "" {
		point[pointBeside] = at
	}
	s.join(state, point[:], signed)
}

// join adds what is known of an interval.
func (s Series) join(state, from []uint64, signed bool) {
	if from[pointEpoch] == 0 {
		return
	}
	place := pointWords * ((from[pointEpoch] - 1) % s.N)
	into := state[place : place+pointWords]
	switch {
	case from[pointEpoch] > into[pointEpoch]:
		copy(into, from)
		return
	case from[pointEpoch] < into[pointEpoch]:
		return
	}
	better := false
	switch s.Agg {
	case "":
		better = from[pointBeside] >= into[pointBeside]
	case "max", "min":
		better = extreme{least: s.Agg == "min"}.better(from[pointValue], into[pointValue], signed)
	default:
		into[pointValue] += from[pointValue]
		into[pointBeside] += from[pointBeside]
	}
	if better {
		copy(into, from)
	}
}

// Merge joins the intervals of two rings.
func (s Series) Merge(into, from []uint64, signed bool) {
	for point := range slices.Chunk(from, pointWords) {
		s.join(into, point, signed)
	}
}

// FromKernel merges.
func (s Series) FromKernel(into, kernel []uint64, signed bool) { s.Merge(into, kernel, signed) }

// Result returns the intervals that have a value, in the order of time.
func (s Series) Result(state []uint64, o Show) result.Value {
	out := result.Series{Interval: s.Interval, N: s.N, Type: o.divided(nil).Type}
	for point := range slices.Chunk(state, pointWords) {
		if point[pointEpoch] == 0 {
			continue
		}
		out.Points = append(out.Points, result.Point{Epoch: point[pointEpoch] - 1, Value: o.divided(s.value(point, o)).V})
	}
	slices.SortFunc(out.Points, func(a, b result.Point) int { return cmp.Compare(a.Epoch, b.Epoch) })
	if n := len(out.Points); n > 0 {
		out.Last = out.Points[n-1].Epoch
	}
	return out
}

func (s Series) value(point []uint64, o Show) any {
	x := o.Number(point[pointValue])
	if s.Agg != "avg" {
		return x
	}
	switch x := x.(type) {
	case int64:
		return x / int64(point[pointBeside])
	default:
		return point[pointValue] / point[pointBeside]
	}
}

// maxIntervals bounds the state of a key, which has 24 bytes for each interval.
const maxIntervals = 10000

var seriesSpec = Spec{
	traits: Series{}.Traits(), Name: "tseries", Usage: `tseries(x, 100ms, 20), or tseries(x, 100ms, 20, "avg")`, Least: 3, Most: 4,
	Params: []Param{
		{What: "the interval of tseries()", Lo: 1, Hi: 1<<63 - 1},
		{What: "the number of intervals of tseries()", Lo: 1, Hi: maxIntervals},
		{What: "the aggregation of tseries()", Words: []string{"avg", "max", "min", "sum"}},
	},
	New: func(a Args) (Func, *Mistake) {
		return Series{Interval: uint64(a.Numbers[0]), N: uint64(a.Numbers[1]), Agg: a.Word}, nil
	},
}
