package family

import "slices"

// About returns the families that each run has beside its maps, without series.
func About() (all []Family) {
	for _, f := range New(Config{}).about(Snapshot{}).all {
		all = append(all, *f)
	}
	return all
}

// about returns what is known of the run itself: its probes, what was lost, and how full its maps are.
func (e *Exporter) about(s Snapshot) aboutRun {
	a := aboutRun{config: &e.config, snapshot: s}
	up := a.down(s.LeftOut)
	info := a.family("probe_info", "How the probe is attached.", Gauge, "probe", "variant")
	events := a.family("events_total", "Events that happened.", Counter, "probe")
	rejected := a.family("events_rejected_total", "Events that no clause of the program wanted.", Counter, "probe")
	lost := a.family("lost_total", "Events that should have been seen but were not, by reason.", Counter, "probe", "reason")
	runs := a.family("bpf_runs_total", "Runs of the probe's BPF programs, while the kernel measures them.", Counter, "probe")
	runTime := a.family("bpf_run_seconds_total", "Time in the probe's BPF programs, while the kernel measures them.", Counter, "probe")
	for _, p := range s.Probes {
		if p.Runs > 0 {
			a.add(runs, float64(p.Runs), p.Name)
			a.add(runTime, p.RunTime.Seconds(), p.Name)
		}
		a.add(up, one(p.Variant != ""), p.Name)
		if p.Variant != "" {
			a.add(info, 1, p.Name, p.Variant)
		}
		a.add(events, float64(p.Seen), p.Name)
		a.add(rejected, float64(p.Rejected), p.Name)
		for _, l := range p.Lost {
			a.add(lost, float64(l.Count), p.Name, l.Reason)
		}
	}
	keys := a.family("map_keys", "Keys in the map.", Gauge, "map")
	capacity := a.family("map_capacity", "Keys that the map has room for.", Gauge, "map")
	series := a.family("map_series", "Keys of the map that have a series of their own.", Gauge, "map")
	for _, t := range s.Tables {
		a.add(keys, float64(len(t.Rows)), t.Name)
		if t.Size > 0 {
			a.add(capacity, float64(t.Size), t.Name)
		}
		if m := e.maps[t.Name]; m != nil {
			a.add(series, float64(m.own), t.Name)
		}
	}
	updates := a.family("map_lost_updates_total", "Updates of the map that were lost, by reason.", Counter, "map", "reason")
	for _, m := range s.Maps {
		for _, l := range m.Lost {
			a.add(updates, float64(l.Count), m.Map, l.Reason)
		}
	}
	stacks := a.family("stacks_lost_total", "Stacks that are absent, or without their frames.", Counter)
	a.add(stacks, float64(s.StacksLost))
	return a
}

// Unattached returns the metrics of a program that is not attached: its probes are down.
func (e *Exporter) Unattached(probes []string) []Family {
	a := aboutRun{config: &e.config}
	a.down(probes)
	return a.filled()
}

// down returns the family of what is attached, with the probes that are not.
func (a *aboutRun) down(probes []string) *Family {
	up := a.family("probe_up", "Whether the probe is attached.", Gauge, "probe")
	for _, name := range probes {
		a.add(up, 0, name)
	}
	return up
}

// aboutRun collects the families about a run. Each has the label program.
type aboutRun struct {
	config   *Config
	snapshot Snapshot
	all      []*Family
}

func (a *aboutRun) family(name, help string, kind Kind, labels ...string) *Family {
	f := &Family{Name: "trace_" + name, Help: help, Kind: kind}
	f.Labels = slices.Concat(labels, []string{"program"}, a.config.labelNames())
	a.all = append(a.all, f)
	return f
}

func (a *aboutRun) add(to *Family, v float64, labels ...string) {
	values := a.config.withLabels(slices.Concat(labels, []string{a.config.Program}))
	to.Series = append(to.Series, Series{Labels: values, Value: v, Created: a.snapshot.Started})
}

// filled returns the families that have a series.
func (a aboutRun) filled() (all []Family) {
	for _, f := range a.all {
		if len(f.Series) > 0 {
			all = append(all, *f)
		}
	}
	return all
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
