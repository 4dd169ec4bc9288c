package probes

import (
	"encoding/binary"
	"testing"
)

// Values that are captured come back as they were; those whose presence bit is 0 are absent.
func TestDecode(t *testing.T) {
	p := &Probe{Group: "a", Name: "b", event: "a_b", size: 64}
	num := &Field{Name: "num", Type: Type{Kind: Uint, Size: 4}, offset: 4, Optional: true, has: hasBit{60, 2}}
	ret := &Field{Name: "ret", Type: Type{Kind: Int, Size: 8, Unit: Errno}, offset: 8}
	small := &Field{Name: "small", Type: Type{Kind: Int, Size: 1}, offset: 16}
	flag := &Field{Name: "flag", Type: Type{Kind: Bool, Size: 1}, offset: 17}
	text := &Field{Name: "text", Type: Type{Kind: String, Size: 8}, offset: 24}
	gid := &Field{Name: "gid", Type: Type{Kind: GID, Size: 16}, offset: 32}
	other := &Field{Name: "other", Type: Type{Kind: Uint, Size: 8}, offset: 48}
	p.Fields = []*Field{num, ret, small, flag, text, gid, other}
	for i, f := range p.Fields {
		f.index = i
	}

	event := make([]byte, p.size)
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
		var e Event
		if err := Decode([]*Layout{nil, l}, sampleOf(l, event), &e); err != nil {
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

// sampleOf does what the generated action does with the fields.
func sampleOf(l *Layout, event []byte) []byte {
	sample := make([]byte, l.Size)
	binary.LittleEndian.PutUint64(sample, uint64(l.ID))
	for _, c := range l.Copies() {
		copy(sample[c.To:], event[c.From:c.From+c.Size])
	}
	return sample
}

var valueTypes = []Type{
	{Kind: Int, Size: 4}, {Kind: Bool, Size: 1}, {Kind: String, Size: 13}, {Kind: GID, Size: 16}, {Kind: Uint, Size: 8},
}

// Numbers have 64 bits, whatever the size of their type; a value may be absent.
func TestValues(t *testing.T) {
	p := load(t).Match("syscall:enter")[0]
	l := NewLayout(0, p, p.Fields[:3], valueTypes)
	sample := make([]byte, l.Size)
	for i, bytes := range []string{"\xfe\xff\xff\xff\xff\xff\xff\xff", "\x01", "text\x00garbage", "0123456789abcdef", "\x07"} {
		offset, presence := l.Slot(i)
		copy(sample[offset:], bytes)
		sample[presence] = 1
	}
	var e Event
	if err := Decode([]*Layout{l}, sample, &e); err != nil {
		t.Fatal(err)
	}
	for i, want := range []any{int64(-2), true, "text", "0123456789abcdef", uint64(7)} {
		if v, ok := e.Value(i); !ok || v != want {
			t.Errorf("value %d: %v, %v, want %v", i, v, ok, want)
		}
	}
	_, presence := l.Slot(2)
	sample[presence] = 0
	if v, ok := e.Value(2); ok {
		t.Errorf("value 2 is %v, want it absent", v)
	}
}

// Parts never overlap, whatever fields are wanted.
func TestLayout(t *testing.T) {
	for _, p := range load(t).Probes() {
		for first := range p.Fields {
			for last := first + 1; last <= len(p.Fields); last += 3 {
				checkLayout(t, NewLayout(0, p, p.Fields[first:last], valueTypes))
			}
		}
	}
}

func checkLayout(t *testing.T, l *Layout) {
	t.Helper()
	used := make([]bool, l.Size)
	use := func(at, size int) {
		for i := at; i < at+size; i++ {
			if used[i] {
				t.Fatalf("%s, fields from %s on: byte %d belongs to two parts", l.Probe, l.Fields[0].Name, i)
			}
			used[i] = true
		}
	}
	use(0, recordHeader)
	for _, c := range l.Copies() {
		if alignment(c.From) > alignment(c.To) {
			t.Errorf("%s: %+v is less aligned in the record than in the event", l.Probe, c)
		}
		use(c.To, c.Size)
	}
	for i, typ := range valueTypes {
		offset, presence := l.Slot(i)
		if offset%8 != 0 {
			t.Errorf("%s: value %d is at %d", l.Probe, i, offset)
		}
		use(offset, align(typ.Size, 8))
		use(presence, 1)
	}
}

func TestLayoutIDs(t *testing.T) {
	p := load(t).Probes()[0]
	for name, ids := range map[string][]int{"same": {0, 3, 3}, "negative": {-1}, "huge": {1 << 40}} {
		var layouts []*Layout
		for _, id := range ids {
			layouts = append(layouts, NewLayout(id, p, nil, nil))
		}
		if _, err := byID(layouts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever stands in the ring buffer, reading it is an error or an event all of whose fields can be had.
func FuzzDecodeEvent(f *testing.F) {
	c := load(f)
	layouts := []*Layout{nil}
	for i, p := range c.Probes() {
		l := NewLayout(i+1, p, p.Fields, valueTypes)
		layouts = append(layouts, l)
		f.Add(sampleOf(l, make([]byte, p.size)))
	}
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, sample []byte) {
		var e Event
		if err := Decode(layouts, sample, &e); err != nil {
			return
		}
		for _, field := range e.Layout().Fields {
			if v, ok := e.Get(field); ok == (v == nil) {
				t.Errorf("%s %s: %v, %v", e.Probe, field.Name, v, ok)
			}
		}
		for i := range valueTypes {
			if v, ok := e.Value(i); ok == (v == nil) {
				t.Errorf("%s value %d: %v, %v", e.Probe, i, v, ok)
			}
		}
	})
}
