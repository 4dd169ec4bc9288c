//go:build linux

package probes

import "testing"

// Unmet objects are gone only if the walk met as many as the kernel counts: its programs may be skipped.
func TestCertain(t *testing.T) {
	const pd, qp, counter, ctx class = 0, 2, 6, 5
	for _, test := range []struct {
		name  string
		told  map[class]int
		unmet map[uint64]class
		w     walked
		n     map[class]int
		want  map[class]bool
	}{
		{"one has gone", map[class]int{pd: 3}, map[uint64]class{1: pd}, walked{}, map[class]int{pd: 2}, map[class]bool{pd: true}},
		{"one was passed by", map[class]int{pd: 3}, map[uint64]class{1: pd}, walked{}, map[class]int{pd: 3}, map[class]bool{pd: false}},
		{"the visitors were skipped", map[class]int{pd: 3, qp: 1}, map[uint64]class{1: pd, 2: pd, 3: pd, 4: qp}, walked{},
			map[class]int{pd: 2, qp: 0}, map[class]bool{pd: false, qp: true}},
		{"of those not listed one has gone", map[class]int{ctx: 2}, map[uint64]class{1: ctx}, walked{}, map[class]int{ctx: 1}, map[class]bool{ctx: true}},
		{"of those not listed one of two", map[class]int{ctx: 3}, map[uint64]class{1: ctx, 2: ctx}, walked{}, map[class]int{ctx: 2},
			map[class]bool{ctx: false}},
		{"not counted, listed", map[class]int{counter: 1, pd: 1}, map[uint64]class{1: counter}, walked{whole: map[class]bool{counter: true}},
			map[class]int{pd: 1}, map[class]bool{counter: true}},
		{"not counted, by a walk that was not seen", map[class]int{counter: 1, pd: 1}, map[uint64]class{1: counter, 2: pd},
			walked{whole: map[class]bool{counter: true}}, map[class]int{pd: 1}, map[class]bool{counter: false}},
		{"hidden from us", map[class]int{counter: 1, pd: 1}, map[uint64]class{1: counter, 2: pd}, walked{}, nil, map[class]bool{counter: false, pd: false}},
	} {
		var told tally
		for c, n := range test.told {
			told.told[c] = n
		}
		certain := told.certain(test.unmet, test.w, test.n)
		for c, want := range test.want {
			if got := certain(c); got != want {
				t.Errorf("%s: class %d is certain: %v, want %v", test.name, c, got, want)
			}
		}
	}
}
