package main

import (
	"fmt"
	"time"
)

// ticks reads the time stamp counter.
func ticks() uint64

// clockParameter sets the rate of the time stamp counter in the guest's kernel; an emulated CPU takes the counter from this machine. The
// kernel would measure the rate at boot, but on a busy machine the result was once wrong by a factor of eight, and so was the guest's
// clock.
func clockParameter() string {
	time0, ticks0 := moment()
	time.Sleep(100 * time.Millisecond)
	time1, ticks1 := moment()
	return fmt.Sprintf(" tsc_early_khz=%d", uint64(float64(ticks1-ticks0)/time1.Sub(time0).Seconds()/1000))
}

// moment returns the time and the counter at the same moment: nothing came in between.
func moment() (time.Time, uint64) {
	for {
		before, n := time.Now(), ticks()
		if time.Since(before) < 5*time.Microsecond {
			return before, n
		}
	}
}
