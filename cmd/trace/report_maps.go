package main

import (
	"bytes"
	"fmt"
	"strings"

	"trace/lang"
	"trace/lang/output"
)

// writeDocument makes a document of what the maps hold.
func writeDocument(s streams, d *output.Document, exec *lang.Run, out *stream, f output.Facts) error {
	profiles, err := exec.Profiles()
	if err != nil {
		return err
	}
	for _, p := range profiles {
		if p.Negative > 0 {
			s.note("%s: %s with a value below 0 left out of the profile", p.Map, plural(p.Negative, "entry"))
		}
	}
	return d.Write(out, f, profiles)
}

// mapLossNotes are the lines that say what was lost in maps and of stacks.
func mapLossNotes(exec *lang.Run) ([]string, error) {
	var b bytes.Buffer
	if _, err := tellMaps(streams{err: &b}, true, exec); err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(line, "trace: "), "\n"))
	}
	return lines, nil
}

// tellMaps reports what could not be done in maps, and tells whether something was lost.
func tellMaps(s streams, quiet bool, exec *lang.Run) (lost bool, err error) {
	losses, err := exec.MapLosses()
	if err != nil {
		return false, err
	}
	for _, l := range losses {
		lost = lost || l.Lost() > 0
		for _, line := range mapLossLines(l) {
			s.note("%s", line)
		}
		if l.Absent > 0 && !quiet {
			s.note("%s: skipped %s, whose value was absent", l.Map, plural(l.Absent, "update"))
		}
	}
	lostStacks, err := tellStacks(s, quiet, exec)
	return lost || lostStacks, err
}

// tellStacks reports what is wrong with stacks, and tells whether something was lost.
func tellStacks(s streams, quiet bool, exec *lang.Run) (lost bool, err error) {
	l, err := exec.StackLosses()
	if err != nil {
		return false, err
	}
	if n := l.Full + l.NoMemory; n > 0 {
		lost = true
		s.note("stacks: no room for another one, %s: their frames are not known (raise --map-size)", plural(n, "time"))
	}
	if l.Busy > 0 {
		lost = true
		s.note("stacks: %s not captured, as others were being captured on that CPU", plural(l.Busy, "stack"))
	}
	if l.Failed > 0 {
		lost = true
		s.note("stacks: the kernel did not capture %s", plural(l.Failed, "stack"))
	}
	if l.Mappings > 0 && !quiet {
		s.note("stacks: %s about what processes map did not arrive; frames may lack their names for it", plural(l.Mappings, "note"))
	}
	for _, line := range l.Unread {
		s.note("stacks: frames may lack their names: %s", line)
	}
	if l.Impatient > 0 {
		s.note("stacks: %s printed without names, which took too long to look for", plural(l.Impatient, "stack"))
	}
	return lost, nil
}

// moreRoom says how a map gets more keys. --map-size is for those without a let.
func moreRoom(l lang.MapLosses) string {
	if l.Let {
		return fmt.Sprintf("write let %s = hash(%d), or lru(…)", l.Map, 4*l.Entries)
	}
	return fmt.Sprintf("raise --map-size, or let %s = lru(…)", l.Map)
}

// mapLossLines say which updates of a map were lost, and why.
func mapLossLines(l lang.MapLosses) []string {
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, l.Map+": "+fmt.Sprintf(format, args...)) }
	if l.Full > 0 {
		tell("no room for %s: the map is full with %d keys (%s)", plural(l.Full, "update"), l.Entries, moreRoom(l))
	}
	if l.NoMemory > 0 {
		tell("the kernel had no memory for %s", plural(l.NoMemory, "update"))
	}
	if l.Busy > 0 {
		tell("lost %s, as others were changing the map at that moment", plural(l.Busy, "update"))
	}
	return lines
}
