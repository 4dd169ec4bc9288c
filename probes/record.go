package probes

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A record in the ring buffer is the number of its request, as 64 bits, and then the wanted parts of the event struct. A part is
// a field or the byte of a presence bit; parts lie in the record as aligned as they do in the struct.
type record struct {
	id    int
	size  int
	parts []part
	place map[int]int // of the part at an offset of the struct: its offset in the record
}

type part struct {
	from, size int // in the event struct
}

const recordHeader = 8

// newRecord lays out the record of a request.
func newRecord(id int, fields []*Field) *record {
	r := &record{id: id, size: recordHeader, place: make(map[int]int)}
	for _, f := range fields {
		r.add(part{f.offset, f.Type.Size})
		if f.Optional {
			r.add(part{f.has.offset, 1})
		}
	}
	r.size = align(r.size, 8)
	return r
}

func (r *record) add(p part) {
	if _, there := r.place[p.from]; there {
		return
	}
	r.size = align(r.size, alignment(p.from))
	r.place[p.from] = r.size
	r.parts = append(r.parts, p)
	r.size += p.size
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// alignment of an offset: the largest power of two up to 8 that divides it.
func alignment(offset int) int {
	for a := 8; a > 1; a /= 2 {
		if offset%a == 0 {
			return a
		}
	}
	return 1
}

// Event is a record that was read. It is valid only until the next one is.
type Event struct {
	Probe *Probe

	layout *record
	raw    []byte
}

// Get returns the value of a field as int64, uint64, bool or string, by the kind of its type. ok is false if the field is absent
// from this event. The field must be one of the request's.
func (e *Event) Get(f *Field) (value any, ok bool) {
	if f.Optional && e.raw[e.layout.place[f.has.offset]]&f.has.mask == 0 {
		return nil, false
	}
	at := e.layout.place[f.offset]
	return decode(f.Type, e.raw[at:at+f.Type.Size]), true
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

// decodeEvent finds the request that a sample of the ring buffer belongs to.
func decodeEvent(sample []byte, requests []*request, e *Event) error {
	if len(sample) < recordHeader {
		return fmt.Errorf("record of %d bytes is too short", len(sample))
	}
	id := binary.LittleEndian.Uint64(sample)
	if id >= uint64(len(requests)) {
		return fmt.Errorf("record is of request %d, there are %d", id, len(requests))
	}
	r := requests[id]
	if len(sample) < r.record.size {
		return fmt.Errorf("record of %s has %d bytes, expected %d", r.Probe, len(sample), r.record.size)
	}
	e.Probe, e.layout, e.raw = r.Probe, r.record, sample
	return nil
}

const ringName = "events"

// action returns the function X_action(ctx, e): it writes the record, or counts it as lost.
func (r *record) action(p *Probe) asm.Instructions {
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.LoadMapPtr(asm.R1, 0).WithReference(ringName),
		asm.Mov.Imm(asm.R2, int32(r.size)),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "full"),
		asm.Mov.Imm(asm.R1, int32(r.id)),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	}
	for _, p := range r.parts {
		insns = append(insns, copyBytes(asm.R0, r.place[p.from], asm.R6, p.from, p.size)...)
	}
	insns = append(insns,
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	insns = append(insns, countLost(p)...)
	return function(p.event+"_action", p, insns)
}

// counter is enum counter of trace.h.
type counter int

const (
	countEvents counter = iota
	countRingFull
	countUnmatched
	countInflightFull
	countUnseen
	counters
)

func countLost(p *Probe) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("full"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, 0).WithReference(p.event + "_counts"),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, int16(8*countRingFull)),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// copyBytes copies in the largest steps that the alignment of both places allows.
func copyBytes(to asm.Register, toOffset int, from asm.Register, fromOffset, size int) asm.Instructions {
	var insns asm.Instructions
	for done := 0; done < size; {
		step := min(alignment(toOffset+done), alignment(fromOffset+done))
		for step > size-done {
			step /= 2
		}
		width := map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}[step]
		insns = append(insns,
			asm.LoadMem(asm.R1, from, int16(fromOffset+done), width),
			asm.StoreMem(to, int16(toOffset+done), asm.R1, width),
		)
		done += step
	}
	return insns
}

// accept returns the function X_filter(ctx, e) that lets every event pass.
func accept(p *Probe) asm.Instructions {
	return function(p.event+"_filter", p, asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()})
}

// source is what the kernel quotes above the instructions in the verifier's log and in bpftool's dumps.
type source string

func (s source) String() string { return string(s) }

// function gives instructions the name and type of a function that the C source declares. The names of the parameters are ours:
// clang 14 drops them from the extern, and the kernel refuses a function whose parameters have none.
func function(name string, p *Probe, insns asm.Instructions) asm.Instructions {
	integer := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	proto := &btf.FuncProto{Return: integer, Params: []btf.FuncParam{
		{Name: "ctx", Type: &btf.Pointer{Target: (*btf.Void)(nil)}},
		{Name: "e", Type: &btf.Pointer{Target: (*btf.Void)(nil)}},
	}}
	fn := &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc}
	insns[0] = btf.WithFuncMetadata(insns[0].WithSymbol(name), fn).WithSource(source(p.String() + ": " + name))
	return insns
}

// define appends the functions that a program calls and does not define.
func (r *request) define(spec *ebpf.ProgramSpec) {
	for _, ins := range spec.Instructions {
		if ins.Reference() == r.Probe.event+"_action" {
			spec.Instructions = append(spec.Instructions, accept(r.Probe)...)
			spec.Instructions = append(spec.Instructions, r.record.action(r.Probe)...)
			return
		}
	}
}
