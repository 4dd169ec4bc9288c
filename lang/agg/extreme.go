package agg

import "trace/lang/result"

// extreme is 1 if there is a value, otherwise 0, and the value.
type extreme struct {
	plain
	least bool
}

func (extreme) Words() int              { return 2 }
func (extreme) Updates([]uint64) uint64 { return 1 }
func (e extreme) Shape() Shape          { return Extreme{Least: e.least} }
func (extreme) Traits() Traits {
	return Traits{Picks: true, Exchanges: true, Instead: "hist(x) or quantile(x, 50, 99), or @ = x for the last value"}
}

// better reports whether x replaces y.
func (e extreme) better(x, y uint64, signed bool) bool {
	if e.least {
		x, y = y, x
	}
	if signed {
		return int64(x) > int64(y)
	}
	return x > y
}

func (e extreme) Add(state []uint64, x uint64, signed bool) {
	if state[0] == 0 || e.better(x, state[1], signed) {
		state[0], state[1] = 1, x
	}
}

func (e extreme) Merge(into, from []uint64, signed bool) {
	if from[0] != 0 {
		e.Add(into, from[1], signed)
	}
}

func (e extreme) FromKernel(into, kernel []uint64, signed bool) {
	if kernel[0]|kernel[1] != 0 {
		e.Add(into, kernel[1]^Extreme{Least: e.least}.Mask(signed), signed)
	}
}

func (extreme) Result(state []uint64, o Show) result.Value {
	if state[0] == 0 {
		return o.divided(o.none())
	}
	return o.divided(o.Number(state[1]))
}

// Min is the smallest of the values.
type Min struct{ extreme }

// NewMin returns a Min.
func NewMin() Min { return Min{extreme{least: true}} }

// Name returns the name in the language.
func (Min) Name() string { return "min" }

// Max is the largest of the values.
type Max struct{ extreme }

// Name returns the name in the language.
func (Max) Name() string { return "max" }
