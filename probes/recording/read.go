package recording

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"trace/probes"
	"trace/probes/event"
)

// Recording is one or more files, read as one stream of events. One goroutine may use it.
//
// Files of several machines, or of several boots of one, are merged by the time of day. nsecs counts from the first of the boots then. Every
// event has a field host.
type Recording struct {
	files  []*file
	probes []*event.Probe
	next   *file // whose event was returned last
	names  *knownNames
	// boot is when the machine was booted, the first of them.
	boot time.Time
	now  uint64
	// period is that of the interval whose moment was returned last, 0 after an event.
	period time.Duration
}

// file is a file that is read.
type file struct {
	name    string
	source  io.ReadCloser
	in      *bufio.Reader
	header  fileHeader
	decoder *zstd.Decoder
	// shift is added to the times of the events.
	shift uint64
	// boot is added to the ids of cgroups, so that those of several boots are not the same.
	boot    uint64
	names   *knownNames
	layouts []*event.Layout // by ID
	times   []int           // where nsecs is in the records, by ID
	cgroups [][]int         // where ids of cgroups are in the records, by ID

	start    start
	sequence sequence
	seen1    seenBlocks // of version 1
	ended    bool       // the block of the end was read

	at      int64 // of what is read next
	stored  []byte
	records []byte // of the block at hand
	left    []byte // of it, not read yet
	head    uint64 // time of the event that left begins with

	info Info
	// counts the events, by ID.
	counts []uint64
}

// Info is what a file says of itself.
type Info struct {
	Header
	Name string
	// Bytes is the size of the file, RawBytes that of its events before compression.
	Bytes, RawBytes int64
	// Events by the probe.
	Events map[string]uint64
	Losses []Loss
	// First and Last are the times of the first and the last event; Ended is when the recording ended, 0 if it was cut off.
	First, Last, Ended uint64
	// Cut says that the file ends before its end was written: the recording was killed, or the disk was full.
	Cut bool
}

// CorruptError says that a file does not hold what was written. What was read before it is whole.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at byte %d: %s", e.File, e.Offset, e.Reason)
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

// files puts the files of rings in the place of their names.
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

func openFile(name string) (*file, error) {
	source, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	f, err := newFile(name, source)
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	if info, err := source.Stat(); err == nil {
		f.info.Bytes = info.Size()
	}
	return f, nil
}

// newFile reads the header of a file.
func newFile(name string, source io.ReadCloser) (*file, error) {
	f := &file{name: name, source: source, in: bufio.NewReaderSize(source, 1<<16)}
	begin := make([]byte, headerLength)
	if _, err := io.ReadFull(f.in, begin); err != nil {
		return nil, fmt.Errorf("%s: %w", name, errNoRecording)
	}
	var err error
	if f.start, err = decodeStart(begin); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n := int(f.start.length)
	text, err := io.ReadAll(io.LimitReader(f.in, int64(n)))
	if err == nil && len(text) < n {
		err = errors.New("corrupt: the file ends within its header")
	}
	if err == nil {
		f.header, err = decodeHeader(text, f.start.sum)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.at, f.sequence.sum = int64(headerLength+n), f.start.sum
	f.info = Info{Header: f.header.Header, Name: name}
	f.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	return f, err
}

// unite makes one catalog of those of all files, and the layouts of the files for it.
func (r *Recording) unite() error {
	boots := bootsOf(r.files)
	r.boot = slices.MinFunc(boots, func(a, b Header) int { return a.Boot.Compare(b.Boot) }).Boot
	u := newUnion(r.names)
	for _, f := range r.files {
		i := slices.IndexFunc(boots, func(b Header) bool { return sameBoot(b, f.header.Header) })
		f.names, f.boot = r.names, uint64(i)<<bootShift
		// In one boot the clock of the events did not change, but the estimate of when that was may have.
		f.shift = uint64(boots[i].Boot.Sub(r.boot))
		if err := u.add(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	u.addHost(slices.ContainsFunc(boots, func(b Header) bool { return b.Host != boots[0].Host }))
	r.probes = u.make()
	for _, f := range r.files {
		if err := f.layOut(r.probes); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	r.probes = slices.DeleteFunc(r.probes, func(p *event.Probe) bool { return p.Group == intervalGroup })
	return probes.Describe(r.probes)
}

// bootsOf returns a header of each boot that files are of.
func bootsOf(files []*file) (boots []Header) {
	for _, f := range files {
		if !slices.ContainsFunc(boots, func(b Header) bool { return sameBoot(b, f.header.Header) }) {
			boots = append(boots, f.header.Header)
		}
	}
	return boots
}

// leastReboot is less than a machine takes to boot.
const leastReboot = 2 * time.Second

// sameBoot tells whether two files are of one boot of one machine. Old files do not say so: then it is one of a name, and of a kernel, unless
// it can have been booted between them. The machine was up when the first recording began; before that it was not booted again.
func sameBoot(a, b Header) bool {
	if a.BootID != "" && b.BootID != "" {
		return a.BootID == b.BootID
	}
	if a.Boot.After(b.Boot) {
		a, b = b, a
	}
	up := max(time.Duration(min(a.Started, 1<<62)), leastReboot)
	return a.Host == b.Host && a.Kernel == b.Kernel && b.Boot.Sub(a.Boot) < up
}

// Intervals are the periods of the intervals whose moments are recorded: Next returns them like events. Of several files, none are.
func (r *Recording) Intervals() []time.Duration {
	if len(r.files) > 1 {
		return nil
	}
	return r.files[0].header.Intervals
}

// Interval is the period of the interval whose moment Next returned last, 0 if that was an event.
func (r *Recording) Interval() time.Duration { return r.period }

// bootShift is where the number of the boot is in the id of a cgroup: kernels count them from 1.
const bootShift = 48

// union gathers the probes of several files.
type union struct {
	enums   map[string]*event.Enum
	cgroups *event.Enum
	probes  []*recordedProbe
	byName  map[string]*recordedProbe
}

func newUnion(names *knownNames) *union {
	return &union{enums: map[string]*event.Enum{}, cgroups: event.NewCgroupEnum(names), byName: map[string]*recordedProbe{}}
}

type recordedProbe struct {
	recordDesc
	fields []event.Field
	// in counts the files that have the probe, and seen those that have each field.
	in   int
	seen map[string]int
	// at is where a field is among the fields.
	at map[string]int
}

func (u *union) add(f *file) error {
	for _, d := range f.header.Records {
		p := u.byName[d.Group+":"+d.Name]
		if p == nil {
			p = &recordedProbe{recordDesc: d, seen: map[string]int{}, at: map[string]int{}}
			u.probes, u.byName[d.Group+":"+d.Name] = append(u.probes, p), p
		}
		p.in++
		for _, fd := range d.Fields {
			field, err := f.header.field(fd, u.enums, u.cgroups)
			if err != nil {
				return fmt.Errorf("%s:%s: %w", d.Group, d.Name, err)
			}
			if err := p.addField(field); err != nil {
				return fmt.Errorf("%s:%s: %w", d.Group, d.Name, err)
			}
		}
	}
	return nil
}

func (p *recordedProbe) addField(f event.Field) error {
	p.seen[f.Name]++
	i, known := p.at[f.Name]
	if !known {
		p.at[f.Name] = len(p.fields)
		p.fields = append(p.fields, f)
		return nil
	}
	before := &p.fields[i]
	if before.Type.Kind != f.Type.Kind || before.Type.Unit != f.Type.Unit || before.Type.Size != f.Type.Size {
		return fmt.Errorf("field %s is of another type than in the files before: read the files one by one", f.Name)
	}
	before.Optional = before.Optional || f.Optional
	return nil
}

// hostSize is room for a host name (HOST_NAME_MAX of Linux is 64).
const hostSize = 64

// addHost adds a field of all events. Where it is the same of all of them, lines of text do without.
func (u *union) addHost(several bool) {
	field := event.Field{Name: hostField, Doc: "host on which it was recorded", Type: event.Type{Kind: event.String, Size: hostSize}, Common: true}
	if !several {
		field.Line.Shown = event.Verbose
	}
	for _, p := range u.probes {
		p.fields = append(p.fields, field)
		p.seen[hostField] = p.in
	}
}

const hostField = "host"

// make returns the probes. A field that some of the files lack is optional.
func (u *union) make() []*event.Probe {
	var all []*event.Probe
	for _, p := range u.probes {
		for i := range p.fields {
			f := &p.fields[i]
			f.Optional = f.Optional || p.seen[f.Name] < p.in
		}
		all = append(all, event.NewProbe(p.Group, p.Name, p.Doc, p.fields))
	}
	slices.SortFunc(all, func(a, b *event.Probe) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return all
}

// layOut finds the fields of the united probes in the records of the file.
func (f *file) layOut(catalog []*event.Probe) error {
	byName := map[string]*event.Probe{}
	for _, p := range catalog {
		byName[p.String()] = p
	}
	for id, d := range f.header.Records {
		p := byName[d.Group+":"+d.Name]
		fields := map[string]*event.Field{}
		for _, field := range p.Fields {
			fields[field.Name] = field
		}
		nsecs := -1
		var places []event.Place
		var cgroups []int
		for _, fd := range d.Fields {
			field := fields[fd.Name]
			places = append(places, event.Place{Field: field, At: fd.At, HasAt: fd.HasAt, HasMask: fd.HasMask})
			if fd.Name == "nsecs" && field.Type.Size == 8 {
				nsecs = fd.At
			}
			if field.Type.Unit == event.Cgroup && field.Type.Size == 8 {
				cgroups = append(cgroups, fd.At)
			}
		}
		places = append(places, event.Place{Field: fields[hostField], Constant: f.header.Host})
		var values []event.RecordedValue
		for _, s := range d.Stacks {
			values = append(values, event.RecordedValue(s))
		}
		l, err := event.NewRecordedLayout(id, p, d.Size, places, values)
		if err != nil {
			return fmt.Errorf("corrupt: %s: %w", p, err)
		}
		if nsecs < 0 {
			return fmt.Errorf("corrupt: events of %s have no time", p)
		}
		f.layouts, f.times, f.cgroups = append(f.layouts, l), append(f.times, nsecs), append(f.cgroups, cgroups)
	}
	f.counts = make([]uint64, len(f.layouts))
	return nil
}

// Probes are those of the recording.
func (r *Recording) Probes() []*event.Probe { return r.probes }

// Boot is when the machine was booted, the first of several: nsecs of the events count from there.
func (r *Recording) Boot() time.Time { return r.boot }

// Started is when the first of the recordings began, and Ended when the last of them did or its last event was, as nsecs tells it.
// Ended is known when all events were read.
func (r *Recording) Started() uint64 {
	started := r.files[0].header.Started + r.files[0].shift
	for _, f := range r.files {
		started = min(started, f.header.Started+f.shift)
	}
	return started
}

// Attached is when the probes of all recordings were attached, as nsecs tells it; 0 in files that do not say so.
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

// Info of each file, as far as it was read.
func (r *Recording) Info() []Info {
	all := make([]Info, len(r.files))
	for i, f := range r.files {
		all[i] = f.info
		all[i].Events = map[string]uint64{}
		for id, n := range f.counts {
			all[i].Events[f.layouts[id].Probe.String()] += n
		}
	}
	return all
}

// Read returns how many bytes of how many were read.
func (r *Recording) Read() (done, all int64) {
	for _, f := range r.files {
		done, all = done+f.at, all+f.info.Bytes
	}
	return done, all
}

// Next reads the next event, which is valid until the next call. It returns io.EOF after the last one, and a *CorruptError where a file
// is not what was written.
func (r *Recording) Next(e *event.Event) error {
	for {
		if err := r.read(e); err != nil {
			return err
		}
		if r.period = r.next.periodOf(e); r.period == 0 || len(r.files) == 1 {
			return nil
		}
	}
}

// periodOf is the period if e is the moment of an interval.
func (f *file) periodOf(e *event.Event) time.Duration {
	if i := e.Layout().ID - (len(f.layouts) - len(f.header.Intervals)); i >= 0 {
		return f.header.Intervals[i]
	}
	return 0
}

// read reads the next record.
func (r *Recording) read(e *event.Event) error {
	if r.next != nil && len(r.next.left) > 0 && len(r.files) == 1 {
		return r.take(e)
	}
	r.next = nil
	for _, f := range r.files {
		if len(f.left) == 0 {
			if err := f.readEvents(); err == io.EOF {
				continue
			} else if err != nil {
				return err
			}
		}
		if r.next == nil || f.head < r.next.head {
			r.next = f
		}
	}
	if r.next == nil {
		return io.EOF
	}
	return r.take(e)
}

func (r *Recording) take(e *event.Event) error {
	r.now = r.next.head
	return r.next.take(e)
}

// take takes the first record of those that are left.
func (f *file) take(e *event.Event) error {
	if err := event.Decode(f.layouts, f.left, e); err != nil {
		return &CorruptError{f.name, f.at, err.Error()}
	}
	l := e.Layout()
	if f.shift != 0 {
		at := f.times[l.ID]
		binary.LittleEndian.PutUint64(f.left[at:], binary.LittleEndian.Uint64(f.left[at:])+f.shift)
	}
	if f.boot != 0 {
		for _, at := range f.cgroups[l.ID] {
			binary.LittleEndian.PutUint64(f.left[at:], f.cgroup(binary.LittleEndian.Uint64(f.left[at:])))
		}
	}
	f.left = f.left[l.Size:]
	return f.peek()
}

// cgroup is the id that stands for one of the file's boot.
func (f *file) cgroup(id uint64) uint64 {
	if id == 0 {
		return 0
	}
	return id | f.boot
}

// peek learns the time of the record that is next.
func (f *file) peek() error {
	if len(f.left) == 0 {
		return nil
	}
	if len(f.left) >= 8 {
		if id := binary.LittleEndian.Uint64(f.left); id < uint64(len(f.times)) && len(f.left) >= f.layouts[id].Size {
			f.head = binary.LittleEndian.Uint64(f.left[f.times[id]:]) + f.shift
			return nil
		}
	}
	return &CorruptError{f.name, f.at, "a record of a kind that the header does not describe"}
}

// readEvents reads blocks until one has events. io.EOF is the end.
func (f *file) readEvents() error {
	for len(f.left) == 0 {
		b, payload, err := f.readBlock()
		if err != nil {
			return err
		}
		switch b.kind {
		case endBlock:
			f.info.Ended, f.ended = b.last, true
			if err := f.atEnd(); err != nil {
				return err
			}
		case lossesBlock:
			if err := json.Unmarshal(payload, &f.info.Losses); err != nil {
				return &CorruptError{f.name, f.at, "losses: " + err.Error()}
			}
		case namesBlock:
			if err := f.learn(payload); err != nil {
				return &CorruptError{f.name, f.at, "names: " + err.Error()}
			}
		case eventsBlock:
			f.records, f.left = payload, payload
			if err := f.account(b); err != nil {
				return err
			}
			if err := f.peek(); err != nil {
				return err
			}
		}
	}
	return nil
}

// account counts the events of a block, and finds out whether it holds as many as it says.
func (f *file) account(b block) error {
	rest := f.left
	var n uint32
	for len(rest) >= 8 {
		id := binary.LittleEndian.Uint64(rest)
		if id >= uint64(len(f.layouts)) || len(rest) < f.layouts[id].Size {
			break
		}
		rest = rest[f.layouts[id].Size:]
		f.counts[id]++
		n++
	}
	if f.start.version == 1 {
		if err := f.seen1.check(b); err != nil {
			f.left = nil
			return &CorruptError{f.name, f.at, err.Error()}
		}
	}
	if len(rest) > 0 || n != b.count {
		f.left = nil
		return &CorruptError{f.name, f.at, fmt.Sprintf("a block of %d events holds %d", b.count, n)}
	}
	if f.info.First == 0 {
		f.info.First = b.first
	}
	f.info.Last = b.last
	f.info.RawBytes += int64(b.raw)
	return nil
}

// readBlock reads a block and its payload, which is valid until the next call. A file that ends within a block, or without the block
// that is the last, was cut off; that is its end.
func (f *file) readBlock() (block, []byte, error) {
	if f.ended || f.info.Cut {
		return block{}, nil, io.EOF
	}
	header, err := f.readBlockHeader()
	if err != nil {
		return block{}, nil, err
	}
	b, err := decodeBlock(header)
	if err != nil {
		return b, nil, &CorruptError{f.name, f.at, err.Error()}
	}
	f.stored = slices.Grow(f.stored[:0], int(b.stored))[:b.stored]
	if n, err := io.ReadFull(f.in, f.stored); err != nil {
		if f.start.version == 1 && isFlipped1(header, f.stored[:n]) {
			return b, nil, &CorruptError{f.name, f.at, "the length of a block is damaged"}
		}
		return b, nil, f.cut(err)
	}
	if !f.isWhole(header) {
		return b, nil, &CorruptError{f.name, f.at, "the checksum of a block is wrong"}
	}
	if b.kind == lossesBlock && b.raw > maxLosses {
		return b, nil, &CorruptError{f.name, f.at, "more losses than there are probes"}
	}
	var payload []byte
	if b.stored > 0 {
		payload, err = f.decoder.DecodeAll(f.stored, f.records[:0])
	}
	if err != nil || len(payload) != int(b.raw) {
		return b, nil, &CorruptError{f.name, f.at, "a block cannot be decompressed"}
	}
	f.at += int64(len(header)) + int64(b.stored)
	return b, payload, nil
}

// maxLosses bounds a block of losses: there is one for each probe.
const maxLosses = 1 << 20

// cut notes that the file has no end.
func (f *file) cut(err error) error {
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	f.info.Cut = true
	return io.EOF
}

// Time of the event that Next returned last, as nsecs tells it.
func (r *Recording) Time() uint64 { return r.now }

// Close closes the files.
func (r *Recording) Close() error {
	var errs []error
	for _, f := range r.files {
		f.decoder.Close()
		errs = append(errs, f.source.Close())
	}
	return errors.Join(errs...)
}
