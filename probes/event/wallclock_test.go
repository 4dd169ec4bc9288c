package event

import (
	"testing"
	"time"
)

// A moment has the time of day that was shown then, whenever it is asked for, in the time zone of the first setting.
func TestWallClock(t *testing.T) {
	zone := time.FixedZone("CEST", 2*3600)
	boot := time.Date(2026, 1, 2, 3, 0, 0, 0, zone)
	c := NewWallClock(boot)
	if !c.Set(Setting{2e9, boot.Add(time.Hour).UTC()}) || !c.Set(Setting{4e9, boot.Add(-time.Hour)}) {
		t.Error("the clock is not set")
	}
	if c.Set(Setting{5e9, boot.Add(-time.Hour + 20*time.Microsecond)}) || c.Set(Setting{4e9, boot.Add(-time.Hour)}) {
		t.Error("the same time counts as a step")
	}
	for nsecs, want := range map[uint64]string{
		0: "03:00:00+02:00", 2e9 - 1: "03:00:01+02:00", 2e9: "04:00:02+02:00", 4e9 - 1: "04:00:03+02:00", 4e9: "02:00:04+02:00", 60e9: "02:01:00+02:00",
	} {
		if got := c.Time(nsecs).Format("15:04:05Z07:00"); got != want {
			t.Errorf("at %d: %s, want %s", nsecs, got, want)
		}
	}
	if n := len(c.Steps()); n != 2 {
		t.Errorf("%d steps", n)
	}
	if c.Set(Setting{3e9, boot.Add(time.Minute)}); c.Time(3e9).Format("15:04:05") != "03:01:03" || c.Time(4e9).Format("15:04:05") != "02:00:04" {
		t.Error("a setting that becomes known late is not in its place")
	}
	for i := range 3 * maxSettings {
		c.Set(Setting{uint64(100e9 + i), boot.Add(time.Duration(i%2) * time.Minute)})
	}
	if n := len(c.Steps()); n != maxSettings-1 || !c.Time(0).Equal(boot) {
		t.Errorf("%d steps are kept, and the clock began at %v", n, c.Time(0))
	}
}
