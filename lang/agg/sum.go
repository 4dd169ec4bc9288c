package agg

import "trace/lang/result"

// Count is the number of values.
type Count struct {
	words
	plain
}

// Name returns the name in the language.
func (Count) Name() string { return "count" }

// Words returns 1.
func (Count) Words() int { return 1 }

// Add counts a value.
func (Count) Add(state []uint64, _ uint64, _ bool) { state[0]++ }

// Updates returns the number of values.
func (Count) Updates(state []uint64) uint64 { return state[0] }

// Shape returns a Counter.
func (Count) Shape() Shape { return Counter{} }

// Result returns the number of values.
func (Count) Result(state []uint64, o Show) result.Value {
	return o.estimate(o.divided(o.estimated(state[0])))
}

// Traits returns the properties of count.
func (Count) Traits() Traits {
	return Traits{Counts: true, Adds: result.Counts, Metric: result.Counter}
}

// total is the sum of the values.
type total struct {
	words
	plain
}

func (total) Words() int                           { return 1 }
func (total) Add(state []uint64, x uint64, _ bool) { state[0] += x }
func (total) Updates([]uint64) uint64              { return 1 }
func (total) Shape() Shape                         { return Counter{Values: true} }
func (total) Result(state []uint64, o Show) result.Value {
	return o.estimate(o.divided(o.Number(o.estimatedSum(state[0]))))
}

// Sum is the sum of the values.
type Sum struct{ total }

// Name returns the name in the language.
func (Sum) Name() string { return "sum" }

// Traits returns the properties of sum.
func (Sum) Traits() Traits { return Traits{Counts: true, Adds: result.Sums, Metric: result.Counter} }

// Gauge is the sum of values that go up and down.
type Gauge struct{ total }

// Name returns the name in the language.
func (Gauge) Name() string { return "gauge" }

// Traits returns the properties of gauge.
func (Gauge) Traits() Traits {
	return Traits{SignedArg: true, Counts: true, Course: result.Level, Metric: result.Gauge}
}

// Rate is the sum of the values per second. Without an argument each value is 1.
type Rate struct{ total }

// Name returns the name in the language.
func (Rate) Name() string { return "rate" }

// Traits returns the properties of rate.
func (Rate) Traits() Traits {
	return Traits{Restarts: true, Counts: true, Course: result.Growth, Adds: result.Sums, Instead: "count() or sum(x): rates are made of them by whoever reads the metric"}
}

// Result returns the total and, if time has passed, the rate per second.
func (Rate) Result(state []uint64, o Show) result.Value {
	r := result.Rate{Total: o.estimate(o.whole(o.Number(o.estimatedSum(state[0])))), Unit: o.divided(nil).Type.Unit, Timed: o.Elapsed > 0}
	if r.Timed {
		r.PerSecond = result.Float(r.Total.V) / float64(max(o.Div, 1)) / o.Elapsed.Seconds()
	}
	return r
}
