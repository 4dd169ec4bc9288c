package recording

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"trace/probes/event"
)

// An event has the time of day that its machine showed then, also if the clock was set while it was recorded, or between two recordings. Each
// file of a ring knows how the clock was set.
func TestClockIsSet(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq")
	all := events(t, layouts, 10_000, 20) // 1 µs apart
	h := header
	h.BootID, h.Started = "x", 5_000
	wall := event.NewWallClock(h.Boot)
	path := filepath.Join(t.TempDir(), "f")
	w, err := Create(path, Options{Wall: wall}, h, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, w, all[:10])
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	back := h.Boot.Add(-time.Hour)
	wall.Set(event.Setting{From: 15_000, Boot: back})
	appendAll(t, w, all[10:])
	if err := w.Close(40_000, nil); err != nil {
		t.Fatal(err)
	}
	w.written = newWrittenNames()
	var next namesBlocks
	if w.newSettings(&next); !slices.Equal(next.Clock, wall.Steps()) {
		t.Errorf("the next file of a ring has %v", next.Clock)
	}

	later := h
	later.Started, later.Boot = 100_000, h.Boot.Add(time.Minute)
	second := record(t, "g", later, layouts, events(t, layouts, 100_000, 1))
	for _, names := range [][]string{{path, second}, {second, path}} {
		r, err := Open(names...)
		if err != nil {
			t.Fatal(err)
		}
		for {
			item, err := r.Next()
			if err != nil {
				break
			}
			want := h.Boot
			switch {
			case item.Time >= 100_000:
				want = later.Boot
			case item.Time >= 15_000:
				want = back
			}
			if got := r.WallClock().Time(item.Time); !got.Equal(want.Add(time.Duration(item.Time))) {
				t.Errorf("%v: at %d: %v, want %v", names, item.Time, got, want.Add(time.Duration(item.Time)))
			}
		}
		if n := len(r.WallClock().Steps()); n != 2 {
			t.Errorf("%d steps", n)
		}
		r.Close()
	}
}
