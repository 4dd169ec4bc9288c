// Package recording keeps events in files and reads them again, on any machine.
//
// A file begins with the magic number and a header, which describes the host and the records of each probe: their fields, types,
// enums and places, so that a file needs nothing but itself to be read. Blocks follow, each with a checksum of its own and compressed
// by itself, and the last of them says that the recording ended in good order:
//
//	file   = "trace recording\n" version:u32 length:u32 crc:u32 header:JSON { block }
//	block  = kind:u32 raw:u32 stored:u32 count:u32 first:u64 last:u64 crc:u32 payload
//	kind   = 1 events  { record }     a record is what probes.Layout describes: the ID of its layout as u64, then the fields
//	       | 2 losses  JSON           what was lost until then
//	       | 3 end     no payload
//	       | 4 names   JSON           what the numbers of cgroups and stacks stand for that the next events have and none before had
//
// Records of the moments at which interval clauses ran are described after those of the probes.
//
// Numbers are little-endian. raw is the length of the payload, stored that of its zstd frame in the file; count is the number of
// records, first and last the times of the first and the last of them in nsecs; crc is CRC-32C, that of a block over its header and
// the stored payload. A file that ends within a block was cut off: what stands before is whole.
package recording

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"trace/probes"
)

const magic = "trace recording\n"

// Version of the format. A reader knows all versions up to its own.
const Version = 1

const (
	maxHeader = 16 << 20
	// maxBlock bounds what a block of a file can make a reader allocate.
	maxBlock = 16 << 20
	// blockBytes is when a block of events ends. Smaller ones compress worse (NVMe events by 4 % at a quarter of it).
	blockBytes = 1 << 20
)

type blockKind uint32

const (
	eventsBlock blockKind = 1 + iota
	lossesBlock
	endBlock
	namesBlock
)

// Header tells where and when a recording was made.
type Header struct {
	Host   string `json:"host"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	// Program that selected the events.
	Program string `json:"program"`
	// Boot is when the machine was booted: nsecs of events count from there.
	Boot time.Time `json:"boot"`
	// Started is when the recording began, as nsecs tells it.
	Started uint64 `json:"started"`
	// Attached is when the last of the probes was attached, as nsecs tells it: from then on all events were seen.
	Attached uint64 `json:"attached,omitempty"`
	// Intervals are the periods of the intervals whose moments are among the events, as records of probes like interval:1s.
	Intervals []time.Duration `json:"intervals,omitempty"`
}

// fileHeader is the header as it stands in a file.
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

// recordedStacks are kstack and ustack.
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

// Names of kinds and units in files: they outlive the order of the constants.
var (
	kindNames = map[probes.Kind]string{
		probes.Int: "int", probes.Uint: "uint", probes.Bool: "bool", probes.String: "string", probes.GID: "gid",
	}
	unitNames = map[probes.Unit]string{
		probes.None: "", probes.Nanoseconds: "ns", probes.Bytes: "bytes", probes.Errno: "errno", probes.Cgroup: "cgroup", probes.Hex: "hex",
		probes.IP: "ip",
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

// describe makes the header of a file that holds records of these layouts.
func describe(h Header, layouts []*probes.Layout) fileHeader {
	out := fileHeader{Header: h, Enums: map[string]enumDesc{}}
	for _, l := range layouts {
		d := recordDesc{Group: l.Probe.Group, Name: l.Probe.Name, Doc: l.Probe.Doc, Size: l.Size}
		for _, pl := range l.Places() {
			t := pl.Field.Type
			f := fieldDesc{
				Name: pl.Field.Name, Doc: pl.Field.Doc, Kind: kindNames[t.Kind], Size: t.Size, Unit: unitNames[t.Unit],
				Common: pl.Field.Common, At: pl.At, HasAt: pl.HasAt, HasMask: pl.HasMask,
			}
			if t.Enum != nil && t.Unit != probes.Cgroup { // the names of cgroups come with the events
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
			Fields: []fieldDesc{{Name: "nsecs", Doc: "time since the boot", Kind: kindNames[probes.Uint], Size: 8, Unit: unitNames[probes.Nanoseconds], Common: true, At: momentTime}},
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

// headerLength is that of magic, version, length and crc.
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

// decodeLength reads what precedes the header and returns its length and checksum.
func decodeLength(b []byte) (length int, sum uint32, err error) {
	if string(b[:len(magic)]) != magic {
		return 0, 0, errNoRecording
	}
	b = b[len(magic):]
	version, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if version == 0 || version > Version {
		return 0, 0, fmt.Errorf("recording of format %d, and this trace knows up to %d: use a newer trace", version, Version)
	}
	if n > maxHeader {
		return 0, 0, fmt.Errorf("corrupt: a header of %d bytes", n)
	}
	return int(n), binary.LittleEndian.Uint32(b[8:]), nil
}

func decodeHeader(text []byte, sum uint32) (h fileHeader, err error) {
	if headerSum(text) != sum {
		return h, errors.New("corrupt: the checksum of the header is wrong")
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("corrupt: header: %w", err)
	}
	if len(h.Intervals) > len(h.Records) {
		return h, fmt.Errorf("corrupt: %d intervals among %d kinds of records", len(h.Intervals), len(h.Records))
	}
	for _, r := range h.Records {
		if r.Size < 8 || r.Size > maxBlock {
			return h, fmt.Errorf("corrupt: records of %s:%s have %d bytes", r.Group, r.Name, r.Size)
		}
		if n := len(r.Stacks); n != 0 && n != recordedStacks {
			return h, fmt.Errorf("corrupt: records of %s:%s have %d stacks", r.Group, r.Name, n)
		}
	}
	return h, nil
}

// field makes the field that a description tells of.
func (h *fileHeader) field(d fieldDesc, enums map[string]*probes.Enum, cgroups *probes.Enum) (probes.Field, error) {
	kind, ok := kinds[d.Kind]
	if !ok {
		return probes.Field{}, fmt.Errorf("field %s is of the kind %q, which this trace does not know", d.Name, d.Kind)
	}
	unit, ok := units[d.Unit]
	if !ok {
		return probes.Field{}, fmt.Errorf("field %s has the unit %q, which this trace does not know", d.Name, d.Unit)
	}
	if d.Name == "" || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" {
		return probes.Field{}, fmt.Errorf("corrupt: %q is no name of a field", d.Name)
	}
	t := probes.Type{Kind: kind, Size: d.Size, Unit: unit}
	if unit == probes.Cgroup {
		t.Enum = cgroups
	} else if d.Enum != "" {
		e, ok := h.Enums[d.Enum]
		if !ok || len(e.Names) != len(e.Values) {
			return probes.Field{}, fmt.Errorf("corrupt: enum %s of field %s", d.Enum, d.Name)
		}
		if enums[d.Enum] == nil {
			enums[d.Enum] = &probes.Enum{Name: d.Enum, Names: e.Names, Values: e.Values, Flags: e.Flags}
		}
		t.Enum = enums[d.Enum]
	}
	return probes.Field{Name: d.Name, Doc: d.Doc, Type: t, Common: d.Common, Optional: d.HasMask != 0}, nil
}

// block is the header of a block.
type block struct {
	kind               blockKind
	raw, stored, count uint32
	first, last        uint64
	crc                uint32
}

const blockHeader = 36

// encode appends the header of a block, with the checksum over it and its payload.
func (b block) encode(payload []byte) []byte {
	var out []byte
	for _, v := range []uint32{uint32(b.kind), b.raw, b.stored, b.count} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	out = binary.LittleEndian.AppendUint64(out, b.first)
	out = binary.LittleEndian.AppendUint64(out, b.last)
	return binary.LittleEndian.AppendUint32(out, blockSum(out, payload))
}

func headerSum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

func blockSum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, payload)
}

func decodeBlock(b []byte) (block, error) {
	le := binary.LittleEndian
	out := block{
		kind: blockKind(le.Uint32(b)), raw: le.Uint32(b[4:]), stored: le.Uint32(b[8:]), count: le.Uint32(b[12:]),
		first: le.Uint64(b[16:]), last: le.Uint64(b[24:]), crc: le.Uint32(b[32:]),
	}
	if out.kind < eventsBlock || out.kind > namesBlock || out.raw > maxBlock || out.stored > maxBlock {
		return out, errors.New("no block begins here")
	}
	return out, nil
}
