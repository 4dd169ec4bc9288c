//go:build linux

package serve

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"trace"
	"trace/lang/metrics/family"
)

// reload is what the last reading of the configuration did.
type reload struct {
	at        time.Time
	succeeded bool
	labels    map[string]string
}

// families returns the metrics of the service itself.
func (r reload) families(version string, programs []*program, of trace.Names) []family.Family {
	var names, values []string
	for _, name := range slices.Sorted(maps.Keys(r.labels)) {
		names, values = append(names, name), append(values, r.labels[name])
	}
	gauge := func(name, help string, v float64, labels ...string) family.Family {
		f := family.Family{Name: name, Help: help, Kind: family.Gauge, Labels: slices.Clone(names)}
		s := family.Series{Value: v, Labels: slices.Clone(values)}
		for i := 0; i < len(labels); i += 2 {
			f.Labels, s.Labels = append(f.Labels, labels[i]), append(s.Labels, labels[i+1])
		}
		f.Series = []family.Series{s}
		return f
	}
	all := []family.Family{
		gauge("trace_build_info", "The version of trace.", 1, "version", version, "go", runtime.Version(), "arch", runtime.GOARCH),
		gauge("trace_config_last_reload_successful", "Whether the last reading of the configuration succeeded.", toNumber(r.succeeded)),
		gauge("trace_config_last_reload_timestamp_seconds", "When the configuration was read last.", float64(r.at.UnixMilli())/1000),
	}
	spent := gauge("trace_names_seconds_total", "Time that was spent on names of functions in processes.", of.Seconds)
	left := gauge("trace_names_left_files_total", "Files in which functions have no names because of what it would take to read them.", float64(of.Left))
	spent.Kind, left.Kind = family.Counter, family.Counter
	all = append(all, spent, left,
		gauge("trace_names_bytes", "Memory for names of functions.", float64(of.Bytes)),
		gauge("trace_names_limit_bytes", "Memory that names of functions may take.", float64(of.Limit)))
	up := gauge("trace_program_up", "Whether the program is attached.", 0, "program", "")
	failed := gauge("trace_scrape_failures_total", "Scrapes without the metrics of the program, as its maps could not be read in time.", 0, "program", "")
	failed.Kind = family.Counter
	one := func(f *family.Family, v float64, program string) {
		f.Series = append(f.Series, family.Series{Value: v, Labels: append(slices.Clone(values), program)})
	}
	up.Series, failed.Series = nil, nil
	for _, p := range programs {
		run, err := p.running()
		one(&up, toNumber(err == nil && !over(run)), p.spec.Name)
		one(&failed, float64(p.failed.Load()), p.spec.Name)
	}
	return append(all, up, failed)
}

func toNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
