package probes

import (
	"encoding/binary"
	"testing"

	"trace/probes/event"
)

// sampleOf does what the generated action does with the fields.
func sampleOf(l *event.Layout, event []byte) []byte {
	sample := make([]byte, l.Size)
	binary.LittleEndian.PutUint64(sample, uint64(l.ID))
	for _, c := range l.Copies() {
		copy(sample[c.To:], event[c.From:c.From+c.Size])
	}
	return sample
}

var valueTypes = []event.Type{
	{Kind: event.Int, Size: 4}, {Kind: event.Bool, Size: 1}, {Kind: event.String, Size: 13}, {Kind: event.GID, Size: 16}, {Kind: event.Uint, Size: 8},
}

// Numbers have 64 bits, whatever the size of their type; a value may be absent.
func TestValues(t *testing.T) {
	p := load(t).Match("syscall:enter")[0]
	l := event.NewLayout(0, p, p.Fields[:3], valueTypes)
	sample := make([]byte, l.Size)
	for i, bytes := range []string{"\xfe\xff\xff\xff\xff\xff\xff\xff", "\x01", "text\x00garbage", "0123456789abcdef", "\x07"} {
		offset, presence := l.Slot(i)
		copy(sample[offset:], bytes)
		sample[presence] = 1
	}
	var e event.Event
	if err := event.Decode([]*event.Layout{l}, sample, &e); err != nil {
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
				checkLayout(t, event.NewLayout(0, p, p.Fields[first:last], valueTypes))
			}
		}
	}
}

func checkLayout(t *testing.T, l *event.Layout) {
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
	use(0, 8) // the ID
	for _, c := range l.Copies() {
		for _, a := range []int{2, 4, 8} {
			if c.From%a == 0 && c.To%a != 0 {
				t.Errorf("%s: %+v is less aligned in the record than in the event", l.Probe, c)
			}
		}
		use(c.To, c.Size)
	}
	for i, typ := range valueTypes {
		offset, presence := l.Slot(i)
		if offset%8 != 0 {
			t.Errorf("%s: value %d is at %d", l.Probe, i, offset)
		}
		use(offset, (typ.Size+7)&^7)
		use(presence, 1)
	}
}

func TestLayoutIDs(t *testing.T) {
	p := load(t).Probes()[0]
	for name, ids := range map[string][]int{"same": {0, 3, 3}, "negative": {-1}, "huge": {1 << 40}} {
		var layouts []*event.Layout
		for _, id := range ids {
			layouts = append(layouts, event.NewLayout(id, p, nil, nil))
		}
		if _, err := event.ByID(layouts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever stands in the ring buffer, reading it is an error or an event all of whose fields can be had.
func FuzzDecodeEvent(f *testing.F) {
	c := load(f)
	layouts := []*event.Layout{nil}
	for i, p := range c.Probes() {
		l := event.NewLayout(i+1, p, p.Fields, valueTypes)
		layouts = append(layouts, l)
		f.Add(sampleOf(l, make([]byte, p.Size)))
	}
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, sample []byte) {
		var e event.Event
		if err := event.Decode(layouts, sample, &e); err != nil {
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
