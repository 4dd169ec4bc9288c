//go:build linux

package run

import (
	"math"

	"golang.org/x/sys/unix"
)

// clockIDs are the clocks of nsecs(mode) beside CLOCK_BOOTTIME, which is the clock of events.
var clockIDs = map[string]int32{"monotonic": unix.CLOCK_MONOTONIC, "tai": unix.CLOCK_TAI, "sw_tai": unix.CLOCK_TAI}

// clocks returns how far these clocks are ahead of CLOCK_BOOTTIME, in ns. A clock that cannot be read is left out.
func clocks() map[string]int64 {
	ahead := map[string]int64{}
	for mode, id := range clockIDs {
		if ns, ok := distance(id); ok {
			ahead[mode] = ns
		}
	}
	return ahead
}

// distance reads a clock between two readings of CLOCK_BOOTTIME, a few times. The reading between the closest two counts.
func distance(id int32) (ns int64, ok bool) {
	const times = 5
	closest := int64(math.MaxInt64)
	for range times {
		var before, at, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &before) != nil || unix.ClockGettime(id, &at) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &after) != nil {
			return 0, false
		}
		if apart := after.Nano() - before.Nano(); apart < closest {
			closest, ns = apart, at.Nano()-before.Nano()-apart/2
		}
	}
	return ns, true
}
