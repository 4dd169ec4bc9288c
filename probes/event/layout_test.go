package event

import (
	"encoding/binary"
	"strings"
	"testing"
)

// Values that are captured come back as they were; those whose presence bit is 0 are absent.
func TestDecode(t *testing.T) {
	p := NewProbe("a", "b", "", []Field{
		{Name: "num", Type: Type{Kind: Uint, Size: 4}, Offset: 4, Optional: true, Presence: Bit{60, 2}},
		{Name: "ret", Type: Type{Kind: Int, Size: 8, Unit: Errno}, Offset: 8},
		{Name: "small", Type: Type{Kind: Int, Size: 1}, Offset: 16},
		{Name: "flag", Type: Type{Kind: Bool, Size: 1}, Offset: 17},
		{Name: "text", Type: Type{Kind: String, Size: 8}, Offset: 24},
		{Name: "gid", Type: Type{Kind: GID, Size: 16}, Offset: 32},
		{Name: "other", Type: Type{Kind: Uint, Size: 8}, Offset: 48},
	})
	num, other := p.Fields[0], p.Fields[6]

	event := make([]byte, 64)
	binary.LittleEndian.PutUint32(event[4:], 0xfffffff0)
	binary.LittleEndian.PutUint64(event[8:], ^uint64(21))
	event[16], event[17] = 0x80, 1
	copy(event[24:], "ab\x00cd")
	copy(event[32:], "0123456789abcdef")

	l := NewLayout(1, p, p.Fields[:6], nil)
	for _, present := range []bool{true, false} {
		event[60] = 0xfd
		if present {
			event[60] = 0x02
		}
		record := make([]byte, l.Size)
		binary.LittleEndian.PutUint64(record, 1)
		for _, c := range l.Copies() {
			copy(record[c.To:], event[c.From:c.From+c.Size])
		}
		var e Event
		if err := Decode([]*Layout{nil, l}, record, &e); err != nil {
			t.Fatal(err)
		}
		want := []any{uint64(0xfffffff0), int64(-22), int64(-128), true, "ab", "0123456789abcdef"}
		for i, f := range l.Fields {
			v, ok := e.Get(f)
			if f == num && !present {
				if ok {
					t.Errorf("num is %v, want it absent", v)
				}
				continue
			}
			if !ok || v != want[i] {
				t.Errorf("%s: %v %v, want %v", f.Name, v, ok, want[i])
			}
		}
		for _, f := range []*Field{other, {Name: "stranger"}, {Name: "stranger", index: 100}} {
			if v, ok := e.Get(f); ok {
				t.Errorf("%s is %v, but not in the layout", f.Name, v)
			}
		}
	}
}

// Layouts and records that cannot be are refused, with the reason.
func TestLayoutErrors(t *testing.T) {
	p := NewProbe("a", "b", "", []Field{{Name: "x", Type: Type{Kind: Uint, Size: 8}, Offset: 8}})
	x := p.Fields[0]
	l := NewLayout(1, p, p.Fields, nil)
	byID := func(ids ...int) error {
		var all []*Layout
		for _, id := range ids {
			all = append(all, NewLayout(id, p, p.Fields, nil))
		}
		_, err := ByID(all)
		return err
	}
	decode := func(id uint64, size int) error {
		record := append(binary.LittleEndian.AppendUint64(nil, id), make([]byte, 64)...)
		return Decode([]*Layout{nil, l}, record[:size], new(Event))
	}
	recorded := func(place Place, values ...RecordedValue) error {
		_, err := NewRecordedLayout(1, p, 16, []Place{place}, values)
		return err
	}
	odd := NewProbe("a", "c", "", []Field{{Name: "y", Type: Type{Kind: Uint, Size: 3}, Offset: 8}})
	_, oddErr := NewRecordedLayout(1, odd, 16, []Place{{Field: odd.Fields[0], At: 8}}, nil)
	for want, err := range map[string]error{
		"field y: no value of its kind has 3 bytes":                               oddErr,
		"layouts of a:b and a:b have the same ID 1":                               byID(1, 1),
		"layout of a:b has the ID -1, not one from 0 to 65535":                    byID(-1),
		"record of 4 bytes is too short":                                          decode(1, 4),
		"no layout for a record with the ID 0":                                    decode(0, 16),
		"no layout for a record with the ID 2":                                    decode(2, 16),
		"record 1 of a:b has 12 bytes, expected 16":                               decode(1, 12),
		"a:b has no field y":                                                      recorded(Place{Field: &Field{Name: "y"}}),
		"field x of 8 bytes at 12 is not within a record of 16":                   recorded(Place{Field: x, At: 12}),
		"presence of field x at 16 is not within a record":                        recorded(Place{Field: x, At: 8, HasAt: 16, HasMask: 1}),
		"a value at 12 and its presence at 8 are not within a record of 16 bytes": recorded(Place{Field: x, At: 8}, RecordedValue{12, 8}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
