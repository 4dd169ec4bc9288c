package agg

import (
	"fmt"

	"trace/lang/result"
)

// TopK ranks what comes, by how often it comes or by the sum of a number. A state is the most that this can be, and how much less it may
// be: 0 where the state had room from the beginning. Who gave way may have had all that it had, so who comes later, and may be the same,
// begins with that as most and as error (Metwally, Agrawal and Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
// Streams, 2005). Where n have room, the error is at most an n-th of the sum of what came while there was no more.
type TopK struct {
	words
	// N are shown.
	N int64
}

// Name of the function.
func (TopK) Name() string { return "topk" }

// Params are how many are shown.
func (t TopK) Params() string { return fmt.Sprint(t.N) }

// Words of a state.
func (TopK) Words() int { return 2 }

// Add adds a value.
func (TopK) Add(state []uint64, x uint64, _ bool) { state[0] += x }

// Updates are not known of a sum.
func (TopK) Updates([]uint64) uint64 { return 1 }

// Shape in the kernel.
func (TopK) Shape() Shape { return Ranked{} }

// Traits of topk.
func (TopK) Traits() Traits { return Traits{Many: true, Ranks: true, Adds: result.Sums} }

// Top is how many are shown.
func (t TopK) Top() int64 { return t.N }

// Less compares the most that they can be.
func (TopK) Less(a, b []uint64) bool { return a[0] < b[0] }

// Gone is anything up to the most.
func (TopK) Gone(state []uint64) []uint64 { return []uint64{state[0], state[0]} }

// Result is the most, and the error.
func (TopK) Result(state []uint64, o Show) result.Value {
	n := o.divided(o.Number(state[0]))
	div := uint64(max(o.Div, 1))
	n.Error = state[0]/div - (state[0]-state[1])/div
	return n
}

// maxTop is how many topk shows at most: what is to be read, or sent from many hosts.
const maxTop = 4096

var topkSpec = Spec{
	traits: TopK{}.Traits(), Name: "topk", Usage: "topk(x, n) for the n most frequent x, or topk(x, n, w) for those with the largest sum of w", Least: 2, Most: 3,
	Params: []Param{{What: "n of topk()", Lo: 1, Hi: maxTop}},
	New:    func(a Args) (Func, *Mistake) { return TopK{N: a.Numbers[0]}, nil },
}
