package output

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"trace/lang/result"
)

// Document is output that is made at the end of a run from what the maps hold then: folded stacks, a pprof profile or a page. It is
// nil for other formats.
type Document struct {
	make func(d *Document, w io.Writer, f Summary, profiles []result.Profile) error
	// course reports that it shows how the maps changed, and what the program printed.
	course bool
	about  About
	// maps are set when the run begins.
	maps Maps

	mu      sync.Mutex
	history history
	// still reports that no map has a course worth drawing.
	still   bool
	printed tail
}

// About is what a page shows about the program.
type About struct {
	// Version is the version of trace, Command the command line.
	Version, Command string
	// Name of the script, or "".
	Name   string
	Params []Param
	// Program is the program's text if the command line does not have it.
	Program string
}

// Param is a param of the program with its value. Set reports that it is not the default.
type Param struct {
	Name, Value string
	Set         bool
}

func newDocument(make func(*Document, io.Writer, Summary, []result.Profile) error, course bool, about About) *Document {
	return &Document{make: make, course: course, about: about, history: history{most: 240, merge: true, least: leastStep}}
}

// Begin starts the document at the begin of the run, with its maps.
func (d *Document) Begin(maps Maps, now time.Time) {
	if d != nil {
		d.maps, d.history.began = maps, now
	}
}

// Through returns where the program prints text that is not part of the document. A page and the live view show its last lines.
// With other formats it goes to user. A nil document returns out.
func (d *Document) Through(out, user io.Writer, view *Live) io.Writer {
	switch {
	case d == nil:
		return out
	case d.course:
		return io.MultiWriter(&d.printed, view.Through(io.Discard))
	}
	return user
}

// Watch samples the maps once a second until ctx ends.
func (d *Document) Watch(ctx context.Context) {
	if d == nil {
		return
	}
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

// due reports whether it is time for a sample.
func (d *Document) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &d.history
	return !d.still && now.Sub(h.start(len(h.moments))) >= max(h.step, leastStep)
}

// BeforeInterval takes a sample before the program empties a map.
func (d *Document) BeforeInterval(now time.Time) {
	if d != nil && d.course && now.Sub(d.last()) >= leastStep {
		d.sample(now)
	}
}

func (d *Document) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.start(len(d.history.moments))
}

// sample notes what the maps hold now. It ignores errors: they occur again at the end, when the maps are read again.
func (d *Document) sample(now time.Time) {
	views, err := viewsOf(d.maps)
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

// PassTo takes the sample that is due before a moment of a recording. After a long time without events it takes a second one at the
// end of that time, so that earlier values do not spread over it.
func (d *Document) PassTo(now time.Time) {
	if d == nil || !d.course || !d.due(now) {
		return
	}
	step := max(d.history.step, leastStep)
	first := d.last().Add(step)
	d.sample(first)
	if now.Sub(first) > step {
		d.sample(now)
	}
}

// Summary is what a document shows about the run.
type Summary struct {
	Host, Kernel string
	Began, Ended time.Time
	Probes       []ProbeCount
	LeftOut      []string // probes that the run went on without, and why
	Losses       []string
}

// ProbeCount is what a page shows about a probe. Rejected is nil if rejected events are not counted.
type ProbeCount struct {
	Name, Variant string
	Events        uint64
	Rejected      *uint64
	Lost          uint64
}

// Write makes the document, including the profiles of the maps.
func (d *Document) Write(w io.Writer, f Summary, profiles []result.Profile) error {
	return d.make(d, w, f, profiles)
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

// tailBytes is how many bytes it keeps; tailLines is how many lines a page shows.
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

// lines returns the last lines that are complete.
func (t *tail) lines() []string {
	kept := t.kept
	if len(kept) > tailBytes {
		kept = kept[len(kept)-tailBytes:]
	}
	lines := strings.Split(strings.TrimSuffix(string(kept), "\n"), "\n")
	return lines[max(0, len(lines)-tailLines):]
}
