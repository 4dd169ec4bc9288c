package recording

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"

	"trace/probes/event"
)

// file is a file that is being read.
type file struct {
	name    string
	index   int // among the files
	source  io.ReadCloser
	in      *bufio.Reader
	header  fileHeader
	decoder *zstd.Decoder
	// shift is added to the times of the events.
	shift uint64
	// boot is the index of the boot among the boots of all files.
	boot  int
	names *knownNames
	// wall learns how the clock was set; nil: it does not.
	wall *event.WallClock
	// renumbers means that numbers in events may differ from the numbers of the same names in all files.
	renumbers bool
	// stackNumbers map the numbers of its stacks to numbers that are unique among all files.
	stackNumbers map[uint64]uint64
	layouts      []*event.Layout // by ID
	times        []int           // where nsecs is in the records, by ID
	numbers      []numbers       // where numbers that have names are in the records, by ID

	start    start
	sequence sequence
	seen1    seenBlocks // of version 1
	ended    bool       // the block of the end was read

	at      int64 // where the next block begins
	stored  []byte
	records []byte // of the current block
	left    []byte // the part of records that was not read yet
	head    uint64 // time of the first event in left

	info Info
	// counts the events, by ID.
	counts []uint64
}

// Info is what the header and the blocks of a file contain.
type Info struct {
	Header
	Name string
	// Bytes is the size of the file, RawBytes the size of its events before compression.
	Bytes, RawBytes int64
	// Events by the probe.
	Events map[string]uint64
	Losses []Loss
	// First and Last are the times of the first and the last event in ns since boot; Ended is when the recording ended, 0 if it was cut
	// off.
	First, Last, Ended uint64
	// Cut means that the file has no end: the recording was killed, or the disk was full.
	Cut bool
}

// CorruptError means that a file does not hold what was written. What was read before it is intact.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at byte %d: %s", e.File, e.Offset, e.Reason)
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
	f := &file{name: name, source: source, in: bufio.NewReaderSize(source, 1<<16), stackNumbers: map[uint64]uint64{}}
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

// take reads the next record.
func (f *file) take(e *event.Event) error {
	if err := event.Decode(f.layouts, f.left, e); err != nil {
		return &CorruptError{f.name, f.at, err.Error()}
	}
	l := e.Layout()
	if f.shift != 0 {
		at := f.times[l.ID]
		binary.LittleEndian.PutUint64(f.left[at:], binary.LittleEndian.Uint64(f.left[at:])+f.shift)
	}
	if f.renumbers {
		if err := f.renumber(f.left, f.numbers[l.ID]); err != nil {
			return &CorruptError{f.name, f.at, err.Error()}
		}
	}
	f.left = f.left[l.Size:]
	return f.peek()
}

// peek reads the time of the next record.
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
	return &CorruptError{f.name, f.at, "a record that the header does not describe"}
}

// readEvents reads blocks until one has events. It returns io.EOF at the end.
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

// account counts the events of a block, and checks that their number matches its header.
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
		return &CorruptError{f.name, f.at, fmt.Sprintf("the header of a block promises %d events, the block has %d", b.count, n)}
	}
	if f.info.First == 0 {
		f.info.First = b.first
	}
	f.info.Last = b.last
	f.info.RawBytes += int64(b.raw)
	return nil
}

// readBlock reads a block and its payload, which is valid until the next call. A file that ends within a block, or without the end block,
// was cut off; that is its end.
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

// cut notes that the file has no end block.
func (f *file) cut(err error) error {
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	f.info.Cut = true
	return io.EOF
}
