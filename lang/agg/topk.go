package agg

import (
	"fmt"

	"trace/lang/result"
)

// TopK ranks values by how often they occur, or by the sum of a number. A state is the most that this can be and the error, by how
// much it may be less. The error is 0 if there was room from the beginning. A dropped key may have had up to the most of its state.
// A later key may be the same one, so it starts with that number as its most and as its error (Metwally, Agrawal and Abbadi:
// Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005). With room for n keys the error is at most 1/n of the
// sum that came while there was no more room.
type TopK struct {
	words
	// N is how many are shown.
	N int64
}

// Name returns the name in the language.
func (TopK) Name() string { return "topk" }

// Params returns how many are shown.
func (t TopK) Params() string { return fmt.Sprint(t.N) }

// Words returns 2.
func (TopK) Words() int { return 2 }

// Add adds a value.
func (TopK) Add(state []uint64, x uint64, _ bool) { state[0] += x }

// Updates returns 1: a sum does not have the number of values.
func (TopK) Updates([]uint64) uint64 { return 1 }

// Shape returns Ranked.
func (TopK) Shape() Shape { return Ranked{} }

// Traits returns the properties of topk.
func (TopK) Traits() Traits {
	return Traits{Many: true, Ranks: true, Counts: true, Adds: result.Sums, Instead: "count() or sum(x), with x in the key"}
}

// Top returns how many are shown.
func (t TopK) Top() int64 { return t.N }

// Less compares the most that the sums can be.
func (TopK) Less(a, b []uint64) bool { return a[0] < b[0] }

// Gone returns the most of the state, as most and as error.
func (TopK) Gone(state []uint64) []uint64 { return []uint64{state[0], state[0]} }

// Result returns the most and the error.
func (TopK) Result(state []uint64, o Show) result.Value {
	most, least := o.estimated(state[0]), o.estimated(state[0]-state[1])
	n := o.estimate(o.divided(o.Number(most)))
	div := uint64(max(o.Div, 1))
	n.Error = most/div - least/div
	return n
}

// maxTop is the largest number that topk shows: people read the result, and many hosts may send theirs.
const maxTop = 4096

var topkSpec = Spec{
	traits: TopK{}.Traits(), Name: "topk", Usage: "topk(x, n) for the n most frequent x, or topk(x, n, w) for those with the largest sum of w", Least: 2, Most: 3,
	Params: []Param{{What: "n of topk()", Lo: 1, Hi: maxTop}},
	New:    func(a Args) (Func, *Mistake) { return TopK{N: a.Numbers[0]}, nil },
}
