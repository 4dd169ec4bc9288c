package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"trace/lang"
	"trace/lang/output"
	"trace/lang/result"
)

// document is output that is made at the end of a run, of what the maps hold then: folded stacks, a pprof profile or a page. A nil
// document is none.
type document struct {
	streams
	format output.Format
	source source
	args   []string // of the command line
	// exec and began are set when the run begins.
	exec  *lang.Run
	began time.Time

	mu      sync.Mutex
	history history
	// still says that no map has a course worth drawing.
	still   bool
	printed tail
}

// openDocument returns the document that the format asks for, if it does, and if it can be made of the program.
func openDocument(s streams, o options, src source, program *lang.Program) (*document, error) {
	format := o.format.Format
	switch {
	case !format.AtEnd():
		return nil, nil
	case o.compare:
		return nil, usagef("--compare compares what is printed while the program runs, and -f %s is made at its end", format)
	case format != output.HTML && len(program.Profiled()) == 0:
		return nil, usagef("-f %s needs a map whose key holds a stack and whose values add up, like trace -f %[1]s 'profile:99hz { @[kstack] = count() }'", format)
	case format != output.Folded && o.output == "" && isTerminal(s.out):
		return nil, usagef("-f %s is no text for a terminal: write it to a file with -o FILE", format)
	}
	return &document{streams: s, format: format, source: src, args: o.args, history: history{most: 240, merge: true, least: leastStep}}, nil
}

// begin tells when the run began.
func (d *document) begin(exec *lang.Run, now time.Time) {
	d.exec, d.began, d.history.began = exec, now, now
}

// through returns where the program prints what is not part of the document: a page shows its last lines, and so does the live view; else
// it is for the user. Of nil it is out.
func (d *document) through(out, user io.Writer, view *live) io.Writer {
	switch {
	case d == nil:
		return out
	case d.format == output.HTML:
		return io.MultiWriter(&d.printed, view.through(io.Discard))
	}
	return user
}

// watch notes once a second how the maps change, until ctx ends.
func (d *document) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.sample(now)
		}
	}
}

// leastStep is the shortest time between two samples.
const leastStep = 50 * time.Millisecond

// due tells whether it is time for a sample.
func (d *document) due(now time.Time) bool {
	if d == nil || d.format != output.HTML {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &d.history
	return !d.still && now.Sub(h.start(len(h.moments))) >= max(h.step, leastStep)
}

// beforeInterval takes a sample before the program empties a map.
func (d *document) beforeInterval(now time.Time) {
	if d != nil && d.format == output.HTML && now.Sub(d.last()) >= leastStep {
		d.sample(now)
	}
}

func (d *document) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.start(len(d.history.moments))
}

// sample notes what the maps hold now. An error is that of the end, too, when they are read again.
func (d *document) sample(now time.Time) {
	views, err := viewsOf(d.exec)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	views = slices.DeleteFunc(views, func(v view) bool { return !hasCourse(v) })
	d.still = len(views) == 0
	switch {
	case d.still:
	case len(d.history.moments) == 0 && !slices.ContainsFunc(views, hasValues): // the picture begins with the first value
		d.history.began = now
	default:
		d.history.add(now, views)
	}
}

func hasValues(v view) bool {
	return slices.ContainsFunc(v.Rows, func(r row) bool { return r.Number != 0 })
}

// passTo takes the sample that is due before a moment of a recording, and of a long time without events a second one at its end: what
// came before does not spread over it.
func (d *document) passTo(now time.Time) {
	step := max(d.history.step, leastStep)
	first := d.last().Add(step)
	d.sample(first)
	if now.Sub(first) > step {
		d.sample(now)
	}
}

// hasCourse tells whether it says something how the values of a map changed: counts only grow.
func hasCourse(v view) bool { return v.Course != result.NoCourse }

// facts are what a document says of the run.
type facts struct {
	Host, Kernel string
	Began, Ended time.Time
	Probes       []probeFact
	Losses       []string
}

// probeFact is what a page says of a probe. Rejected is nil where that is not counted.
type probeFact struct {
	Name, Variant string
	Events        uint64
	Rejected      *uint64
	Lost          uint64
}

// write makes the document.
func (d *document) write(w io.Writer, f facts) error {
	profiles, err := d.exec.Profiles()
	if err != nil {
		return err
	}
	for _, p := range profiles {
		if p.Negative > 0 {
			d.note("%s: %s with a value below 0 left out of the profile", p.Map, plural(p.Negative, "entry"))
		}
	}
	switch d.format {
	case output.Folded:
		return writeFolded(w, profiles)
	case output.Pprof:
		return writePprof(w, profiles, f.Began, f.Ended.Sub(f.Began))
	}
	d.sample(f.Ended)
	views, err := viewsOf(d.exec)
	if err != nil {
		return err
	}
	return writePage(w, d, f, views, profiles)
}

// mapLossNotes are the lines that tell what was lost in maps and of stacks.
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

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

// tailBytes is how much of it; tailLines is how many lines a page shows.
const (
	tailBytes = 64 << 10
	tailLines = 100
)

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-tailBytes):]...)
	if len(t.kept) > 2*tailBytes {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailBytes:]...)
	}
	return len(p), nil
}

// lines are the last ones, whole.
func (t *tail) lines() []string {
	kept := t.kept
	if len(kept) > tailBytes {
		kept = kept[len(kept)-tailBytes:]
	}
	lines := strings.Split(strings.TrimSuffix(string(kept), "\n"), "\n")
	return lines[max(0, len(lines)-tailLines):]
}
