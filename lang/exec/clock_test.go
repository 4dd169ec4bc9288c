//go:build linux

package exec

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"trace/lang/check"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
)

// When the clock of the machine is set back, strftime() and time() follow it, and a series loses no value.
func TestClockIsSet(t *testing.T) {
	boot := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	wall := event.NewWallClock(boot)
	program, err := compile("program", `interval:1s { @ = tseries(1, 1s, 60, "sum"); print(strftime("%H:%M:%S", nsecs)); time("%H:%M:%S\n") }`, nil, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	divided, err := plan.New(program, plan.Options{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	run, err := Start(divided, Options{Sink: output.NewPrinter(&out, output.Text, wall), Now: func() uint64 { return 0 }, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	interval := func(at uint64) {
		if err := run.Interval(time.Second, at); err != nil {
			t.Fatal(err)
		}
	}
	interval(100e9)
	wall.Set(event.Setting{From: 101e9, Boot: boot.Add(-time.Hour)})
	interval(102e9)
	if want := "03:01:40\n03:01:40\n02:01:42\n02:01:42\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
	tables, err := run.Tables()
	if err != nil {
		t.Fatal(err)
	}
	if points := tables[0].Rows[0].Value.(result.Series).Points; len(points) != 2 || points[1].Epoch-points[0].Epoch != 2 {
		t.Errorf("the series has %v: %s", points, strings.TrimSpace(out.String()))
	}
}
