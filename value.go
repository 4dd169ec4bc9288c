package trace

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// Bytes is a size in bytes, or the change of one.
type Bytes int64

// String returns the size as trace writes it: 512B, 4KiB, 1.5MiB.
func (b Bytes) String() string { return string(format.AppendSize(nil, int64(b))) }

// Name is the name of a number: a value of an enum, like RTR, flags, like LOCAL_WRITE|REMOTE_READ, or a result, like -EINVAL. A value without
// a name is unknown(0x1d), or a number. "" is an absent value.
type Name string

// Cgroup is a cgroup. The zero value is an absent one.
type Cgroup struct {
	// ID is the inode of its directory.
	ID uint64
	// Path as in /proc/PID/cgroup, like /system.slice/ssh.service; "" if no path is visible here.
	Path string
}

// String returns the path, or the id of a cgroup without one.
func (c Cgroup) String() string {
	if c.Path == "" {
		return fmt.Sprint(c.ID)
	}
	return c.Path
}

// Stack has the frames of a stack, innermost first, as trace prints them: a function and an offset.
type Stack []string

// Stats is what stats() shows.
type Stats struct {
	// Count is how many values there were.
	Count uint64
	// Average is nil without values. It and Total have the Go type of the values.
	Average, Total any
}

// Rate is what rate() shows.
type Rate struct {
	// Total is the sum since the map was emptied. It has the Go type of the values.
	Total any
	// PerSecond is NaN if no time has passed. Durations are in nanoseconds.
	PerSecond float64
}

// Quantiles is what quantile() shows.
type Quantiles struct {
	// Count is how many values there were.
	Count uint64
	All   []Quantile
}

// Quantile is the value that P percent of all values do not exceed.
type Quantile struct {
	P float64
	// Value has the Go type of the values. It is at most 3.1 % off, and nil without values.
	Value any
	// Below reports that the percentile is only known to be less than Value, and Above that it is Value or more.
	Below, Above bool
}

// Histogram is what hist() and lhist() show: how many values are in each bucket.
type Histogram struct {
	// Count is how many values there were.
	Count uint64
	// Unit is what bounds are in: "ns", "bytes", or "" for plain numbers.
	Unit string
	// Buckets are in ascending order, from the first with a value to the last one.
	Buckets []Bucket

	result result.Histogram
}

// Bucket counts the values from Lower up to, but not including, Upper. A bound is exact up to 2^53. An open side is infinite.
type Bucket struct {
	Lower, Upper float64
	Count        uint64
}

// Quantile estimates the value that a part p of all values, from 0 to 1, do not exceed, as if the values in a bucket were spread evenly. It is
// in the histogram's Unit. In an open bucket it is the bound. It is NaN without values.
func (h Histogram) Quantile(p float64) float64 {
	if len(h.result.Counts) == 0 {
		return math.NaN()
	}
	return h.result.Percentile(100 * p).At
}

// Point is an interval of tseries(), which begins at Start. Value is nil if no value came.
type Point struct {
	Start time.Time
	Value any
}

// Row is an entry of a map.
type Row struct {
	// Key has a value for each column of the map, nil where it is absent.
	Key []any
	// Value is a value like in Key, or []any, [Stats], [Histogram], [Quantiles], [Rate] or []Point.
	Value any
}

// Column is an element of the key of a map.
type Column struct {
	// Name as the program gives it, @[name = x], or the last word of the expression; "" if it has none.
	Name string
}

// goValue returns a value as a Go value: see [Run.Rows].
func goValue(t event.Type, v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case format.Frames:
		return Stack(v)
	case format.Verbatim:
		return string(v)
	case bool:
		return v
	case string:
		if t.Kind == event.GID {
			return format.Address(t, v)
		}
		return v
	}
	switch n := event.To[int64](v); {
	case t.Unit == event.Cgroup:
		return cgroupOf(t, v)
	case t.Enum != nil:
		return nameOf(t, v)
	case t.Unit == event.Nanoseconds && fits(v):
		return time.Duration(n)
	case t.Unit == event.Bytes && fits(v):
		return Bytes(n)
	}
	return v
}

// fits reports whether a number is an int64.
func fits(v any) bool {
	n, unsigned := v.(uint64)
	return !unsigned || n <= math.MaxInt64
}

func cgroupOf(t event.Type, v any) Cgroup {
	c := Cgroup{ID: event.To[uint64](v)}
	if t.Enum != nil {
		c.Path = t.Enum.NameOf(event.To[int64](v))
	}
	return c
}

func nameOf(t event.Type, v any) Name { return Name(format.AppendValue(nil, t, v)) }

// goValues returns the values of a tuple or of an array, whose elements have types of their own, or all the last one.
func goValues(elems []event.Type, values []any) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = goElement(event.Type{}, elems[min(i, len(elems)-1):], v)
	}
	return all
}

// goElement returns a value that may have elements. elems has its type first, unless that is given by t.
func goElement(t event.Type, elems []event.Type, v any) any {
	switch all := v.(type) {
	case format.Formed:
		return goValues(elems, all.Values)
	case []any:
		return goValues(elems, all)
	}
	if t == (event.Type{}) && len(elems) > 0 {
		t = elems[0]
	}
	return goValue(t, v)
}

// goResult returns what an entry of a map holds.
func goResult(v result.Value, unit event.Unit) any {
	number := func(n result.Number) any { return goValue(n.Type, n.V) }
	switch v := v.(type) {
	case result.Number:
		return number(v)
	case result.Tuple:
		all := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			all[i] = number(e)
		}
		return all
	case result.Stats:
		return Stats{v.Count, number(v.Average), number(v.Total)}
	case result.Rate:
		r := Rate{number(v.Total), math.NaN()}
		if v.Timed {
			r.PerSecond = v.PerSecond
		}
		return r
	case result.Quantiles:
		q := Quantiles{Count: v.Count}
		for _, one := range v.All {
			q.All = append(q.All, Quantile{one.P, number(one.Value), one.Below, one.Above})
		}
		return q
	case result.Histogram:
		return goHistogram(v, unit)
	case result.Series:
		var points []Point
		for _, p := range v.All() {
			points = append(points, Point{v.Time(p), goValue(v.Type, p.Value)})
		}
		return points
	}
	return nil
}

func goHistogram(v result.Histogram, unit event.Unit) Histogram {
	h := Histogram{Count: v.Total, Unit: unitName(unit), result: v}
	for i, n := range v.Counts {
		lo, hi := v.Bounds(v.First + i)
		h.Buckets = append(h.Buckets, Bucket{bound(lo, -1), bound(hi, 1), n})
	}
	return h
}

// bound returns a bound of a bucket, or the infinity of a sign.
func bound(v any, sign int) float64 {
	if v == nil {
		return math.Inf(sign)
	}
	return result.Float(v)
}

func unitName(u event.Unit) string {
	return cmp.Or(map[event.Unit]string{event.Nanoseconds: "ns", event.Bytes: "bytes"}[u], "")
}

// goRows returns the rows of a table.
func goRows(t result.Table) []Row {
	rows := make([]Row, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = Row{Key: make([]any, len(r.Key)), Value: goResult(r.Value, t.Unit)}
		for n, v := range r.Key {
			rows[i].Key[n] = goValue(t.Key[n].Type, v)
		}
	}
	return rows
}

// Optional is a value that may be absent.
type Optional[T any] struct {
	Value   T
	Present bool
}

// String returns the value, or - if it is absent.
func (o Optional[T]) String() string {
	if !o.Present {
		return "-"
	}
	return fmt.Sprint(o.Value)
}

// optional is any [Optional].
type optional interface {
	// hold returns a pointer to the value, which is present from now on.
	hold() any
}

func (o *Optional[T]) hold() any {
	o.Present = true
	return &o.Value
}
