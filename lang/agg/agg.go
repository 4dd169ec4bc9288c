// Package agg has the aggregations of the language, each in one value: its name and arguments, its state, how values are added, how states
// are merged, what of it is shown, and the shape in which the kernel keeps it. A new one is a type here, a row in All and, if its shape is
// new, code in package codegen.
package agg

import (
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// Func is an aggregation with its parameters. A state is 64-bit words; adding a value and merging two states are all that happens to it, so
// it may be kept in as many parts as there are CPUs.
type Func interface {
	// Name as the language writes it.
	Name() string
	// Params are the parameters as -d ast shows them, "" for none.
	Params() string
	// Words is the size of a state.
	Words() int
	// Add adds a value, given as its 64 bits, to a state. A function that takes no value is given 1.
	Add(state []uint64, x uint64, signed bool)
	// Merge adds the state from to into.
	Merge(into, from []uint64, signed bool)
	// FromKernel adds what the kernel has to a state.
	FromKernel(into, kernel []uint64, signed bool)
	// Updates is how many values are in a state, as far as that is known: at least one.
	Updates(state []uint64) uint64
	// Shape is how the kernel keeps a state.
	Shape() Shape
	// Result is what a state comes to.
	Result(state []uint64, o Show) result.Value
	// Traits are what the rest of the language has to know.
	Traits() Traits
}

// Traits are properties of an aggregation.
type Traits struct {
	// Many says that the value is more than one number, so that no expression can read it.
	Many bool
	// Picks says that the value is one of those that came, whose type and name it keeps. Others are numbers with a unit.
	Picks bool
	// SignedArg says that the values count as signed numbers.
	SignedArg bool
	// Restarts says that a print begins the counting anew, which is in a time.
	Restarts bool
	// Exchanges says that the kernel needs compare-and-exchange, or may lose a value that comes within a nanosecond of another.
	Exchanges bool
	// Ranks says that it is a [Ranker].
	Ranks  bool
	Course result.Course
	Adds   result.Addend
}

// Ranker is an aggregation that ranks what its first argument is: that is more of the key, after the key of the map. For each key of the
// map those with the largest values are shown. Where there is no room for another key, the one with the least value gives way.
//
// The last argument, where there is one more than the others, is what is added, a number that is 0 or more. A state is 0 before that.
type Ranker interface {
	Func
	// Top is how many are shown for each key of the map.
	Top() int64
	// Less compares states.
	Less(a, b []uint64) bool
	// Gone is what can be told of a key that has given way with a state, or may have. Of two of them the larger words hold for both.
	Gone(state []uint64) []uint64
}

// Show says how a state is shown.
type Show struct {
	// Type is that of the values.
	Type event.Type
	// Signed says that they are signed.
	Signed bool
	// Div divides what is shown, as print of bpftrace does it: 0 and 1 are no division.
	Div int64
	// Elapsed is the time in which the values came.
	Elapsed time.Duration
}

// Number is a number of the type of the values.
func (o Show) Number(x uint64) any {
	if o.Signed {
		return int64(x)
	}
	return x
}

// whole is a number that is not divided.
func (o Show) whole(v any) result.Number { return result.Number{Type: o.Type, V: v} }

// divided is a number that Div divides, which loses its unit by that.
func (o Show) divided(v any) result.Number { return Divided(o.Type, v, o.Div) }

// Divided is a value as print(@m, top, div) shows it: numbers are divided, names and texts are not.
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
	// Signed says that the values are signed.
	Signed bool
}

// Add adds a value to a state.
func (a *Agg) Add(state []uint64, x uint64) { a.Func.Add(state, x, a.Signed) }

// Merge adds the state from to into.
func (a *Agg) Merge(into, from []uint64) { a.Func.Merge(into, from, a.Signed) }

// FromKernel adds what the kernel has to a state.
func (a *Agg) FromKernel(into, kernel []uint64) { a.Func.FromKernel(into, kernel, a.Signed) }

// Ranker returns the aggregation if it ranks, or nil.
func (a *Agg) Ranker() Ranker {
	if a == nil || !a.Traits().Ranks {
		return nil
	}
	return a.Func.(Ranker)
}

// Merger merges results whose values have a type.
func (a *Agg) Merger(t event.Type) result.Merger { return merger{a, t} }

type merger struct {
	*Agg
	typ event.Type
}

// Result is what a state comes to, without the time in which it came.
func (m merger) Result(state []uint64) result.Value {
	return m.Func.Result(state, Show{Type: m.typ, Signed: m.Signed})
}

// Gone is what can be told of a key that gave way, of an aggregation that ranks.
func (m merger) Gone(state []uint64) []uint64 { return m.Ranker().Gone(state) }

// Shape is how the kernel keeps a state, which package codegen generates code for: Counter, CountAndSum, Extreme, Buckets or
// Ranked.
type Shape interface{ shape() }

// Counter is one word, to which each value adds 1 or, with Values, itself.
type Counter struct{ Values bool }

// CountAndSum is how many values there were, and their sum.
type CountAndSum struct{}

// Extreme is two words, each of which changes in one step. The second is the largest number so far, of those that Mask makes of values by
// exclusive or. It is 0, too, before there is any: the first word is 1 if a value came whose number is 0.
type Extreme struct{ Least bool }

// Buckets is a word for each of some ranges.
type Buckets struct{ Ranges }

// Ranked is two words: the most that the sum of the values can be, and how much less it may be. What has no room is kept in sets of a few
// keys, in which a new one takes the place of the least (see package codegen).
type Ranked struct{}

func (Ranked) shape()      {}
func (Counter) shape()     {}
func (CountAndSum) shape() {}
func (Extreme) shape()     {}
func (Buckets) shape()     {}

// Mask makes numbers of values, by exclusive or, of which the largest is the best one.
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

// words are states whose parts add up word by word.
type words struct{}

func (words) Merge(into, from []uint64, _ bool) {
	for i, n := range from {
		into[i] += n
	}
}

func (w words) FromKernel(into, kernel []uint64, signed bool) { w.Merge(into, kernel, signed) }

// plain is what has no parameters.
type plain struct{}

func (plain) Params() string { return "" }
