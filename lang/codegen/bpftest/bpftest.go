// Package bpftest runs generated code in the kernel. Only the tests of packages codegen and lang use it.
package bpftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"

	"trace/lang/codegen"
)

// Names for generated code: codegen.Spec.Ring and .Lost.
const Ring = "events"

var Lost = codegen.Counter{Map: "lost", Offset: 8}

// MaxEvents is the most events for one Run.
const MaxEvents = 256

const (
	inputName  = "input"
	outputName = "output"
)

// Stack returns how many bytes of stack are left for the generated functions beside an event: codegen.Spec.Stack.
func Stack(eventSize int) int {
	used := eventSize + 8
	return 512 - (used+31)&^31 // each function takes a multiple of 32
}

// Runner is generated code loaded into the kernel, with its maps.
type Runner struct {
	Maps map[string]*ebpf.Map

	program   *ebpf.Program
	reader    *ringbuf.Reader
	eventSize int
}

// Permitted returns nil if this process can load BPF programs, and the reason if it cannot.
func Permitted() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if errors.Is(err, os.ErrPermission) {
		return err
	}
	if err == nil {
		p.Close()
	}
	return nil
}

// New loads code and creates its maps. The events have eventSize bytes, a multiple of 8.
func New(code *codegen.Code, maps []*codegen.Map, eventSize int) (*Runner, error) {
	return load(code, maps, eventSize, ebpf.RawTracepoint, asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord))
}

func load(code *codegen.Code, maps []*codegen.Map, eventSize int, kind ebpf.ProgramType, index asm.Instruction) (*Runner, error) {
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			Ring:       {Name: Ring, Type: ebpf.RingBuf, MaxEntries: 1 << 14},
			Lost.Map:   {Name: Lost.Map, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1},
			inputName:  {Name: inputName, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(eventSize), MaxEntries: MaxEvents},
			outputName: {Name: outputName, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: MaxEvents},
		},
		Programs: map[string]*ebpf.ProgramSpec{
			"run": {Name: "run", Type: kind, License: "GPL", Instructions: instructions(code, eventSize, index)},
		},
	}
	for _, s := range codegen.MapSpecs(maps, code.Maps) {
		spec.Maps[s.Name] = s
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	defer collection.Close()
	r := &Runner{Maps: make(map[string]*ebpf.Map), eventSize: eventSize, program: collection.DetachProgram("run")}
	for name := range spec.Maps {
		r.Maps[name] = collection.DetachMap(name)
	}
	for _, s := range spec.Maps {
		if s.Type != ebpf.ArrayOfMaps {
			continue
		}
		for turn := range uint32(s.MaxEntries) {
			inner, err := ebpf.NewMap(s.InnerMap)
			if err == nil {
				r.Maps[TurnName(s.Name, turn)] = inner
				err = r.Maps[s.Name].Put(turn, inner)
			}
			if err != nil {
				r.Close()
				return nil, err
			}
		}
	}
	if r.reader, err = ringbuf.NewReader(r.Maps[Ring]); err != nil {
		r.Close()
		return nil, err
	}
	r.reader.SetDeadline(time.Unix(1, 0)) // never waits
	return r, nil
}

// instructions returns a BPF program that calls the generated functions like the probes do: it copies an event to its stack, calls
// the filter, and calls the action if the filter returns a bit.
func instructions(code *codegen.Code, eventSize int, index asm.Instruction) asm.Instructions {
	event := int16(-8 - eventSize)
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R8, asm.R1),
		index, // to R7
		asm.StoreMem(asm.R10, -4, asm.R7, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(inputName),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "run_end"),
	}
	for at := range eventSize / 8 {
		insns = append(insns,
			asm.LoadMem(asm.R1, asm.R0, int16(8*at), asm.DWord),
			asm.StoreMem(asm.R10, event+int16(8*at), asm.R1, asm.DWord),
		)
	}
	insns = append(insns,
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, int32(event)),
		asm.Call.Label("run_filter"),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.LoadMapPtr(asm.R1, 0).WithReference(outputName),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "run_end"),
		asm.StoreMem(asm.R0, 0, asm.R9, asm.DWord),
		asm.JEq.Imm(asm.R9, 0, "run_end"),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, int32(event)),
		asm.Mov.Reg(asm.R3, asm.R9),
		asm.Call.Label("run_action"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("run_end"),
		asm.Return(),
	)
	integer := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	unsigned := &btf.Int{Name: "u64", Size: 8}
	pointer := &btf.Pointer{Target: (*btf.Void)(nil)}
	function := func(name string, body asm.Instructions, params ...btf.FuncParam) {
		proto := &btf.FuncProto{Return: integer, Params: params}
		start := len(insns)
		insns = append(insns, body...)
		insns[start] = btf.WithFuncMetadata(insns[start].WithSymbol(name), &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc}).
			WithSource(asm.Comment(name))
	}
	main := insns
	insns = nil
	function("run", main, btf.FuncParam{Name: "ctx", Type: pointer})
	function("run_filter", code.Filter, btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer})
	function("run_action", code.Action, btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer},
		btf.FuncParam{Name: "passed", Type: unsigned})
	return insns
}

// Run sends events through the code. It returns the result of the filter for each event, and the records that the actions wrote.
func (r *Runner) Run(events [][]byte) (masks []uint64, records [][]byte, err error) {
	if len(events) > MaxEvents {
		return nil, nil, fmt.Errorf("%d events, at most %d", len(events), MaxEvents)
	}
	for i, e := range events {
		if err := r.Maps[inputName].Put(uint32(i), e); err != nil {
			return nil, nil, err
		}
		if _, err := r.program.Run(&ebpf.RunOptions{Context: []uint64{uint64(i)}}); err != nil {
			return nil, nil, err
		}
		var mask uint64
		if err := r.Maps[outputName].Lookup(uint32(i), &mask); err != nil {
			return nil, nil, err
		}
		masks = append(masks, mask)
		for {
			record, err := r.reader.Read()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, nil, err
			}
			records = append(records, record.RawSample)
		}
	}
	return masks, records, nil
}

// TurnName returns the key in Runner.Maps of one of the two maps that take turns.
func TurnName(name string, turn uint32) string { return fmt.Sprintf("%s %d", name, turn) }

// State returns the merged state of an aggregation, or nil if there is no such key.
func (r *Runner) State(m *codegen.Map, key ...any) ([]uint64, error) {
	return r.stateIn(m, m.Name, key...)
}

// StateAt returns the state in one of the two maps that take turns.
func (r *Runner) StateAt(m *codegen.Map, turn uint32, key ...any) ([]uint64, error) {
	return r.stateIn(m, TurnName(m.Name, turn), key...)
}

func (r *Runner) stateIn(m *codegen.Map, name string, key ...any) ([]uint64, error) {
	state := make([]uint64, m.Agg.Words())
	add := func(raw []byte) {
		part := make([]uint64, len(state))
		for i := range part {
			part[i] = binary.LittleEndian.Uint64(raw[8*i:])
		}
		m.Agg.FromKernel(state, part)
	}
	var err error
	if m.Shared {
		var part []byte
		if part, err = r.Maps[name].LookupBytes(rawKey(m, key)); part == nil {
			return nil, err
		}
		add(part)
		return state, err
	}
	var parts [][]byte
	err = r.Maps[name].Lookup(rawKey(m, key), &parts)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	for _, part := range parts {
		add(part)
	}
	return state, err
}

// Values returns the row of a scalar map, or nil if there is no such key.
func (r *Runner) Values(m *codegen.Map, key ...any) ([]any, error) {
	raw, err := r.Maps[m.Name].LookupBytes(rawKey(m, key))
	if raw == nil {
		return nil, err
	}
	if len(m.Key.Columns) == 0 {
		if raw[0] == 0 {
			return nil, nil
		}
		raw = raw[8:]
	}
	return m.Value.Values(raw), nil
}

func rawKey(m *codegen.Map, key []any) []byte {
	if len(m.Key.Columns) == 0 {
		return make([]byte, 4)
	}
	return m.Key.Append(nil, key)
}

// Counters returns what went wrong with a map.
func (r *Runner) Counters(m *codegen.Map) (total codegen.MapCounters, err error) {
	if r.Maps[codegen.CountersName] == nil {
		return total, nil
	}
	var parts []codegen.MapCounters
	err = r.Maps[codegen.CountersName].Lookup(uint32(m.Index), &parts)
	for _, c := range parts {
		total.Full += c.Full
		total.NoMemory += c.NoMemory
		total.Busy += c.Busy
		total.Absent += c.Absent
	}
	return total, err
}

// Lost returns how many records found no room.
func (r *Runner) Lost() (total uint64, err error) {
	var parts [][2]uint64
	err = r.Maps[Lost.Map].Lookup(uint32(0), &parts)
	for _, c := range parts {
		total += c[1]
	}
	return total, err
}

// Time returns how long one run of the code takes for an event, including copying the event and calling the code.
func Time(code *codegen.Code, maps []*codegen.Map, event []byte) (time.Duration, error) {
	const repeat = 1_000_000
	r, err := load(code, maps, len(event), ebpf.XDP, asm.Mov.Imm(asm.R7, 0))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if err := r.Maps[inputName].Put(uint32(0), event); err != nil {
		return 0, err
	}
	_, per, err := r.program.Benchmark(make([]byte, 64), repeat, nil)
	return per, err
}

// Close unloads the code.
func (r *Runner) Close() {
	r.program.Close()
	if r.reader != nil {
		r.reader.Close()
	}
	for _, m := range r.Maps {
		m.Close()
	}
}
