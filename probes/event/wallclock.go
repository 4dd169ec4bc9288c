package event

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A WallClock has the time of day of moments on the clock of nsecs. That clock goes on evenly, while the time of day may be set: an event
// has the time that was shown when it happened. Its methods may be called from several goroutines.
type WallClock struct {
	mu       sync.Mutex
	settings atomic.Pointer[[]Setting]
}

// A Setting is how a clock is set from a moment on, in nsecs, until the next one: as if the machine had been booted at Boot.
type Setting struct {
	From uint64    `json:"from"`
	Boot time.Time `json:"boot"`
}

// NewWallClock returns a clock that is set as if the machine was booted at a time. Its location is the time zone.
func NewWallClock(boot time.Time) *WallClock {
	c := &WallClock{}
	c.settings.Store(&[]Setting{{Boot: boot}})
	return c
}

// maxSettings bounds how many are kept: the first, and the last ones.
const maxSettings = 1024

// leastStep is more than two clocks, read one after the other, seem to be apart.
const leastStep = 100 * time.Microsecond

// Set sets the clock from a moment on, and reports whether that makes a difference.
func (c *WallClock) Set(s Setting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := *c.settings.Load()
	at := settingAt(all, s.From)
	if apart := s.Boot.Sub(all[at].Boot); apart > -leastStep && apart < leastStep {
		return false
	}
	s.Boot = s.Boot.In(all[0].Boot.Location())
	all = slices.Insert(slices.Clone(all), at+1, s)
	if len(all) > maxSettings {
		all = slices.Delete(all, 1, 2)
	}
	c.settings.Store(&all)
	return true
}

// settingAt returns which of the settings is in force at a moment.
func settingAt(all []Setting, nsecs uint64) int {
	at := len(all) - 1
	for at > 0 && all[at].From > nsecs {
		at--
	}
	return at
}

// Time returns the time of day at a moment.
func (c *WallClock) Time(nsecs uint64) time.Time {
	all := *c.settings.Load()
	return all[settingAt(all, nsecs)].Boot.Add(time.Duration(nsecs))
}

// Steps returns how the clock was set after the first time, in order.
func (c *WallClock) Steps() []Setting { return (*c.settings.Load())[1:] }
