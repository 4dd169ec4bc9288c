package exec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// This file runs generated code in the kernel: in a raw_tp BPF program under BPF_PROG_TEST_RUN, which takes its events from an
// array.

// diffBatch is the most events in a batch.
const diffBatch = 128

// diffKernel is what all BPF programs share.
type diffKernel struct {
	input  *ebpf.Map
	memory *ebpf.Memory // of input
	ring   *ebpf.Map
	reader *ringbuf.Reader
	lost   *ebpf.Map
}

func newDiffKernel() (k *diffKernel, err error) {
	_ = rlimit.RemoveMemlock() // for kernels before 5.11
	k = &diffKernel{}
	const mmapable = 1 << 10 // BPF_F_MMAPABLE
	k.input, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "input", Type: ebpf.Array, KeySize: 4, ValueSize: diffSize, MaxEntries: diffBatch, Flags: mmapable,
	})
	if err != nil {
		return nil, err
	}
	if k.memory, err = k.input.Memory(); err != nil {
		return nil, err
	}
	if k.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: probes.RingName, Type: ebpf.RingBuf, MaxEntries: 1 << 20}); err != nil {
		return nil, err
	}
	if k.reader, err = ringbuf.NewReader(k.ring); err != nil {
		return nil, err
	}
	k.reader.SetDeadline(time.Unix(1, 0)) // never waits
	k.lost, err = ebpf.NewMap(&ebpf.MapSpec{Name: "lost", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 64, MaxEntries: 1})
	return k, err
}

func (k *diffKernel) close() {
	k.reader.Close()
	k.input.Close()
	k.ring.Close()
	k.lost.Close()
}

// diffLoaded are the BPF programs of a plan, by probe.
type diffLoaded map[*event.Probe]*ebpf.Program

func (all diffLoaded) close() {
	for _, p := range all {
		p.Close()
	}
}

// load loads the code of a plan, with the maps of its run.
func (k *diffKernel) load(plan *plan.Plan, run *Run) (diffLoaded, error) {
	all := diffLoaded{}
	for _, r := range plan.Requests() {
		prog, err := k.loadRequest(r, run)
		if err != nil {
			all.close()
			return nil, err
		}
		all[r.Probe] = prog
	}
	return all, nil
}

func (k *diffKernel) loadRequest(r probes.Request, run *Run) (*ebpf.Program, error) {
	counts, _ := probes.LostCounter(r.Probe)
	maps := map[string]*ebpf.Map{"input": k.input, probes.RingName: k.ring, counts: k.lost}
	for name, m := range run.Maps() {
		maps[name] = m
	}
	insns := diffInstructions(r.Code)
	for i := range insns {
		ins := &insns[i]
		if !ins.IsLoadFromMap() {
			continue
		}
		m := maps[ins.Reference()]
		if m == nil {
			return nil, fmt.Errorf("the code refers to a map %s", ins.Reference())
		}
		if err := ins.AssociateMap(m); err != nil {
			return nil, err
		}
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "diff", Type: ebpf.RawTracepoint, License: "GPL", Instructions: insns})
	var rejected *ebpf.VerifierError
	if errors.As(err, &rejected) {
		return nil, fmt.Errorf("%+v", rejected)
	}
	return prog, err
}

// diffInstructions calls filter and action like a probe does, for the event in the array whose index is the argument.
func diffInstructions(code *probes.Code) asm.Instructions {
	integer := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	pointer := &btf.Pointer{Target: (*btf.Void)(nil)}
	ctx, e := btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer}
	passed := btf.FuncParam{Name: "passed", Type: integer}
	var insns asm.Instructions
	function := func(name string, body asm.Instructions, params ...btf.FuncParam) {
		fn := &btf.Func{Name: name, Type: &btf.FuncProto{Return: integer, Params: params}, Linkage: btf.StaticFunc}
		body = slices.Clone(body)
		body[0] = btf.WithFuncMetadata(body[0].WithSymbol(name), fn).WithSource(asm.Comment(name))
		insns = append(insns, body...)
	}
	function("diff", asm.Instructions{
		asm.Mov.Reg(asm.R8, asm.R1),
		asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord),
		asm.StoreMem(asm.R10, -4, asm.R7, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("input"),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "diff_end"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Call.Label("diff_filter"),
		asm.JEq.Imm(asm.R0, 0, "diff_end"),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Call.Label("diff_action"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("diff_end"),
		asm.Return(),
	}, ctx)
	function("diff_filter", code.Filter, ctx, e)
	function("diff_action", code.Action, ctx, e, passed)
	return insns
}

// diffStack is how much stack the BPF program above leaves: its own frame takes 32 bytes.
const diffStack = 512 - 32

// run sends a batch of events through the BPF programs and calls fn with each record.
func (k *diffKernel) run(all diffLoaded, events []rawEvent, fn func(record []byte) error) error {
	for i, e := range events {
		prog := all[e.probe]
		if prog == nil {
			continue
		}
		if _, err := k.memory.WriteAt(e.raw, int64(i*diffSize)); err != nil {
			return err
		}
		if _, err := prog.Run(&ebpf.RunOptions{Context: [1]uint64{uint64(i)}}); err != nil {
			return err
		}
	}
	var record ringbuf.Record
	for {
		err := k.reader.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(record.RawSample); err != nil {
			return err
		}
	}
}
