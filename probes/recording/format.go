// Package recording writes events to files and reads them again, on any machine.
//
// A file begins with the magic number and a header. The header describes the host and the records of each probe, with their fields, types,
// enums and places: nothing else is needed to read the file. Blocks follow. Each has its own checksum and is compressed separately; the
// last one marks a regular end:
//
//	file   = "trace recording\n" version:u32 length:u32 crc:u32 header:JSON { block }
//	block  = kind:u32 raw:u32 stored:u32 count:u32 first:u64 last:u64 number:u32 head:u32 crc:u32 payload
//	kind   = 1 events  { record }     a record is what event.Layout describes: the ID of its layout as u64, then the fields
//	       | 2 losses  JSON           what was lost until then
//	       | 3 end     no payload
//	       | 4 names   JSON           names of the numbers of cgroups and stacks that are new in the next events, and how the clock was set
//
// The header describes records for the moments at which interval clauses ran after the records of the probes.
//
// Numbers are little-endian. raw is the length of the payload, stored the length of its zstd frame in the file; count is the number of
// records, first and last are nsecs of the first and the last of them; number is the index of the block, from 0. Checksums are CRC-32C.
// head covers the block's header up to there, and continues from the checksum of the file's header; crc continues from head over the stored
// payload. So a block that is missing, repeated, or from another file is found. A file that ends within a block was cut off; what is before
// that is intact. Nothing follows the end block.
//
// Version 1 has neither number nor head, and its crc covers only the block.
package recording

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trace/probes/event"
)

const magic = "trace recording\n"

// Version of the format. A reader supports all versions up to its own.
const Version = 2

const (
	maxHeader = 4 << 20
	// maxBlock bounds what a block of a file can make a reader allocate.
	maxBlock = 16 << 20
	// blockBytes is the size at which a block of events ends. Smaller ones compress worse (NVMe events by 4 % at a quarter of it).
	blockBytes = 1 << 20
)

type blockKind uint32

const (
	eventsBlock blockKind = 1 + iota
	lossesBlock
	endBlock
	namesBlock
)

// Header describes where and when a recording was made.
type Header struct {
	Host   string `json:"host"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	// Program that selected the events.
	Program string `json:"program"`
	// Boot is when the machine was booted: nsecs of events counts from there.
	Boot time.Time `json:"boot"`
	// BootID identifies a boot of a machine; "" in old files.
	BootID string `json:"boot_id,omitempty"`
	// Started is when the recording began, in nsecs.
	Started uint64 `json:"started"`
	// Attached is when the last of the probes was attached, in nsecs: from then on all events were seen.
	Attached uint64 `json:"attached,omitempty"`
	// Intervals are the periods of the intervals whose moments are among the events, as records of probes like interval:1s.
	Intervals []time.Duration `json:"intervals,omitempty"`
	// SampleRate is the number of samples per second and CPU, 0 without samples.
	SampleRate int `json:"sample_rate,omitempty"`
	// Periods are the periods of readings, by probe.
	Periods map[string]time.Duration `json:"periods,omitempty"`
	// Count is at how many printed events the run ended, 0 if it did not end so. The file also has what had arrived by then.
	Count uint64 `json:"count,omitempty"`
	// LeftOut are probes of the program that were not traced. The file describes their records nevertheless.
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

// without reports whether a probe was left out.
func (h *Header) without(probe string) bool {
	return slices.ContainsFunc(h.LeftOut, func(l LeftOut) bool { return slices.Contains(l.Probes, probe) })
}

// LeftOut are probes that a run went on without, and why.
type LeftOut struct {
	Probes []string `json:"probes"`
	Why    string   `json:"why"`
}

func (l LeftOut) String() string { return strings.Join(l.Probes, ", ") + ": " + l.Why }

// readable makes a text one of a file, see isText.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	for len(text) > maxText {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}

// fileHeader is the header in a file.
type fileHeader struct {
	Header
	Records []recordDesc        `json:"records"`
	Enums   map[string]enumDesc `json:"enums"`
}

// recordDesc describes the records of a probe. Its index is the ID of the layout.
type recordDesc struct {
	Group  string      `json:"group"`
	Name   string      `json:"name"`
	Doc    string      `json:"doc"`
	Size   int         `json:"size"`
	Fields []fieldDesc `json:"fields"`
	// Stacks are where the numbers of kstack and ustack are, in this order; none if they were not recorded.
	Stacks []stackDesc `json:"stacks,omitempty"`
}

type stackDesc struct {
	At    int `json:"at"`
	HasAt int `json:"has_at"`
}

// recordedStacks counts kstack and ustack.
const recordedStacks = 2

type fieldDesc struct {
	Name    string `json:"name"`
	Doc     string `json:"doc"`
	Kind    string `json:"kind"`
	Size    int    `json:"size"`
	Unit    string `json:"unit,omitempty"`
	Enum    string `json:"enum,omitempty"`
	Common  bool   `json:"common,omitempty"`
	At      int    `json:"at"`
	HasAt   int    `json:"has_at,omitempty"`
	HasMask uint8  `json:"has_mask,omitempty"`
}

type enumDesc struct {
	Names  []string `json:"names"`
	Values []int64  `json:"values"`
	Flags  bool     `json:"flags,omitempty"`
}

// Names of kinds and units in files: they do not depend on the order of the constants.
var (
	kindNames = map[event.Kind]string{
		event.Int: "int", event.Uint: "uint", event.Bool: "bool", event.String: "string", event.GID: "gid",
	}
	unitNames = map[event.Unit]string{
		event.None: "", event.Nanoseconds: "ns", event.Bytes: "bytes", event.Errno: "errno", event.Cgroup: "cgroup", event.Hex: "hex",
		event.IP: "ip",
	}
	kinds = inverse(kindNames)
	units = inverse(unitNames)
)

func inverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

// describe makes the header of a file with records of these layouts.
func describe(h Header, layouts []*event.Layout) fileHeader {
	out := fileHeader{Header: h, Enums: map[string]enumDesc{}}
	out.LeftOut = slices.Clone(h.LeftOut)
	for i := range out.LeftOut {
		out.LeftOut[i].Why = readable(out.LeftOut[i].Why)
	}
	for _, l := range layouts {
		d := recordDesc{Group: l.Probe.Group, Name: l.Probe.Name, Doc: l.Probe.Doc, Size: l.Size}
		for _, pl := range l.Places() {
			t := pl.Field.Type
			f := fieldDesc{
				Name: pl.Field.Name, Doc: pl.Field.Doc, Kind: kindNames[t.Kind], Size: t.Size, Unit: unitNames[t.Unit],
				Common: pl.Field.Common, At: pl.At, HasAt: pl.HasAt, HasMask: pl.HasMask,
			}
			if t.Enum != nil && t.Unit != event.Cgroup { // the names of cgroups come with the events
				f.Enum = t.Enum.Name
				out.Enums[f.Enum] = enumDesc{t.Enum.Names, t.Enum.Values, t.Enum.Flags}
			}
			d.Fields = append(d.Fields, f)
		}
		for i := range min(l.Values(), recordedStacks) {
			at, hasAt := l.Slot(i)
			d.Stacks = append(d.Stacks, stackDesc{at, hasAt})
		}
		out.Records = append(out.Records, d)
	}
	for _, period := range h.Intervals {
		out.Records = append(out.Records, recordDesc{
			Group: intervalGroup, Name: period.String(), Doc: "an interval clause ran", Size: momentSize,
			Fields: []fieldDesc{{Name: "nsecs", Doc: "time since the boot", Kind: kindNames[event.Uint], Size: 8, Unit: unitNames[event.Nanoseconds], Common: true, At: momentTime}},
		})
	}
	return out
}

// The record of the moment of an interval is its ID and the time.
const (
	intervalGroup = "interval"
	momentTime    = 8
	momentSize    = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headerLength is the length of magic, version, length and crc.
const headerLength = len(magic) + 12

func (h fileHeader) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), magic...)
	out = binary.LittleEndian.AppendUint32(out, Version)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(text)))
	out = binary.LittleEndian.AppendUint32(out, headerSum(text))
	return append(out, text...), nil
}

var errNoRecording = errors.New("not a recording of trace")

// start is what comes before the header.
type start struct {
	version, length, sum uint32
}

func decodeStart(b []byte) (s start, err error) {
	if string(b[:len(magic)]) != magic {
		return s, errNoRecording
	}
	b = b[len(magic):]
	s = start{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])}
	if s.version == 0 || s.version > Version {
		return s, fmt.Errorf("recording of format %d, but this trace reads formats up to %d: use a newer trace", s.version, Version)
	}
	if s.length > maxHeader {
		return s, fmt.Errorf("corrupt: a header of %d bytes", s.length)
	}
	return s, nil
}

func decodeHeader(text []byte, sum uint32) (h fileHeader, err error) {
	if headerSum(text) != sum {
		return h, errors.New("corrupt: the checksum of the header is wrong")
	}
	if err := checkText(text); err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("corrupt: header: %w", err)
	}
	return h, h.check()
}

// field makes a field from its description.
func (h *fileHeader) field(d fieldDesc, enums map[string]*event.Enum, cgroups *event.Enum) (event.Field, error) {
	kind, ok := kinds[d.Kind]
	if !ok {
		return event.Field{}, fmt.Errorf("field %s has the kind %.64q, which this trace does not know: use a newer trace", d.Name, d.Kind)
	}
	unit, ok := units[d.Unit]
	if !ok {
		return event.Field{}, fmt.Errorf("field %s has the unit %.64q, which this trace does not know: use a newer trace", d.Name, d.Unit)
	}
	t := event.Type{Kind: kind, Size: d.Size, Unit: unit}
	if unit == event.Cgroup {
		t.Enum = cgroups
	} else if d.Enum != "" {
		e, ok := h.Enums[d.Enum]
		if !ok {
			return event.Field{}, fmt.Errorf("corrupt: no enum %.64q of field %s", d.Enum, d.Name)
		}
		if enums[d.Enum] == nil {
			enums[d.Enum] = &event.Enum{Name: d.Enum, Names: e.Names, Values: e.Values, Flags: e.Flags}
		}
		t.Enum = enums[d.Enum]
	}
	f := event.Field{Name: d.Name, Doc: d.Doc, Type: t, Common: d.Common, Optional: d.HasMask != 0}
	return f, checkType(d.Name, t)
}

// block is the header of a block.
type block struct {
	kind               blockKind
	raw, stored, count uint32
	first, last        uint64
}

// Lengths of the header of a block: before the checksums, and with them; the same for version 1.
const (
	blockFields  = 36
	blockHeader  = 44
	blockFields1 = 32
	blockHeader1 = 36
)

// sequence numbers the blocks of a file and continues its checksums.
type sequence struct {
	sum  uint32
	next uint32
}

// encode makes the header of the next block.
func (s *sequence) encode(b block, payload []byte) []byte {
	le := binary.LittleEndian
	out := make([]byte, 0, blockHeader)
	for _, v := range []uint32{uint32(b.kind), b.raw, b.stored, b.count} {
		out = le.AppendUint32(out, v)
	}
	out = le.AppendUint64(out, b.first)
	out = le.AppendUint64(out, b.last)
	out = le.AppendUint32(out, s.next)
	s.next++
	head := crc32.Update(s.sum, castagnoli, out)
	return le.AppendUint32(le.AppendUint32(out, head), crc32.Update(head, castagnoli, payload))
}

func headerSum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

// blockSum1 is the checksum of a block of version 1.
func blockSum1(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:blockFields1], castagnoli), castagnoli, payload)
}

func decodeBlock(b []byte) (block, error) {
	le := binary.LittleEndian
	out := block{
		kind: blockKind(le.Uint32(b)), raw: le.Uint32(b[4:]), stored: le.Uint32(b[8:]), count: le.Uint32(b[12:]),
		first: le.Uint64(b[16:]), last: le.Uint64(b[24:]),
	}
	if out.kind < eventsBlock || out.kind > namesBlock || out.raw > maxBlock || out.stored > maxBlock {
		return out, errors.New("no block begins here")
	}
	return out, nil
}
