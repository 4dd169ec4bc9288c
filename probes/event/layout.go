package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Layout of a record in the ring buffer: its ID as 64 bits, then the ranges of the event struct that hold its fields and their presence
// bits, then values that the code computed. The ranges have the same alignment in the record as in the struct.
type Layout struct {
	ID     int
	Probe  *Probe
	Fields []*Field
	// Size of the record in bytes, a multiple of 8.
	Size int
	// Partial records are followed by others with the same output of an event. Only the last of these counts as one that was read.
	Partial bool

	copies []Copy
	places []Place // of the fields, by their index in the probe
	slots  []slot  // of the values
}

// Copy is a range of a record: Size bytes at From in the event struct are at To in the record.
type Copy struct{ From, To, Size int }

// Place is where a field is in the record.
type Place struct {
	Field *Field
	// At is the offset of its value, in bytes.
	At int
	// HasAt is the offset of the byte with its presence bit, HasMask; without a mask the field is always present.
	HasAt   int
	HasMask uint8
	// Constant is the value in every record, if the records do not hold it; nil for a field of the records.
	Constant any
}

// slot is where a value is in the record.
type slot struct {
	typ                Type
	at, size, presence int
}

const recordHeader = 8

// NewLayout lays out records with the given ID: fields of the event, and computed values of these types.
func NewLayout(id int, p *Probe, fields []*Field, values []Type) *Layout {
	l := &Layout{ID: id, Probe: p, Fields: fields, Size: recordHeader, places: make([]Place, len(p.Fields))}
	parts := make(map[int]int) // where the range from an offset of the event is in the record
	for _, f := range fields {
		pl := Place{Field: f, At: l.addPart(parts, f.Offset, f.Type.Size)}
		if f.Optional {
			pl.HasAt, pl.HasMask = l.addPart(parts, f.Presence.Offset, 1), f.Presence.Mask
		}
		l.places[f.index] = pl
	}
	l.addValues(values)
	return l
}

func (l *Layout) addPart(parts map[int]int, from, size int) int {
	if to, there := parts[from]; there {
		return to
	}
	to := alignTo(l.Size, alignment(from))
	parts[from] = to
	l.copies = append(l.copies, Copy{From: from, To: to, Size: size})
	l.Size = to + size
	return to
}

// addValues appends the values, each aligned to 8 bytes, and then a byte for each that shows whether it is present.
func (l *Layout) addValues(values []Type) {
	l.Size = alignTo(l.Size, 8)
	for _, t := range values {
		s := slot{typ: t, at: l.Size, size: 8}
		if t.Kind == String || t.Kind == GID {
			s.size = max(t.Size, 1) // code for a string that is always empty writes its NUL
		}
		l.slots = append(l.slots, s)
		l.Size += alignTo(s.size, 8)
	}
	for i := range l.slots {
		l.slots[i].presence = l.Size + i
	}
	l.Size = alignTo(l.Size+len(l.slots), 8)
}

func alignTo(n, to int) int { return (n + to - 1) &^ (to - 1) }

// alignment returns the alignment of an offset: the largest power of two up to 8 that divides it.
func alignment(offset int) int {
	for a := 8; a > 1; a /= 2 {
		if offset%a == 0 {
			return a
		}
	}
	return 1
}

// Copies returns the ranges to copy from the event struct into the record. They do not overlap.
func (l *Layout) Copies() []Copy { return l.copies }

// Slot returns where value i is in the record: a number or Bool as 64 bits, a String or GID in the bytes of its type, rounded up to 8. The
// byte at presence is 1 if the value is present, otherwise 0.
func (l *Layout) Slot(i int) (offset, presence int) { return l.slots[i].at, l.slots[i].presence }

// Values returns how many computed values a record has.
func (l *Layout) Values() int { return len(l.slots) }

// Event is a record that was read. It is valid only until the next one is read.
type Event struct {
	Probe *Probe

	layout *Layout
	raw    []byte
}

// Clone returns a copy that stays valid.
func (e *Event) Clone() *Event { return &Event{e.Probe, e.layout, bytes.Clone(e.Record())} }

// Layout returns the layout of the record.
func (e *Event) Layout() *Layout { return e.layout }

// Get returns the value of a field as int64, uint64, bool or string, by the kind of its type. ok is false if the field is absent from this
// event, or not in its layout.
func (e *Event) Get(f *Field) (value any, ok bool) {
	if f.Of != nil {
		return nameOf(f, e)
	}
	if f.index >= len(e.layout.places) {
		return nil, false
	}
	p := e.layout.places[f.index]
	if p.Field != f || p.HasMask != 0 && e.raw[p.HasAt]&p.HasMask == 0 {
		return nil, false
	}
	if p.Constant != nil {
		return p.Constant, true
	}
	return decode(f.Type, e.raw[p.At:p.At+f.Type.Size]), true
}

// Value returns value i of the layout, in the same way. ok is false if it is absent.
func (e *Event) Value(i int) (value any, ok bool) {
	s := e.layout.slots[i]
	if e.raw[s.presence] == 0 {
		return nil, false
	}
	return decode(s.typ, e.raw[s.at:s.at+s.size]), true
}

func decode(t Type, raw []byte) any {
	switch t.Kind {
	case String:
		if end := bytes.IndexByte(raw, 0); end >= 0 {
			raw = raw[:end]
		}
		return string(raw)
	case GID:
		return string(raw)
	case Bool:
		return raw[0] != 0
	case Int:
		shift := 64 - 8*len(raw)
		return int64(unsigned(raw)<<shift) >> shift
	default:
		return unsigned(raw)
	}
}

// unsigned reads a little-endian integer of 1, 2, 4 or 8 bytes; amd64 and arm64 are little-endian.
func unsigned(raw []byte) uint64 {
	switch len(raw) {
	case 1:
		return uint64(raw[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(raw))
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw))
	default:
		return binary.LittleEndian.Uint64(raw)
	}
}

// ByID puts each layout at the place of its ID.
func ByID(layouts []*Layout) ([]*Layout, error) {
	var all []*Layout
	for _, l := range layouts {
		if l.ID < 0 || l.ID > maxLayoutID {
			return nil, fmt.Errorf("layout of %s has the ID %d, not one from 0 to %d", l.Probe, l.ID, maxLayoutID)
		}
		for len(all) <= l.ID {
			all = append(all, nil)
		}
		if all[l.ID] != nil {
			return nil, fmt.Errorf("layouts of %s and %s have the same ID %d", all[l.ID].Probe, l.Probe, l.ID)
		}
		all[l.ID] = l
	}
	return all, nil
}

// maxLayoutID bounds the table of layouts.
const maxLayoutID = 1<<16 - 1

// ShortError means that a record is shorter than its layout.
type ShortError struct {
	Layout *Layout
	// Bytes are what the record has.
	Bytes int
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("record %d of %s has %d bytes, expected %d", e.Layout.ID, e.Layout.Probe, e.Bytes, e.Layout.Size)
}

// Decode makes an event from a record of the generated code; its layout is one of layouts, which are sorted by ID. The event is valid as
// long as the record is.
func Decode(layouts []*Layout, sample []byte, e *Event) error {
	if len(sample) < recordHeader {
		return fmt.Errorf("record of %d bytes is too short", len(sample))
	}
	id := binary.LittleEndian.Uint64(sample)
	if id >= uint64(len(layouts)) || layouts[id] == nil {
		return fmt.Errorf("no layout for a record with the ID %d", id)
	}
	l := layouts[id]
	if len(sample) < l.Size {
		return &ShortError{l, len(sample)}
	}
	e.Probe, e.layout, e.raw = l.Probe, l, sample
	return nil
}
