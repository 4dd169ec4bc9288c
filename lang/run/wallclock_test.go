//go:build linux

package run

import (
	"context"
	"testing"
	"time"

	"trace/probes/event"
	"trace/probes/symbols"
)

// A clock that was set before it is followed shows the time of day from then on, and what was before stays.
func TestFollowWallClock(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	before := symbols.BootClock()
	wrong := setting().Boot.Add(-time.Hour)
	wall := event.NewWallClock(wrong)
	if err := followWallClock(ctx, wall); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(wall.Steps()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the clock is not followed")
		}
	}
	now := time.Now()
	if apart := wall.Time(symbols.BootClock()).Sub(now); apart < 0 || apart > time.Second {
		t.Errorf("%v apart from the time of day", apart)
	}
	if got, want := wall.Time(before), wrong.Add(time.Duration(before)); !got.Equal(want) {
		t.Errorf("what was before has the time %v, want %v", got, want)
	}
}
