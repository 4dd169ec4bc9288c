package output

import (
	"fmt"
	"strings"
	"time"

	"trace/lang/format"
)

// This file writes the results of tests and benchmarks like bpftrace: as text in the way of googletest, and as JSON.

// A trialMark begins a line; a terminal shows it in its colour.
type trialMark struct{ text, colour string }

var (
	markRuns   = trialMark{"[==========] ", green}
	markBegun  = trialMark{"[ RUN      ] ", green}
	markOK     = trialMark{"[       OK ] ", green}
	markPassed = trialMark{"[  PASSED  ] ", green}
	markFailed = trialMark{"[  FAILED  ] ", red}
)

const green, red = "32", "31"

// marked appends a line with its mark.
func (p *pen) marked(m trialMark, format string, args ...any) {
	text := m.text
	if p.coloured {
		text = "\x1b[" + m.colour + "m" + strings.TrimSuffix(text, " ") + "\x1b[0m "
	}
	p.line = fmt.Appendf(append(p.line, text...), format+"\n", args...)
}

func (p *textForm) tested(results []Tested, all int) error {
	r := results[len(results)-1]
	p.line = p.line[:0]
	if len(results) == 1 {
		p.marked(markRuns, "Running %d tests.", all)
	}
	p.marked(markBegun, "%s", r.Name)
	mark := markOK
	if !r.Passed {
		mark = markFailed
		for line := range strings.Lines(r.Output) {
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				p.line = append(append(p.line, line...), '\n')
			}
		}
	}
	p.marked(mark, "%s (%s)", r.Name, wholeUnits(r.Took))
	if len(results) == all {
		p.verdict(results)
	}
	return p.flush()
}

// verdict appends how many tests passed, and the names of the others.
func (p *pen) verdict(results []Tested) {
	var failed []string
	for _, r := range results {
		if !r.Passed {
			failed = append(failed, r.Name)
		}
	}
	p.marked(markRuns, "%s ran.", tests(len(results)))
	p.marked(markPassed, "%s.", tests(len(results)-len(failed)))
	if len(failed) > 0 {
		p.marked(markFailed, "%s, listed below:", tests(len(failed)))
	}
	for _, name := range failed {
		p.marked(markFailed, "%s", name)
	}
}

func tests(n int) string {
	if n == 1 {
		return "1 test"
	}
	return fmt.Sprintf("%d tests", n)
}

// wholeUnits returns a duration as a whole number of its largest unit: 12 μs.
func wholeUnits(d time.Duration) string {
	unit, name := time.Nanosecond, "ns"
	switch {
	case d >= time.Second:
		unit, name = time.Second, "s"
	case d >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	case d >= time.Microsecond:
		unit, name = time.Microsecond, "μs"
	}
	return fmt.Sprintf("%d %s", d/unit, name)
}

// The widths of the columns of the table of benchmarks.
const (
	leastName = 40
	timeWidth = 15
)

func (p *textForm) measured(m Measured, names []string) error {
	width := leastName
	for _, name := range names {
		width = max(width, len(name))
	}
	p.line = p.line[:0]
	if !p.headed {
		p.headed = true
		head := fmt.Sprintf("%-*s%-*sIterations", width+1, "Benchmark", timeWidth, "Time(ns)")
		p.line = fmt.Appendf(p.line, "%s\n%s\n", head, strings.Repeat("-", len(head)))
	}
	p.line = fmt.Appendf(p.line, "%-*s%-*d%d\n", width+1, m.Name, timeWidth, m.Each.Nanoseconds(), m.Runs)
	return p.flush()
}

func (p *jsonForm) tested(results []Tested, _ int) error {
	r := results[len(results)-1]
	p.message("test_result")
	p.line = fmt.Appendf(format.AppendJSONString(append(p.line, '{'), r.Name), `:{"duration":%d,"passed":%t,"output":`, r.Took.Nanoseconds(), r.Passed)
	p.line = append(format.AppendJSONString(p.line, r.Output), "}}"...)
	return p.endMessage()
}

func (p *jsonForm) measured(m Measured, _ []string) error {
	p.message("benchmark_result")
	p.line = fmt.Appendf(format.AppendJSONString(append(p.line, '{'), m.Name), `:{"average":%d,"iters":%d}}`, m.Each.Nanoseconds(), m.Runs)
	return p.endMessage()
}
