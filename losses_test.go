package trace

import (
	"testing"

	"trace/lang/run"
)

// Each reason has its own number, and together they are all that is missing; nobody knows how many events a gap has.
func TestLostOf(t *testing.T) {
	l := lostOf(run.Probe{Lost: 29, RingFull: 1, Unseen: 2, Skipped: 3, Cut: 4, Late: 5, Undecoded: 6, Gaps: 7, Unhandled: 8})
	if want := (Lost{BufferFull: 1, Unseen: 2, Skipped: 3, Cut: 4, Late: 5, Gaps: 7, Unhandled: 8}); l != want || l.Total() != 30 {
		t.Errorf("got %+v, %d in all", l, l.Total())
	}
	sum := uint64(0)
	for _, r := range l.reasons(6) {
		sum += r.Count
	}
	if sum != 36 {
		t.Errorf("the reasons have %d", sum)
	}
}
