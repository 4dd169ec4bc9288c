package console

import (
	"fmt"
	"strings"

	"trace/lang/exec"
	"trace/lang/output"
	"trace/lang/result"
	"trace/lang/run"
	"trace/probes/recording"
)

// This file makes text of how a run went.

// Report says what is missing from the output, and why. Losses are never silent, not even with -q.
func (c *Console) Report(r run.Report) {
	for _, path := range r.RemadeCgroups {
		c.Note("cgroup %s was removed and made again while tracing: only the first one was compared with (cgroup startsWith %[1]q sees both)", path)
	}
	for _, info := range r.Recordings {
		c.tellMissing(lacks(info))
	}
	c.tellMissing(r.Missing)
	if len(r.Recordings) == 0 {
		c.reportProbes(r.Probes)
	}
	for _, l := range r.Maps {
		c.tellMissing(mapLossLines(l))
		if l.Absent > 0 && !c.Quiet {
			c.Note("%s: skipped %s, whose value was absent", l.Map, plural(l.Absent, "update"))
		}
	}
	c.tellMissing(stackLossLines(r.Stacks, c.Quiet))
	if r.SkippedForks > 0 {
		c.Note("%s", forksLine(r.SkippedForks))
	}
	if r.SkippedCgroups > 0 {
		c.Note("%s", cgroupsLine(r.SkippedCgroups))
	}
	if r.File != "" && !c.Quiet {
		c.Note("recorded %s in %s", plural(r.Recorded, "event"), r.File)
	}
}

// reportProbes says what became of the events of the whole run.
func (c *Console) reportProbes(all []run.Probe) {
	c.lost, c.corrected = nil, nil // so that the totals come last
	c.tellLosses(all)
	for _, p := range all {
		if !c.Quiet {
			c.tellMissing(incompleteLines(p))
		}
		if c.Verbose {
			c.Note("%s: %d seen, %d printed, %d rejected, %d lost", p.Name, p.Events, p.Printed, p.Rejected, p.Lost)
		}
	}
}

// tellLosses prints a line for every probe that has lost more events than the user knows of.
func (c *Console) tellLosses(all []run.Probe) {
	if c.lost == nil {
		c.lost, c.corrected = map[string]uint64{}, map[string]uint64{}
	}
	for _, p := range all {
		if p.Corrected > c.corrected[p.Name] {
			c.corrected[p.Name] = p.Corrected
			c.Note("%s: %s corrected by the kernel's own list (%s skipped)", p.Name, plural(p.Corrected, "object"), eventsWere(p.Corrected))
		}
		if p.Lost > c.lost[p.Name] {
			c.lost[p.Name] = p.Lost
			c.Note("%s", lossLine(p))
		}
	}
}

func eventsWere(n uint64) string {
	if n == 1 {
		return "its event was"
	}
	return "their events were"
}

// incompleteLines explain absent fields; as a rule such an event was in progress when tracing began.
func incompleteLines(p run.Probe) []string {
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, p.Name+": "+fmt.Sprintf(format, args...)) }
	switch {
	case p.Unmatched > 0 && p.Unasked:
		tell("the beginning of %s was not seen; the filter asks for what it tells, like the latency, and so could not pass them", plural(p.Unmatched, "event"))
	case p.Unmatched > 0:
		tell("the beginning of %s was not seen; what it tells, like the latency, is absent", plural(p.Unmatched, "event"))
	}
	if p.NoRoom > 0 {
		tell("too much in progress to remember the beginning of %s", plural(p.NoRoom, "event"))
	}
	if p.SkippedBeginnings > 0 {
		tell("the kernel skipped the beginning of %s (the program was already running on that CPU)", plural(p.SkippedBeginnings, "event"))
	}
	return lines
}

// lossLine says how many events of a probe were lost, and where.
func lossLine(p run.Probe) string {
	var reasons []string
	for _, r := range []struct {
		n    uint64
		text string
	}{
		{p.RingFull, "ring buffer full (raise --buffer-size)"},
		{p.Unseen, "whose beginning was not seen, before the filter could be asked"},
		{p.Skipped, "skipped by the kernel before the filter could be asked (the program was already running on that CPU, or too many calls were under way)"},
	} {
		if r.n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", r.n, r.text))
		}
	}
	of := ""
	// How many there were is known only if all of them passed the filter, and were sent to user space.
	if p.Lost == p.RingFull {
		of = fmt.Sprintf(" of %d", p.Delivered+p.Lost)
	}
	return fmt.Sprintf("lost %d%s %s events: %s", p.Lost, of, p.Name, strings.Join(reasons, ", "))
}

// forksLine says what --children may lack.
func forksLine(n uint64) string {
	return fmt.Sprintf("--children: the kernel did not tell of %s of any processes (another one was being told of on that CPU): events of what they started may be missing",
		plural(n, "fork"))
}

// cgroupsLine says what --cgroup may lack.
func cgroupsLine(n uint64) string {
	return fmt.Sprintf("--cgroup: %s, of any that were made or removed, could not be followed: events of what runs in them may be missing", plural(n, "cgroup"))
}

// lacks says what a recording should have and has not.
func lacks(info recording.Info) []string {
	var lines []string
	for _, l := range info.Losses {
		for _, what := range l.Texts() {
			lines = append(lines, fmt.Sprintf("%s lacks %s, lost when it was recorded", info.Name, what))
		}
	}
	if info.Cut {
		lines = append(lines, info.Name+" was cut off: the recording did not come to its end; what it has is whole")
	}
	return lines
}

// stackLossLines say what is wrong with stacks.
func stackLossLines(l exec.StackLosses, quiet bool) []string {
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, "stacks: "+fmt.Sprintf(format, args...)) }
	if n := l.Full + l.NoMemory; n > 0 {
		tell("no room for another one, %s: their frames are not known (raise --map-size)", plural(n, "time"))
	}
	if l.Busy > 0 {
		tell("%s not captured, as others were being captured on that CPU", plural(l.Busy, "stack"))
	}
	if l.Failed > 0 {
		tell("the kernel did not capture %s", plural(l.Failed, "stack"))
	}
	if l.Mappings > 0 && !quiet {
		tell("%s about what processes map did not arrive; frames may lack their names for it", plural(l.Mappings, "note"))
	}
	for _, line := range l.Unread {
		tell("frames may lack their names: %s", line)
	}
	if l.Impatient > 0 {
		tell("%s printed without names, which took too long to look for", plural(l.Impatient, "stack"))
	}
	return lines
}

// moreRoom says how a map gets more keys. --map-size is for those without a let.
func moreRoom(l exec.MapLosses) string {
	if l.Let {
		return fmt.Sprintf("write let %s = hash(%d), or lru(…)", l.Map, 4*l.MaxKeys)
	}
	return fmt.Sprintf("raise --map-size, or let %s = lru(…)", l.Map)
}

// mapLossLines say which updates of a map were lost, and why.
func mapLossLines(l exec.MapLosses) []string {
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, l.Map+": "+fmt.Sprintf(format, args...)) }
	if l.Full > 0 {
		tell("no room for %s: the map is full with %d keys (%s)", plural(l.Full, "update"), l.MaxKeys, moreRoom(l))
	}
	if l.NoMemory > 0 {
		tell("the kernel had no memory for %s", plural(l.NoMemory, "update"))
	}
	if l.Busy > 0 {
		tell("lost %s, as others were changing the map at that moment", plural(l.Busy, "update"))
	}
	return lines
}

// TellNegative says what profiles leave out.
func (c *Console) TellNegative(profiles []result.Profile) {
	for _, p := range profiles {
		if p.Negative > 0 {
			c.Note("%s: %s with a value below 0 left out of the profile", p.Map, plural(p.Negative, "entry"))
		}
	}
}

// Summary are what a page says of a run.
func Summary(r run.Report) output.Summary {
	f := output.Summary{Host: r.Host, Kernel: r.Kernel, Began: r.Began, Ended: r.Ended}
	for _, info := range r.Recordings {
		f.Losses = append(f.Losses, lacks(info)...)
	}
	for _, p := range r.Probes {
		count := output.ProbeCount{Name: p.Name, Variant: p.Variant, Events: p.Events, Lost: p.Lost}
		switch {
		case len(r.Recordings) > 0:
		case p.Counted:
			count.Rejected = &p.Rejected
		default:
			count.Events = max(p.Events, p.Delivered)
		}
		f.Probes = append(f.Probes, count)
		if p.Lost > 0 && len(r.Recordings) == 0 {
			f.Losses = append(f.Losses, lossLine(p))
		}
	}
	for _, l := range r.Maps {
		f.Losses = append(f.Losses, mapLossLines(l)...)
	}
	f.Losses = append(f.Losses, stackLossLines(r.Stacks, true)...)
	if r.SkippedForks > 0 {
		f.Losses = append(f.Losses, forksLine(r.SkippedForks))
	}
	if r.SkippedCgroups > 0 {
		f.Losses = append(f.Losses, cgroupsLine(r.SkippedCgroups))
	}
	return f
}

func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
