package run

import (
	"context"
	"sync"
	"time"
)

// Left is what the end of a run still has to do.
type Left struct {
	// Asked means that the user has interrupted the run, and another interrupt cuts it short.
	Asked bool
	// Events came before the end, and are not handled yet.
	Events int
	// Clause runs, if no event triggers it; "" otherwise. Busy means that a clause runs or maps are printed.
	Clause string
	Busy   bool
}

// endPatience is how long the end of a run may take before a note describes what is left.
const endPatience = time.Second

// noteLeft notes what is left, if anything is, when the end of a run takes endPatience, until stop is called: after over, and once more after
// interrupted.
func noteLeft(interrupted, over context.Context, note func(Note), left func() Left) (stop func()) {
	stopped, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	say := func(after context.Context, asked bool) {
		select {
		case <-stopped.Done():
			return
		case <-after.Done():
		}
		if !asked && interrupted.Err() != nil {
			return // there is one note
		}
		select {
		case <-stopped.Done():
		case <-time.After(endPatience):
			if l := left(); l != (Left{}) {
				l.Asked = asked
				note(l)
			}
		}
	}
	all.Go(func() { say(interrupted, true) })
	all.Go(func() { say(over, false) })
	return func() {
		end()
		all.Wait()
	}
}
