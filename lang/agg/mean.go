package agg

import "trace/lang/result"

// mean is the number of values and their sum.
type mean struct {
	words
	plain
}

func (mean) Words() int                    { return 2 }
func (mean) Updates(state []uint64) uint64 { return state[0] }
func (mean) Shape() Shape                  { return CountAndSum{} }
func (mean) Add(state []uint64, x uint64, _ bool) {
	state[0]++
	state[1] += x
}

// average rounds towards 0.
func average(state []uint64, o Show) any {
	n, sum := state[0], state[1]
	switch {
	case n == 0:
		return o.none()
	case o.Signed:
		return int64(sum) / int64(n)
	}
	return sum / n
}

// Avg is the average of the values.
type Avg struct{ mean }

// Name returns the name in the language.
func (Avg) Name() string { return "avg" }

// Traits returns the properties of avg.
func (Avg) Traits() Traits { return Traits{Metric: result.Summary} }

// Result returns the average.
func (Avg) Result(state []uint64, o Show) result.Value {
	n := o.divided(average(state, o))
	whole := Stats{}.Result(state, o).(result.Stats)
	n.Mean, n.Whole = true, &whole
	return n
}

// Stats is the number of values, their average and their sum.
type Stats struct{ mean }

// Name returns the name in the language.
func (Stats) Name() string { return "stats" }

// Traits returns the properties of stats.
func (Stats) Traits() Traits {
	return Traits{Many: true, Counts: true, Adds: result.Sums, Metric: result.Summary}
}

// Result returns all three numbers.
func (Stats) Result(state []uint64, o Show) result.Value {
	return result.Stats{
		Count: o.estimated(state[0]), Average: o.divided(average(state, o)), Total: o.estimate(o.whole(o.Number(o.estimatedSum(state[1])))),
	}
}
