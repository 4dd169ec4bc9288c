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
	p.Fields = []*Field{num, ret, small, flag, text, gid}

	event := make([]byte, p.size)
	binary.LittleEndian.PutUint32(event[4:], 0xfffffff0)
	binary.LittleEndian.PutUint64(event[8:], ^uint64(21))
	event[16], event[17] = 0x80, 1
	copy(event[24:], "ab\x00cd")
	copy(event[32:], "0123456789abcdef")

	requests := []*request{{}, {Request: Request{Probe: p, Fields: p.Fields}, record: newRecord(1, p.Fields)}}
	for _, present := range []bool{true, false} {
		event[60] = 0xfd
		if present {
			event[60] = 0x02
		}
		var e Event
		if err := decodeEvent(sampleOf(requests[1].record, event), requests, &e); err != nil {
			t.Fatal(err)
		}
		want := []any{uint64(0xfffffff0), int64(-22), int64(-128), true, "ab", "0123456789abcdef"}
		for i, f := range p.Fields {
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
	}
}

// sampleOf does what the generated action does.
func sampleOf(r *record, event []byte) []byte {
	sample := make([]byte, r.size)
	binary.LittleEndian.PutUint64(sample, uint64(r.id))
	for _, p := range r.parts {
		copy(sample[r.place[p.from]:], event[p.from:p.from+p.size])
	}
	return sample
}

// Parts never overlap, whatever fields are wanted.
func TestRecordLayout(t *testing.T) {
	for _, p := range load(t).Probes() {
		for first := range p.Fields {
			for last := first + 1; last <= len(p.Fields); last += 3 {
				r := newRecord(0, p.Fields[first:last])
				used := make([]bool, r.size)
				for i := range recordHeader {
					used[i] = true
				}
				for _, part := range r.parts {
					at := r.place[part.from]
					for i := at; i < at+part.size; i++ {
						if used[i] {
							t.Fatalf("%s, fields %d to %d: byte %d belongs to two parts", p, first, last, i)
						}
						used[i] = true
					}
				}
			}
		}
	}
}

// Whatever stands in the ring buffer, reading it is an error or an event all of whose fields can be had.
func FuzzDecodeEvent(f *testing.F) {
	c := load(f)
	var requests []*request
	for i, p := range c.Probes() {
		requests = append(requests, &request{Request: Request{Probe: p, Fields: p.Fields}, record: newRecord(i, p.Fields)})
		f.Add(sampleOf(requests[i].record, make([]byte, p.size)))
	}
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, sample []byte) {
		var e Event
		if err := decodeEvent(sample, requests, &e); err != nil {
			return
		}
		for _, field := range e.Probe.Fields {
			if v, ok := e.Get(field); ok == (v == nil) {
				t.Errorf("%s %s: %v, %v", e.Probe, field.Name, v, ok)
			}
		}
	})
}
