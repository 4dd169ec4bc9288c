package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"trace/lang/result"
	"trace/probes/event"
)

// This file writes what maps hold by stack for the tools that draw flame graphs.

// writeFolded writes a line for each stack, as flamegraph.pl reads it: the elements of the key, the frames from the outermost, and the
// value. Of several maps the name comes first.
func writeFolded(w io.Writer, profiles []result.Profile) error {
	for _, p := range profiles {
		for _, s := range p.Samples {
			line := flames(s)
			if len(profiles) > 1 {
				line = slices.Concat([]string{p.Map}, line)
			}
			for i, frame := range line {
				line[i] = foldedFrame.Replace(frame)
			}
			if _, err := fmt.Fprintf(w, "%s %d\n", strings.Join(line, ";"), s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldedFrame replaces what would end a frame or a line.
var foldedFrame = strings.NewReplacer(";", ":", "\n", " ", "\r", " ")

// noStack stands for the frames of an event without any, like kstack where profile meets a process.
const noStack = "(no stack)"

// flames are the elements of the key, then the frames.
func flames(s result.Sample) []string {
	if len(s.Frames) == 0 {
		return slices.Concat(s.Key, []string{noStack})
	}
	return slices.Concat(s.Key, s.Frames)
}

// writePprof writes a profile (github.com/google/pprof, proto/profile.proto). Each map is a type of sample; other elements of the key are
// labels: key1, key2, … in their order.
func writePprof(w io.Writer, profiles []result.Profile, began time.Time, length time.Duration) error {
	p := &profile.Profile{DefaultSampleType: sampleType(profiles[0].Map), TimeNanos: began.UnixNano(), DurationNanos: int64(length)}
	locations := map[string]*profile.Location{}
	at := func(name string) *profile.Location {
		if l := locations[name]; l != nil {
			return l
		}
		f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name}
		l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		locations[name] = l
		return l
	}
	for i, from := range profiles {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: sampleType(from.Map), Unit: pprofUnit(from.Unit)})
		for _, s := range from.Samples {
			out := &profile.Sample{Value: make([]int64, len(profiles)), Label: map[string][]string{}}
			out.Value[i] = int64(s.Value)
			for _, name := range slices.Backward(flames(result.Sample{Frames: s.Frames})) {
				out.Location = append(out.Location, at(name))
			}
			for n, key := range s.Key {
				out.Label[fmt.Sprintf("key%d", n+1)] = []string{key}
			}
			p.Sample = append(p.Sample, out)
		}
	}
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("-f pprof: %w", err)
	}
	return p.Write(w)
}

// sampleType is the name of a map, without its @. The map @ has none.
func sampleType(name string) string {
	if name == "@" {
		return "samples"
	}
	return strings.TrimPrefix(name, "@")
}

func pprofUnit(u event.Unit) string {
	switch u {
	case event.Nanoseconds:
		return "nanoseconds"
	case event.Bytes:
		return "bytes"
	}
	return "count"
}
