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

// This file prints the report of a run.

// Report prints what is missing from the output, and why. Losses are always shown, even with -q.
func (c *Console) Report(r run.Report) {
	for _, path := range r.RemadeCgroups {
		c.Note("%s", remadeLine(path))
	}
	for _, info := range r.Recordings {
		c.showMissing(lacks(info))
	}
	c.showMissing(r.Missing)
	if len(r.Recordings) == 0 {
		c.reportProbes(r.Probes)
	}
	c.showMissing(burstLines(r))
	for _, l := range r.Maps {
		c.showMissing(mapLossLines(l))
		if l.Absent > 0 && !c.Quiet {
			c.Note("%s: skipped %s, whose value was absent", l.Map, plural(l.Absent, "update"))
		}
	}
	c.showMissing(stackLossLines(r.Stacks, c.Quiet))
	if r.SkippedForks > 0 {
		c.Note("%s", forksLine(r.SkippedForks))
	}
	if r.SkippedCgroups > 0 {
		c.Note("%s", cgroupsLine(r.SkippedCgroups))
	}
	c.showMissing(cutLines(r))
	c.reportActs(r.Acts)
	if r.File != "" && !c.Quiet {
		c.Note("recorded %s in %s", plural(r.Recorded, "event"), r.File)
	}
}

func remadeLine(path string) string {
	return fmt.Sprintf("cgroup %s was removed and created again while tracing: only the first one was matched (cgroup startsWith %[1]q matches both)", path)
}

// burstLines describes what --burst saw.
func burstLines(r run.Report) (lines []string) {
	if r.Share == 0 {
		return nil
	}
	lines = append(lines, fmt.Sprintf("--burst: attached %.1f %% of the time; numbers with a ~ are estimates for all of it", 100*r.Share))
	for _, p := range r.Probes {
		if p.Outside > 0 {
			lines = append(lines, fmt.Sprintf("--burst: %s: %s left out, which may have begun before a window", p.Name, plural(p.Outside, "event")))
		}
	}
	return lines
}

// cutLines describes which clauses did not come to their ends.
func cutLines(r run.Report) (lines []string) {
	for _, clause := range r.Cut {
		lines = append(lines, fmt.Sprintf("%s was cut short at the end of the run: what it would have done is missing", clause))
	}
	return lines
}

// reportActs prints what the program did to this machine.
func (c *Console) reportActs(acts exec.Acts) {
	if acts.Commands > 0 && !c.Quiet {
		c.Note("the program ran %s", plural(acts.Commands, "command"))
	}
	if acts.Signals > 0 && !c.Quiet {
		c.Note("the program sent %s", plural(acts.Signals, "signal"))
	}
	if acts.Unsent > 0 {
		c.Note("%s could not be sent: the process of the event was not running, as in an interrupt, or the kernel refused", plural(acts.Unsent, "signal"))
	}
}

// reportProbes prints the counts of each probe for the whole run.
func (c *Console) reportProbes(all []run.Probe) {
	c.lost, c.corrected = nil, nil // so that the totals come last
	c.showLosses(all)
	for _, p := range all {
		if !c.Quiet {
			c.showMissing(incompleteLines(p))
		}
		if c.Verbose {
			for _, line := range verboseLines(p) {
				c.Note("%s: %s", p.Name, line)
			}
		}
	}
}

func verboseLines(p run.Probe) []string {
	lines := []string{fmt.Sprintf("%d seen, %d printed, %d rejected, %d lost", p.Events, p.Printed, p.Rejected, p.Lost)}
	if p.Overflowed > 0 {
		lines = append(lines, plural(p.Overflowed, "beginning")+" kept in a hash, which costs more, as the table had no room")
	}
	return lines
}

// showLosses prints a line for every probe that has lost more events than were shown.
func (c *Console) showLosses(all []run.Probe) {
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

// incompleteLines explains absent fields. Usually such an event was in progress when tracing began.
func incompleteLines(p run.Probe) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, p.Name+": "+fmt.Sprintf(format, args...)) }
	switch {
	case p.Unmatched > 0 && p.Unasked:
		add("the beginning of %s was not seen; the filter uses fields of the beginning, like latency, so they could not pass", plural(p.Unmatched, "event"))
	case p.Unmatched > 0:
		add("the beginning of %s was not seen; fields of the beginning, like latency, are absent", plural(p.Unmatched, "event"))
	}
	if p.FailedReads > 0 {
		add("WARNING: Failed to probe_read_user: Bad address (-14): %s of a process's memory failed; what they would show is absent or 0", plural(p.FailedReads, "read"))
	}
	if p.NoRoom > 0 {
		add("too many in progress to remember the beginning of %s", plural(p.NoRoom, "event"))
	}
	if p.SkippedBeginnings > 0 {
		add("the kernel skipped the beginning of %s (the BPF program was already running on that CPU)", plural(p.SkippedBeginnings, "event"))
	}
	return lines
}

// lossLine describes how many events of a probe were lost, and where.
func lossLine(p run.Probe) string {
	var reasons []string
	for _, r := range []struct {
		n    uint64
		text string
	}{
		{p.RingFull, "ring buffer full (raise --buffer-size)"},
		{p.Unseen, "whose beginning was not seen, before the filter ran"},
		{p.Cut, "or more at the ends of lists with more than 32"},
		{p.Late, "or more of readings that were left out, as one failed or took longer than its period: the next one has what changed"},
		{p.Undecoded, "whose record was not whole"},
		{p.Unhandled, "that came before the end and were not handled, as the end was cut short"},
		{p.Skipped, "skipped by the kernel before the filter ran (the BPF program was already running on that CPU, or too many calls were in progress)"},
	} {
		if r.n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", r.n, r.text))
		}
	}
	of := ""
	// The number of events is known only if all losses passed the filter and were on the way to user space.
	if p.Lost == p.RingFull+p.Unhandled {
		of = fmt.Sprintf(" of %d", p.Delivered+p.Lost)
	}
	return fmt.Sprintf("lost %d%s %s events: %s", p.Lost, of, p.Name, strings.Join(reasons, ", "))
}

// forksLine describes what --children may have missed.
func forksLine(n uint64) string {
	return fmt.Sprintf("--children: the kernel did not report %s (on that CPU it was reporting another one): events of the new processes may be missing",
		plural(n, "fork"))
}

// cgroupsLine describes what --cgroup, or a condition on what cgroups run, may have missed.
func cgroupsLine(n uint64) string {
	return fmt.Sprintf("the creation or removal of %s was missed: events of processes in them may be missing", plural(n, "cgroup"))
}

// lacks describes what a recording should have but has not.
func lacks(info recording.Info) []string {
	var lines []string
	for _, l := range info.Losses {
		for _, what := range l.Texts() {
			lines = append(lines, fmt.Sprintf("%s lacks %s, lost when it was recorded", info.Name, what))
		}
	}
	if info.Cut {
		lines = append(lines, info.Name+" was cut off before its end; the events in it are complete")
	}
	return lines
}

// stackLossLines describes what is wrong with stacks.
func stackLossLines(l exec.StackLosses, quiet bool) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, "stacks: "+fmt.Sprintf(format, args...)) }
	if n := l.Full + l.NoMemory; n > 0 {
		add("no room for a stack, %s: its frames are unknown (raise --map-size)", plural(n, "time"))
	}
	if l.Busy > 0 {
		add("%s not captured because others were being captured on that CPU", plural(l.Busy, "stack"))
	}
	if l.Failed > 0 {
		add("the kernel did not capture %s", plural(l.Failed, "stack"))
	}
	if l.Mappings > 0 && !quiet {
		add("%s about mappings of processes lost: frames may lack names", plural(l.Mappings, "notification"))
	}
	for _, line := range l.Unread {
		add("frames may lack names: %s", line)
	}
	if l.Impatient > 0 {
		add("%s printed without names, because looking them up took too long", plural(l.Impatient, "stack"))
	}
	return lines
}

// moreRoom returns how to give a map room for more keys. --map-size is for maps without a let.
func moreRoom(l exec.MapLosses) string {
	if l.Let {
		return fmt.Sprintf("write let %s = hash(%d), or lru(…)", l.Map, 4*l.MaxKeys)
	}
	return fmt.Sprintf("raise --map-size, or let %s = lru(…)", l.Map)
}

// mapLossLines describes which updates of a map were lost, and why.
func mapLossLines(l exec.MapLosses) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, l.Map+": "+fmt.Sprintf(format, args...)) }
	if l.Full > 0 {
		add("WARNING: Map full; can't update element: no room for %s beside %d keys (%s)", plural(l.Full, "update"), l.MaxKeys, moreRoom(l))
	}
	if l.NoMemory > 0 {
		add("no memory for %s: the kernel had none, or the strings of a map in user space take 64 MiB", plural(l.NoMemory, "update"))
	}
	if l.Busy > 0 {
		add("lost %s because others were changing the map at that moment", plural(l.Busy, "update"))
	}
	return lines
}

// ShowNegative prints what profiles leave out.
func (c *Console) ShowNegative(profiles []result.Profile) {
	for _, p := range profiles {
		if p.Negative > 0 {
			c.Note("%s: %s with a negative value left out of the profile", p.Map, plural(p.Negative, "key"))
		}
	}
}

// Summary returns what a page shows about a run.
func Summary(r run.Report) output.Summary {
	f := output.Summary{Host: r.Host, Kernel: r.Kernel, Began: r.Began, Ended: r.Ended}
	for _, info := range r.Recordings {
		f.Losses = append(f.Losses, lacks(info)...)
	}
	for _, path := range r.RemadeCgroups {
		f.Losses = append(f.Losses, remadeLine(path))
	}
	for _, l := range r.LeftOut {
		f.LeftOut = append(f.LeftOut, l.String())
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
	for _, p := range r.Probes {
		if p.Gaps > 0 {
			f.Losses = append(f.Losses, fmt.Sprintf("%s: no events in %s in which its programs were attached", p.Name, plural(p.Gaps, "period")))
		}
	}
	for _, l := range r.Maps {
		f.Losses = append(f.Losses, mapLossLines(l)...)
	}
	f.Losses = append(f.Losses, stackLossLines(r.Stacks, true)...)
	f.Losses = append(f.Losses, burstLines(r)...)
	f.Losses = append(f.Losses, cutLines(r)...)
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
