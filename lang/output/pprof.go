package output

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

// This file writes profiles for pprof.

// Pprof is the stacks of maps as a profile.
const Pprof Format = "pprof"

func (d *Document) writePprof(w io.Writer, f Summary, profiles []result.Profile) error {
	if err := WritePprof(w, f.Began, f.Ended, profiles); err != nil {
		return fmt.Errorf("-f pprof: %w", err)
	}
	return nil
}

// WritePprof writes what maps hold by stack, counted from began to ended, as a profile (github.com/google/pprof, proto/profile.proto). Each map is
// a type of sample. Other elements of the key are labels, named like their columns. There must be a map.
func WritePprof(w io.Writer, began, ended time.Time, profiles []result.Profile) error {
	p := &profile.Profile{DefaultSampleType: sampleType(profiles[0].Map), TimeNanos: began.UnixNano(), DurationNanos: int64(ended.Sub(began))}
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
				out.Label[from.Columns[n]] = []string{key}
			}
			p.Sample = append(p.Sample, out)
		}
	}
	if err := p.CheckValid(); err != nil {
		return err
	}
	return p.Write(w)
}

// sampleType returns the name of a map without its @, or the default name for the map @.
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
