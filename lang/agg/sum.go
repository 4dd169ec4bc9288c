package agg

import "trace/lang/result"

// Count is how many values there were: n.
type Count struct {
	words
	plain
}

// Name of the function.
func (Count) Name() string { return "count" }

// Words of a state.
func (Count) Words() int { return 1 }

// Add counts a value.
func (Count) Add(state []uint64, _ uint64, _ bool) { state[0]++ }

// Updates are the values.
func (Count) Updates(state []uint64) uint64 { return state[0] }

// Shape in the kernel.
func (Count) Shape() Shape { return Counter{} }

// Result is the number of values.
func (Count) Result(state []uint64, o Show) result.Value { return o.divided(state[0]) }

// Traits of count.
func (Count) Traits() Traits { return Traits{Adds: result.Counts} }

// total is the sum of the values.
type total struct {
	words
	plain
}

func (total) Words() int                                 { return 1 }
func (total) Add(state []uint64, x uint64, _ bool)       { state[0] += x }
func (total) Updates([]uint64) uint64                    { return 1 }
func (total) Shape() Shape                               { return Counter{Values: true} }
func (total) Result(state []uint64, o Show) result.Value { return o.divided(o.Number(state[0])) }

// Sum is the sum of the values.
type Sum struct{ total }

// Name of the function.
func (Sum) Name() string { return "sum" }

// Traits of sum.
func (Sum) Traits() Traits { return Traits{Adds: result.Sums} }

// Gauge is the sum of values that go up and down.
type Gauge struct{ total }

// Name of the function.
func (Gauge) Name() string { return "gauge" }

// Traits of gauge.
func (Gauge) Traits() Traits { return Traits{SignedArg: true, Course: result.Level} }

// Rate is the sum of the values, or how many there were, in a second.
type Rate struct{ total }

// Name of the function.
func (Rate) Name() string { return "rate" }

// Traits of rate.
func (Rate) Traits() Traits { return Traits{Restarts: true, Course: result.Growth, Adds: result.Sums} }

// Result is the total and, where time has passed, what comes in a second.
func (Rate) Result(state []uint64, o Show) result.Value {
	r := result.Rate{Total: o.whole(o.Number(state[0])), Unit: o.divided(nil).Type.Unit, Timed: o.Elapsed > 0}
	if r.Timed {
		r.PerSecond = result.Float(r.Total.V) / float64(max(o.Div, 1)) / o.Elapsed.Seconds()
	}
	return r
}
