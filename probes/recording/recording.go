package recording

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"trace/probes/event"
)

// Recording is one or more files, read as one stream of events. Only one goroutine may use it at a time.
//
// Files of several machines, or of several boots of one machine, are merged by time of day. nsecs then counts from the first boot, and
// every event has a field host.
type Recording struct {
	files    []*file
	probes   []*event.Probe
	untraced map[string]string
	names    *knownNames
	// boot is when the machine was booted; the first of several boots.
	boot time.Time
	wall *event.WallClock
	// waiting are the files with events left, the one with the earliest on top; nil before the first call of Next.
	waiting byTime
	event   event.Event
}

// Item is the next item of a recording: an event, or the moment of an interval.
type Item struct {
	// Time of the item, in nsecs.
	Time uint64
	// Event is valid until the next call of Next; nil for a moment.
	Event *event.Event
	// Interval is the period of the interval, 0 for an event.
	Interval time.Duration
}

// byTime is a heap of files by the time of their next event; with equal times the file that was named first comes first.
type byTime []*file

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return h[i].head < h[j].head || h[i].head == h[j].head && h[i].index < h[j].index
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(*file)) }
func (h *byTime) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Open opens recordings. The name of a ring stands for its files.
func Open(names ...string) (_ *Recording, err error) {
	r := &Recording{names: newKnownNames()}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if names, err = files(names); err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := openFile(name)
		if err != nil {
			return nil, err
		}
		r.files = append(r.files, f)
	}
	return r, r.unite()
}

// files replaces names of rings by the names of their files.
func files(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		_, err := os.Stat(name)
		if segments := Segments(name); errors.Is(err, fs.ErrNotExist) && len(segments) > 0 {
			all = append(all, segments...)
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	if len(all) == 0 {
		return nil, errors.New("no recording given")
	}
	return all, nil
}

// unite merges the catalogs of all files, and makes layouts of the files for the merged catalog.
func (r *Recording) unite() error {
	boots := bootsOf(r.files)
	r.boot = slices.MinFunc(boots, func(a, b Header) int { return a.Boot.Compare(b.Boot) }).Boot
	u := newUnion(r.names)
	for n, f := range r.files {
		f.index = n
		i := slices.IndexFunc(boots, func(b Header) bool { return sameBoot(b, f.header.Header) })
		f.names, f.boot, f.renumbers = r.names, i, len(r.files) > 1
		// Within a boot the clock of the events is the same, but the estimate of the time of boot may differ.
		f.shift = uint64(boots[i].Boot.Sub(r.boot))
		if err := u.add(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	r.setClock(boots)
	u.addHost(slices.ContainsFunc(boots, func(b Header) bool { return b.Host != boots[0].Host }))
	r.probes = u.make()
	for _, f := range r.files {
		if err := f.layOut(r.probes); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	all := r.leftOut(u)
	r.probes = slices.DeleteFunc(r.probes, func(p *event.Probe) bool { return p.Group == intervalGroup || all[p.String()] })
	return nil
}

// setClock makes the clock of the recording. Files of one boot may begin after the clock was set. Files of several boots keep the clocks with
// which they begin, because they are merged by these.
func (r *Recording) setClock(boots []Header) {
	if len(boots) > 1 {
		r.wall = event.NewWallClock(r.boot.Local())
		return
	}
	inOrder := slices.SortedStableFunc(slices.Values(r.files), func(a, b *file) int { return cmp.Compare(a.header.Started, b.header.Started) })
	r.wall = event.NewWallClock(inOrder[0].header.Boot.Local())
	for _, f := range inOrder {
		f.wall = r.wall
		r.wall.Set(event.Setting{From: f.header.Started, Boot: f.header.Boot})
	}
}

// Intervals returns the periods of the intervals whose moments are recorded: Next returns them like events. It returns none for several
// files.
func (r *Recording) Intervals() []time.Duration {
	if len(r.files) > 1 {
		return nil
	}
	return r.files[0].header.Intervals
}

// Count returns at how many printed events the run of the recording ended; 0 for several files.
func (r *Recording) Count() uint64 {
	if len(r.files) > 1 {
		return 0
	}
	return r.files[0].header.Count
}

// Probes returns the probes of the recording.
func (r *Recording) Probes() []*event.Probe { return r.probes }

// Untraced returns why probes were not traced that the recorded programs asked for, by their names. Those that some of the files have are among the
// probes, too.
func (r *Recording) Untraced() map[string]string { return r.untraced }

// leftOut notes which probes were not traced, and returns those that no file has.
func (r *Recording) leftOut(u *union) (all map[string]bool) {
	r.untraced, all = map[string]string{}, map[string]bool{}
	for _, f := range r.files {
		for _, l := range f.header.LeftOut {
			for _, name := range l.Probes {
				p := u.byName[name]
				switch why := fmt.Sprintf("in %s: %s", f.name, l.Why); {
				case p == nil || p.leftOut == p.in:
					r.untraced[name], all[name] = l.Why, true
				case r.untraced[name] == "":
					r.untraced[name] = why
				default:
					r.untraced[name] += "; " + why
				}
			}
		}
	}
	return all
}

// WallClock returns the clock of the machine, in the local time zone; of several boots, nsecs of the events counts from the first. As blocks
// are read, it learns how the clock was set.
func (r *Recording) WallClock() *event.WallClock { return r.wall }

// Started returns when the first of the recordings began, and Ended when the last one ended or had its last event, both in nsecs. Ended is
// known when all events were read.
func (r *Recording) Started() uint64 {
	started := r.files[0].header.Started + r.files[0].shift
	for _, f := range r.files {
		started = min(started, f.header.Started+f.shift)
	}
	return started
}

// Attached returns when the probes of all recordings were attached, in nsecs; 0 if a file does not contain it.
func (r *Recording) Attached() uint64 {
	var attached uint64
	for _, f := range r.files {
		if f.header.Attached != 0 {
			attached = max(attached, f.header.Attached+f.shift)
		}
	}
	return attached
}

// Ended: see Started.
func (r *Recording) Ended() uint64 {
	var ended uint64
	for _, f := range r.files {
		ended = max(ended, max(f.info.Ended, f.info.Last)+f.shift)
	}
	return ended
}

// Info returns what each file contains, as far as it was read.
func (r *Recording) Info() []Info {
	all := make([]Info, len(r.files))
	for i, f := range r.files {
		all[i] = f.info
		all[i].Events = map[string]uint64{}
		for id, n := range f.counts {
			if name := f.layouts[id].Probe.String(); n > 0 || !all[i].without(name) {
				all[i].Events[name] += n
			}
		}
	}
	return all
}

// Read returns how many bytes were read, and how many there are.
func (r *Recording) Read() (done, all int64) {
	for _, f := range r.files {
		done, all = done+f.at, all+f.info.Bytes
	}
	return done, all
}

// Next returns the next item. It returns io.EOF after the last event, and a *CorruptError if a file is not what was written.
func (r *Recording) Next() (Item, error) {
	if r.waiting == nil {
		if err := r.begin(); err != nil {
			return Item{}, err
		}
	}
	for len(r.waiting) > 0 {
		f := r.waiting[0]
		if len(f.left) == 0 { // only now: on a pipe, reading ahead would wait
			if err := r.advance(f); err != nil {
				return Item{}, err
			}
			continue
		}
		item := Item{Time: f.head}
		if err := f.take(&r.event); err != nil {
			return Item{}, err
		}
		if len(f.left) > 0 && len(r.waiting) > 1 {
			heap.Fix(&r.waiting, 0)
		}
		if item.Interval = f.periodOf(&r.event); item.Interval == 0 {
			item.Event = &r.event
			return item, nil
		}
		if len(r.files) == 1 {
			return item, nil
		}
	}
	return Item{}, io.EOF
}

// begin reads the first events of each file.
func (r *Recording) begin() error {
	r.waiting = make(byTime, 0, len(r.files))
	for _, f := range r.files {
		switch err := f.readEvents(); err {
		case nil:
			heap.Push(&r.waiting, f)
		case io.EOF:
		default:
			return err
		}
	}
	return nil
}

// advance reads the next events of the file on top.
func (r *Recording) advance(f *file) error {
	switch err := f.readEvents(); err {
	case nil:
		heap.Fix(&r.waiting, 0)
	case io.EOF:
		heap.Pop(&r.waiting)
	default:
		return err
	}
	return nil
}

// periodOf is the period if e is the moment of an interval.
func (f *file) periodOf(e *event.Event) time.Duration {
	if i := e.Layout().ID - (len(f.layouts) - len(f.header.Intervals)); i >= 0 {
		return f.header.Intervals[i]
	}
	return 0
}

// Close closes the files.
func (r *Recording) Close() error {
	var errs []error
	for _, f := range r.files {
		f.decoder.Close()
		errs = append(errs, f.source.Close())
	}
	return errors.Join(errs...)
}
