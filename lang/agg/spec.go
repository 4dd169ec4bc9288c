package agg

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Spec describes how to call an aggregation.
type Spec struct {
	Name, Usage string
	// Least and Most are the numbers of unnamed arguments, including the value; Most is -1 for any number.
	Least, Most int
	// Params are the arguments after the value, or between key and value. The last one also describes all that follow.
	Params []Param
	// Named are the named arguments.
	Named []Param
	// New makes the aggregation from arguments that are within their bounds.
	New func(Args) (Func, *Mistake)

	traits Traits
}

// Args are the arguments of an aggregation.
type Args struct {
	// Numbers are the arguments after the value.
	Numbers []int64
	// Fractions are the same arguments, for params that allow fractions.
	Fractions []float64
	// Word is the argument that is a string.
	Word string
	// Named are the named arguments.
	Named map[string]int64
}

// Param is an argument that must be a literal number.
type Param struct {
	Name string
	// What names the argument in messages, like "k of hist()".
	What   string
	Lo, Hi int64
	// Fraction reports that digits after the point are allowed.
	Fraction bool
	// Words are the strings that are allowed instead of a number.
	Words []string
}

// Mistake describes what is wrong with an argument after the value, counted from 0.
type Mistake struct {
	Arg       int
	Msg, Help string
}

// Limits of the arguments: the limits of bpftrace, and the width of a shift of 64 bits.
const (
	maxHistBits = 5
	maxShift    = 63
	maxSteps    = 1000
)

func simple(f Func, usage string, least, most int) Spec {
	return Spec{Name: f.Name(), Usage: usage, Least: least, Most: most, traits: f.Traits(), New: func(Args) (Func, *Mistake) { return f, nil }}
}

// Traits returns the properties that do not depend on arguments.
func (s Spec) Traits() Traits { return s.traits }

// Split divides n unnamed arguments. keys is how many of the first ones extend the key, value is the index of the value or -1, and
// the parameters are those from params up to end.
func (s Spec) Split(n int) (keys, value, params, end int) {
	switch {
	case n == 0:
		return 0, -1, 0, 0
	case !s.traits.Ranks:
		return 0, 0, 1, n
	case n == s.Most:
		return 1, n - 1, 1, n - 1
	}
	return 1, -1, 1, n
}

// All returns the aggregations, sorted by name.
var All = sync.OnceValue(func() []Spec {
	all := []Spec{
		simple(Count{}, "count()", 0, 0),
		simple(Sum{}, "sum(x)", 1, 1),
		simple(Avg{}, "avg(x)", 1, 1),
		simple(NewMin(), "min(x)", 1, 1),
		simple(Max{}, "max(x)", 1, 1),
		simple(Stats{}, "stats(x)", 1, 1),
		simple(Rate{}, "rate() or rate(x)", 0, 1),
		simple(Gauge{}, "gauge(x)", 1, 1),
		histSpec, lhistSpec, quantileSpec, seriesSpec, topkSpec,
	}
	slices.SortFunc(all, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// Lookup returns the aggregation called name.
func Lookup(name string) (Spec, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Spec{}, false
}

var histSpec = Spec{
	traits: Hist{}.Traits(), Name: "hist", Usage: "hist(x), hist(x, k) for 2^k buckets in each power of two, or hist(x, k, min = 20us, shift = 10)", Least: 1, Most: 2,
	Params: []Param{{What: "k of hist()", Hi: maxHistBits}},
	Named: []Param{
		{Name: "min", What: "min of hist()", Lo: math.MinInt64, Hi: math.MaxInt64},
		{Name: "shift", What: "shift of hist()", Hi: maxShift},
	},
	New: func(a Args) (Func, *Mistake) {
		k := 0
		if len(a.Numbers) > 0 {
			k = int(a.Numbers[0])
		}
		return NewHist(k, int(a.Named["shift"]), a.Named["min"]), nil
	},
}

var lhistSpec = Spec{
	traits: LHist{}.Traits(), Name: "lhist", Usage: "lhist(x, min, max, step)", Least: 4, Most: 4,
	Params: []Param{
		{What: "min of lhist()", Lo: math.MinInt64, Hi: math.MaxInt64},
		{What: "max of lhist()", Lo: math.MinInt64, Hi: math.MaxInt64},
		{What: "step of lhist()", Lo: math.MinInt64, Hi: math.MaxInt64},
	},
	New: func(a Args) (Func, *Mistake) {
		low, high, step := a.Numbers[0], a.Numbers[1], a.Numbers[2]
		switch {
		case high <= low:
			return nil, &Mistake{1, "max of lhist() must be above min", "write lhist(x, min, max, step)"}
		case step <= 0:
			return nil, &Mistake{2, "step of lhist() must be above 0", "write lhist(x, min, max, step)"}
		}
		if n := (uint64(high)-uint64(low)-1)/uint64(step) + 1; n > maxSteps {
			return nil, &Mistake{2, fmt.Sprintf("lhist() has at most %d buckets, but these arguments make %d", maxSteps, n), "use a larger step"}
		}
		return NewLHist(low, high, step), nil
	},
}

var quantileSpec = Spec{
	traits: Quantile{}.Traits(), Name: "quantile", Usage: "quantile(x, 50, 99, 99.9)", Least: 2, Most: -1,
	Params: []Param{{What: "a percentile", Hi: 100, Fraction: true}},
	New: func(a Args) (Func, *Mistake) {
		return NewQuantile(a.Fractions...), nil
	},
}
