// Package agg holds the aggregations of the language. One value describes each: its name and arguments, its state, how values are
// added, how states are merged, what is shown, and the shape in which the kernel keeps the state. A new aggregation is a type here,
// a row in All and, if its shape is new, code in package codegen.
package agg

import (
	"math"
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Func is an aggregation with its parameters. A state is a row of 64-bit words. Values are added to states and states are merged,
// nothing else, so each CPU may keep a state of its own.
type Func interface {
	// Name returns the name in the language.
	Name() string
	// Params returns the parameters as -d ast shows them, or "".
	Params() string
	// Words returns the size of a state in 64-bit words.
	Words() int
	// Add adds a value, given as its 64 bits, to a state. A function that takes no value gets 1.
	Add(state []uint64, x uint64, signed bool)
	// Merge adds the state from to into.
	Merge(into, from []uint64, signed bool)
	// FromKernel adds a state of the kernel to a state.
	FromKernel(into, kernel []uint64, signed bool)
	// Updates returns how many values are in a state, or 1 if that is unknown.
	Updates(state []uint64) uint64
	// Shape returns how the kernel keeps a state.
	Shape() Shape
	// Result returns the result of a state.
	Result(state []uint64, o Show) result.Value
	// Traits returns what the rest of the language needs to know.
	Traits() Traits
}

// Traits are properties of an aggregation.
type Traits struct {
	// Many reports that the result is more than one number, so expressions cannot read it.
	Many bool
	// Picks reports that the result is one of the values and keeps its type and name. Other results are numbers with a unit.
	Picks bool
	// SignedArg reports that values are taken as signed numbers.
	SignedArg bool
	// Restarts reports that printing restarts the count, which is per time.
	Restarts bool
	// Exchanges reports that the kernel needs compare-and-exchange. Without it, it may lose a value that comes within a nanosecond
	// of another.
	Exchanges bool
	// Timed reports that the aggregation is a [Timed], which needs the time of a value.
	Timed bool
	// Exemplars reports that the aggregation is an [Exemplified], and keeps exemplars.
	Exemplars bool
	// Ranks reports that the aggregation is a [Ranker].
	Ranks bool
	// Counts reports that the result depends on how many values there are, not only on what they are.
	Counts bool
	Course result.Course
	Adds   result.Addend
	// Metric is how results can be shown over time, and Instead what does if they cannot.
	Metric  result.Metric
	Instead string
}

// Ranker is an aggregation that ranks its first argument, which extends the key of the map. For each key of the map, it shows the
// values of that argument with the largest sums. If there is no room for another key, the one with the least sum is dropped.
//
// An optional last argument is the number to add, 0 or more. Before the first value a state is 0.
type Ranker interface {
	Func
	// Top returns how many are shown for each key of the map.
	Top() int64
	// Less reports whether a ranks below b.
	Less(a, b []uint64) bool
	// Gone returns what a key may have had if it was dropped with this state. For two such states, the larger words hold for both.
	Gone(state []uint64) []uint64
}

// Timed is an aggregation that needs the time of each value, in nanoseconds since 1970. Its states are in user space.
type Timed interface {
	Func
	AddAt(state []uint64, at, x uint64, signed bool)
}

// Show describes how a state is shown.
type Show struct {
	// Type is the type of the values.
	Type event.Type
	// Signed reports that the values are signed.
	Signed bool
	// Div divides what is shown, like print of bpftrace. 0 and 1 do not divide.
	Div int64
	// Elapsed is the time in which the values were collected.
	Elapsed time.Duration
	// Share, above 0, is which part of the values was seen. How many there are, and their sums, are then estimates.
	Share float64
	// Zeroed reports that zero() set what has no value to 0, as in bpftrace. Otherwise it is absent.
	Zeroed bool
	// Clock returns the time of day of nsecs; nil: exemplars are not shown.
	Clock func(nsecs uint64) time.Time
}

// estimated returns how many values there are, if so many were seen.
func (o Show) estimated(seen uint64) uint64 {
	if o.Share == 0 {
		return seen
	}
	return uint64(math.Round(float64(seen) / o.Share))
}

// estimatedSum returns what the values add up to, if those that were seen add up to a sum.
func (o Show) estimatedSum(seen uint64) uint64 {
	if o.Share == 0 || !o.Signed {
		return o.estimated(seen)
	}
	return uint64(int64(math.Round(float64(int64(seen)) / o.Share)))
}

// estimate marks a number that [Show.estimated] or estimatedSum returned.
func (o Show) estimate(n result.Number) result.Number {
	n.Estimate = o.Share > 0
	return n
}

// none returns what is shown of no values.
func (o Show) none() any {
	if o.Zeroed {
		return o.Number(0)
	}
	return nil
}

// Number returns a number of the type of the values.
func (o Show) Number(x uint64) any {
	if o.Signed {
		return int64(x)
	}
	return x
}

// whole returns a number that Div does not divide.
func (o Show) whole(v any) result.Number { return result.Number{Type: o.Type, V: v} }

// divided returns a number divided by Div. It has no unit if Div divides.
func (o Show) divided(v any) result.Number { return Divided(o.Type, v, o.Div) }

// Divided returns a value as print(@m, top, div) shows it: numbers are divided, names and texts are not.
func Divided(t event.Type, v any, div int64) result.Number {
	if div <= 1 || !event.IsNumber(t) || t.Enum != nil {
		return result.Number{Type: t, V: v}
	}
	out := result.Number{Type: event.Type{Kind: t.Kind, Size: 8}}
	switch v := v.(type) {
	case int64:
		out.V = v / div
	case uint64:
		out.V = v / uint64(div)
	}
	return out
}

// Agg is the aggregation of a map.
type Agg struct {
	Func
	// Signed reports that the values are signed.
	Signed bool
}

// Add adds a value to a state.
func (a *Agg) Add(state []uint64, x uint64) { a.Func.Add(state, x, a.Signed) }

// Merge adds the state from to into.
func (a *Agg) Merge(into, from []uint64) { a.Func.Merge(into, from, a.Signed) }

// FromKernel adds a state of the kernel to a state.
func (a *Agg) FromKernel(into, kernel []uint64) { a.Func.FromKernel(into, kernel, a.Signed) }

// Timed reports whether values are added with their time.
func (a *Agg) Timed() bool { return a != nil && a.Traits().Timed }

// AddAt adds a value of a time to a state. The aggregation must be timed.
func (a *Agg) AddAt(state []uint64, at, x uint64) { a.Func.(Timed).AddAt(state, at, x, a.Signed) }

// AddFrom adds a value of an event of a time and a thread to a state. The aggregation must keep exemplars.
func (a *Agg) AddFrom(state []uint64, at uint64, thread uint32, x uint64) {
	a.Func.(Exemplified).AddFrom(state, at, thread, x, a.Signed)
}

// Ranker returns the aggregation if it ranks, or nil.
func (a *Agg) Ranker() Ranker {
	if a == nil || !a.Traits().Ranks {
		return nil
	}
	return a.Func.(Ranker)
}

// Merger returns a merger of results for values of type t.
func (a *Agg) Merger(t event.Type) result.Merger { return merger{a, t} }

type merger struct {
	*Agg
	typ event.Type
}

// Result returns the result of a state, without the time in which it was collected.
func (m merger) Result(state []uint64) result.Value {
	return m.Func.Result(state, Show{Type: m.typ, Signed: m.Signed})
}

// Gone returns what a dropped key may have had. The aggregation must rank.
func (m merger) Gone(state []uint64) []uint64 { return m.Ranker().Gone(state) }

// Shape is how the kernel keeps a state, for package codegen: Counter, CountAndSum, Extreme, Buckets or Ranked.
type Shape interface{ shape() }

// Counter is one word. Each value adds 1 or, with Values, itself.
type Counter struct{ Values bool }

// CountAndSum is the number of values and their sum.
type CountAndSum struct{}

// Extreme is two words, each updated atomically. Mask maps values to numbers by exclusive or; the second word is the largest of
// these numbers so far. It is also 0 before the first value: the first word is 1 if a value came whose number is 0.
type Extreme struct{ Least bool }

// Buckets is one word for each of the ranges and, with Exemplars, [Slots].
type Buckets struct {
	Ranges
	Exemplars bool
}

// Ranked is two words: the most that the sum of the values can be, and by how much it may be less. Keys without room go to sets of
// a few keys, where a new key replaces the least one (see package codegen).
type Ranked struct{}

func (Ranked) shape()      {}
func (Counter) shape()     {}
func (CountAndSum) shape() {}
func (Extreme) shape()     {}
func (Buckets) shape()     {}

// Mask returns the mask that maps values to numbers by exclusive or, so that the best value has the largest number.
func (e Extreme) Mask(signed bool) uint64 {
	var mask uint64
	if signed {
		mask = 1 << 63
	}
	if e.Least {
		mask = ^mask
	}
	return mask
}

// words implements states that merge by adding word by word.
type words struct{}

func (words) Merge(into, from []uint64, _ bool) {
	for i, n := range from {
		into[i] += n
	}
}

func (w words) FromKernel(into, kernel []uint64, signed bool) { w.Merge(into, kernel, signed) }

// plain implements aggregations without parameters.
type plain struct{}

func (plain) Params() string { return "" }
