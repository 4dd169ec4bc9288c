package result

import (
	"slices"
	"time"

	"trace/probes/event"
)

// Series are numbers of intervals of time, one for each that has a value.
type Series struct {
	// Interval is how long an interval is, in nanoseconds, and N how many are kept.
	Interval, N uint64
	Type        event.Type
	// Points are in the order of time.
	Points []Point
	// Last is the last interval of all keys of a map. What is shown ends there.
	Last uint64
	// Zone is where the time of day is shown.
	Zone *time.Location
}

// Point is the number of an interval, absent if no value came. The interval begins Epoch intervals after 1970.
type Point struct {
	Epoch uint64
	Value any
}

// Rank returns the last interval.
func (s Series) Rank() []any {
	if len(s.Points) == 0 {
		return []any{uint64(0)}
	}
	return []any{s.Points[len(s.Points)-1].Epoch}
}

// All returns the intervals from the first one with a value to the last one of all keys, at most N.
func (s Series) All() []Point {
	var oldest uint64
	if s.Last >= s.N {
		oldest = s.Last - s.N + 1
	}
	points := slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return p.Epoch < oldest })
	if len(points) == 0 {
		return nil
	}
	first := points[0].Epoch
	all := make([]Point, s.Last-first+1)
	for i := range all {
		all[i].Epoch = first + uint64(i)
	}
	for _, p := range points {
		all[p.Epoch-first].Value = p.Value
	}
	return all
}

// Time returns when an interval begins.
func (s Series) Time(p Point) time.Time {
	t := time.Unix(0, int64(p.Epoch*s.Interval))
	if s.Zone == nil {
		return t.UTC()
	}
	return t.In(s.Zone)
}
