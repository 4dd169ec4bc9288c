package output

import (
	"fmt"
	"strings"
	"time"

	"trace/lang/format"
)

// This file writes the results of tests and benchmarks like bpftrace: as text in the way of googletest, and as JSON.

// The marks before the lines, in green and red.
const (
	markRuns   = "\x1b[32m[==========]\x1b[0m "
	markBegun  = "\x1b[32m[ RUN      ]\x1b[0m "
	markOK     = "\x1b[32m[       OK ]\x1b[0m "
	markPassed = "\x1b[32m[  PASSED  ]\x1b[0m "
	markFailed = "\x1b[31m[  FAILED  ]\x1b[0m "
)

func (p *textForm) tested(results []Tested, all int) error {
	r := results[len(results)-1]
	p.line = p.line[:0]
	if len(results) == 1 {
		p.line = fmt.Appendf(p.line, "%sRunning %d tests.\n", markRuns, all)
	}
	p.line = fmt.Appendf(p.line, "%s%s\n", markBegun, r.Name)
	mark := markOK
	if !r.Passed {
		mark = markFailed
		for line := range strings.Lines(r.Output) {
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				p.line = append(append(p.line, line...), '\n')
			}
		}
	}
	p.line = fmt.Appendf(p.line, "%s%s (%s)\n", mark, r.Name, wholeUnits(r.Took))
	if len(results) == all {
		p.line = appendVerdict(p.line, results)
	}
	return p.flush()
}

// appendVerdict appends how many tests passed, and the names of the others.
func appendVerdict(b []byte, results []Tested) []byte {
	var failed []string
	for _, r := range results {
		if !r.Passed {
			failed = append(failed, r.Name)
		}
	}
	b = fmt.Appendf(b, "%s%s ran.\n", markRuns, tests(len(results)))
	b = fmt.Appendf(b, "%s%s.\n", markPassed, tests(len(results)-len(failed)))
	if len(failed) > 0 {
		b = fmt.Appendf(b, "%s%s, listed below:\n", markFailed, tests(len(failed)))
	}
	for _, name := range failed {
		b = fmt.Appendf(b, "%s%s\n", markFailed, name)
	}
	return b
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
