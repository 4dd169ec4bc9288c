package recording

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"trace/probes/event"
)

// Writer records events. Its methods may be called from several goroutines.
type Writer struct {
	path    string
	replace bool
	header  []byte
	// segmentBytes is the size at which a file of a ring ends; 0 means one file.
	segmentBytes int64
	segments     []string

	mu      sync.Mutex
	layouts map[int]layoutTimes           // by the ID in the appended records
	moments map[time.Duration]layoutTimes // of intervals, by the period
	block   pending
	blocks  chan pending
	free    chan []byte
	done    chan struct{}
	closed  bool

	// used by the goroutine that compresses and writes
	file    *os.File
	size    int64
	encoder *zstd.Encoder
	failure writeError
	names   Names
	wall    *event.WallClock
	numbers []numbers // places of numbers in records, by the written ID
	written writtenNames
	// sequence numbers the blocks of the file.
	sequence sequence
}

// layoutTimes is how records of a layout are written: with which ID, and where their time is.
type layoutTimes struct{ id, nsecs int }

// pending is a block that was not written yet.
type pending struct {
	block
	raw []byte
}

// writeError is the first error of the writing goroutine.
type writeError struct {
	mu  sync.Mutex
	err error
}

func (w *writeError) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *writeError) get() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// segmentCount is how many files a ring has.
const segmentCount = 8

// Options are how a recording is written.
type Options struct {
	// MaxBytes makes it a ring of files, path.1, path.2 and so on. The oldest are removed so that together they stay below MaxBytes; 0: one
	// file.
	MaxBytes int64
	// Replace allows replacing an existing recording.
	Replace bool
	// Wall is the clock of the machine, if it may be set: the times at which that happens are kept. It begins with [Header.Boot].
	Wall *event.WallClock
}

// Create begins a recording of events with these layouts, which must have the field nsecs. names, if not nil, provides the names of cgroups
// and stacks. The error is an [fs.ErrExist] if a file exists that must be replaced.
func Create(path string, o Options, h Header, layouts []*event.Layout, names Names) (*Writer, error) {
	maxBytes := o.MaxBytes
	header, err := describe(h, layouts).encode()
	if err != nil {
		return nil, err
	}
	w := &Writer{
		names: names, wall: o.Wall, written: newWrittenNames(),
		path: path, replace: o.Replace, header: header, segmentBytes: maxBytes / segmentCount, layouts: map[int]layoutTimes{}, moments: map[time.Duration]layoutTimes{},
		blocks: make(chan pending, 4), free: make(chan []byte, 6), done: make(chan struct{}),
	}
	if maxBytes > 0 && w.segmentBytes < int64(len(header))+blockBytes {
		return nil, fmt.Errorf("a ring of %d KiB is too small: use at least %d KiB", maxBytes>>10, segmentCount*(int64(len(header))+blockBytes)>>10+1)
	}
	for id, l := range layouts {
		times := layoutTimes{id: id, nsecs: -1}
		for _, pl := range l.Places() {
			if pl.Field.Name == "nsecs" {
				times.nsecs = pl.At
			}
		}
		if times.nsecs < 0 {
			return nil, fmt.Errorf("records of %s have no time", l.Probe)
		}
		w.layouts[l.ID] = times
		w.numbers = append(w.numbers, numbersOf(l))
	}
	for i, period := range h.Intervals {
		w.moments[period] = layoutTimes{id: len(layouts) + i, nsecs: momentTime}
		w.numbers = append(w.numbers, numbers{size: momentSize})
	}
	if w.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err != nil {
		return nil, err
	}
	if err := Check(path, o); err != nil {
		return nil, err
	}
	if maxBytes > 0 {
		if err := removeSegments(path); err != nil {
			return nil, err
		}
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	go w.write()
	return w, nil
}

// Segments returns the files of a ring, oldest first.
func Segments(path string) []string {
	found, _ := filepath.Glob(globEscape(path) + ".[0-9]*")
	number := func(name string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(name, path+"."))
		if err != nil {
			return -1
		}
		return n
	}
	var all []string
	for _, name := range found {
		if number(name) >= 0 {
			all = append(all, name)
		}
	}
	sort.Slice(all, func(i, j int) bool { return number(all[i]) < number(all[j]) })
	return all
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// open begins the next file.
func (w *Writer) open() error {
	name := w.path
	if w.segmentBytes > 0 {
		next := 1
		if n := len(w.segments); n > 0 {
			last, _ := strconv.Atoi(strings.TrimPrefix(w.segments[n-1], w.path+"."))
			next = last + 1
		}
		name = fmt.Sprintf("%s.%d", w.path, next)
	}
	file, err := begin(name, w.replace)
	if err != nil {
		return err
	}
	w.file, w.size = file, 0
	w.sequence = sequence{sum: binary.LittleEndian.Uint32(w.header[headerLength-4:])}
	w.written = newWrittenNames() // each file of a ring has the names of its own events
	if w.segmentBytes > 0 {
		w.segments = append(w.segments, name)
		if len(w.segments) >= segmentCount {
			if err := os.Remove(w.segments[0]); err != nil {
				return err
			}
			w.segments = w.segments[1:]
		}
	}
	return w.append(w.header)
}

// append writes all parts to the file, or, without room, none of them.
func (w *Writer) append(parts ...[]byte) error {
	at := w.size
	for _, p := range parts {
		n, err := w.file.Write(p)
		w.size += int64(n)
		if err != nil {
			w.size = at
			return errors.Join(err, w.file.Truncate(at))
		}
	}
	return nil
}

// Append records an event. It may return the error of an earlier write.
func (w *Writer) Append(e *event.Event) error {
	times, ok := w.layouts[e.Layout().ID]
	if !ok {
		return fmt.Errorf("a record of %s of an unknown layout", e.Probe)
	}
	return w.add(times, e.Record())
}

// Interval records that the clauses of an interval run; the header must list the interval.
func (w *Writer) Interval(period time.Duration, nsecs uint64) error {
	record := binary.LittleEndian.AppendUint64(make([]byte, momentTime, momentSize), nsecs)
	return w.add(w.moments[period], record)
}

// add adds a record to the current block.
func (w *Writer) add(times layoutTimes, record []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.block
	if b.raw == nil {
		b.kind = eventsBlock
		select {
		case b.raw = <-w.free:
		default:
			b.raw = make([]byte, 0, blockBytes+blockBytes/8)
		}
	}
	at := len(b.raw)
	b.raw = append(b.raw, record...)
	binary.LittleEndian.PutUint64(b.raw[at:], uint64(times.id))
	b.last = binary.LittleEndian.Uint64(record[times.nsecs:])
	if b.count == 0 {
		b.first = b.last
	}
	b.count++
	if len(b.raw) >= blockBytes {
		w.send()
	}
	return w.failure.get()
}

// send passes the current block to the writing goroutine.
func (w *Writer) send() {
	if w.block.count > 0 {
		w.blocks <- w.block
		w.block = pending{}
	}
}

// Flush ends the current block, so that its events are in the file whatever happens later.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.send()
	}
	return w.failure.get()
}

// Close writes what is left, the losses, and the end at nsecs.
func (w *Writer) Close(nsecs uint64, losses []Loss) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.send()
	text, err := json.Marshal(losses)
	if err != nil {
		return err
	}
	w.blocks <- pending{block: block{kind: lossesBlock, first: nsecs, last: nsecs}, raw: text}
	w.blocks <- pending{block: block{kind: endBlock, first: nsecs, last: nsecs}}
	close(w.blocks)
	<-w.done
	return errors.Join(w.failure.get(), w.file.Close())
}

// write compresses and writes blocks. After an error it drops the rest; Append returns the error.
func (w *Writer) write() {
	defer close(w.done)
	var stored []byte
	for p := range w.blocks {
		if w.failure.get() == nil {
			stored = stored[:0]
			if len(p.raw) > 0 {
				stored = w.encoder.EncodeAll(p.raw, stored)
			}
			if err := w.store(p, stored); err != nil {
				w.failure.set(err)
			}
		}
		if p.kind == eventsBlock {
			select {
			case w.free <- p.raw[:0]:
			default:
			}
		}
	}
}

func (w *Writer) store(p pending, stored []byte) error {
	next := w.sequence.next
	names, err := w.newNames(p)
	if err != nil {
		return err
	}
	if w.segmentBytes > 0 && w.size+int64(len(names)+len(stored)) > w.segmentBytes-blockHeader {
		w.sequence.next = next // these names come in the next file
		if err := errors.Join(w.append(w.endOf(p.first)), w.file.Close(), w.open()); err != nil {
			return err
		}
		if names, err = w.newNames(p); err != nil {
			return err
		}
	}
	p.block.raw, p.stored = uint32(len(p.raw)), uint32(len(stored))
	return w.append(names, w.sequence.encode(p.block, stored), stored)
}

// endOf returns the block that ends the file at a time.
func (w *Writer) endOf(nsecs uint64) []byte {
	return w.sequence.encode(block{kind: endBlock, first: nsecs, last: nsecs}, nil)
}

// Loss counts what was lost of the events of a probe while it was recorded, or, for stacks, of all events.
type Loss struct {
	// Probe is empty for losses of all events.
	Probe string `json:"probe"`
	// Lost is the number of events that are missing from the file.
	Lost uint64 `json:"lost"`
	// Unmatched events lack the fields of their beginning.
	Unmatched uint64 `json:"unmatched,omitempty"`
	// Gaps are periods in which events were not seen, nobody knows how many.
	Gaps uint64 `json:"gaps,omitempty"`
	// Stacks are missing from events, or have no known frames.
	Stacks uint64 `json:"stacks,omitempty"`
}

// Texts describes the losses, one text for each kind: 3 events of nvme:sq.
func (l Loss) Texts() []string {
	var all []string
	if l.Lost > 0 {
		all = append(all, counted(l.Lost, "event")+" of "+l.Probe)
	}
	if l.Gaps > 0 {
		all = append(all, "events of "+l.Probe+" in "+counted(l.Gaps, "period"))
	}
	if l.Stacks > 0 {
		all = append(all, counted(l.Stacks, "stack"))
	}
	return all
}

func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
