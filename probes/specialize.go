//go:build linux

package probes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
)

// wanted returns the content of X_want: the stage in which the member at each offset is captured.
func (r *request) wanted() []byte {
	want := make([]byte, r.Probe.Size)
	for _, f := range r.Probe.Fields {
		want[f.Offset] = r.Code.stage(f)
	}
	return want
}

// wantsEntry tells whether the code wants a field that the return of a function does not tell by itself (OF_CALL in bpf/trace.h).
func (r *request) wantsEntry() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool {
		return r.Code.stage(f) != stageNever && !f.Common && !r.source.atReturn[f.Name]
	})
}

// specialize leaves in a program what the requests want of it, and gives it the code of the functions that it calls and does not
// define. If one of them has to stay a function, the other may be spliced only while the stack suffices for both.
func specialize(spec *ebpf.ProgramSpec, requests []*request, constants []byte) error {
	insns, stack, err := build(spec, requests, constants, true)
	if err != nil || stack > stackSize {
		insns, _, err = build(spec, requests, constants, false)
	}
	spec.Instructions = insns
	return err
}

// build returns the instructions of a specialized program, and how much stack they use together.
func build(spec *ebpf.ProgramSpec, requests []*request, constants []byte, splice bool) (insns asm.Instructions, stack int, err error) {
	f, err := newFlow(spec.Instructions)
	if err != nil {
		return nil, 0, err
	}
	f.fold(constants)
	frame := align(frameSize(f.insns), 8)
	stack = frame
	frames, inFunction := framesOfTracing(spec)
	var functions []function
	for _, r := range requests {
		functions = append(functions, r.functions()...)
	}
	// The action comes before the filter: while it is called, registers of its caller are alive there.
	for _, fn := range slices.Backward(functions) {
		if !splice || !calls(f.insns, fn.name) {
			continue
		}
		body, err := newFlow(withFrames(fn.body, frames))
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", fn.name, err)
		}
		if deep := f.splice(fn.name, body, frame); deep > 0 {
			stack = max(stack, deep)
			f.fold(constants)
		}
	}
	below := 0 // the deepest function
	var called asm.Instructions
	for _, fn := range functions {
		if calls(f.insns, fn.name) {
			fn.body = withFrames(fn.body, inFunction)
			called = append(called, fn.called()...)
			below = max(below, align(max(frameSize(fn.body), 1), stackRound))
		}
	}
	insns, err = f.function(spec.Name)
	return append(insns, called...), align(max(stack, 1), stackRound) + below, err
}

// typeless tells whether a program reads, for a request, nothing whose place in memory only the kernel's types tell. What is wrong
// with the program shows when it is loaded.
func (h *Host) typeless(program string, r *request) bool {
	return h.catalog.typeless(program, r, h.cgroupController(r))
}

func (c *Catalog) typeless(program string, r *request, controller byte) bool {
	object, err := c.objects[r.Probe.Group]()
	if err != nil {
		return false
	}
	f, err := newFlow(object.Programs[program].Instructions)
	if err != nil {
		return false
	}
	f.fold(constantsFor(object, controller, r))
	return !relocated(f.insns)
}

// idle tells whether a program does nothing that anyone could see: it calls only helpers that ask nothing and tell something, and
// writes only into its own frame.
func idle(insns asm.Instructions) bool {
	return !slices.ContainsFunc(insns, func(ins asm.Instruction) bool {
		op := ins.OpCode
		switch class := op.Class(); {
		case op.JumpOp() == asm.Call:
			return asks(ins) != 0
		case class.IsStore():
			return ins.Dst != asm.RFP
		default:
			return false
		}
	})
}

// relocated tells whether instructions depend on the kernel's types.
func relocated(insns asm.Instructions) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return btf.CORERelocationMetadata(&ins) != nil })
}

// A function of generated code, X_filter or X_action. The names of its parameters are ours: clang 14 drops them from the externs,
// and the kernel refuses a function whose parameters have none.
type function struct {
	name  string
	proto *btf.FuncProto
	body  asm.Instructions
}

func (r *request) functions() []function {
	p, c := r.Probe, r.Code
	pointer := &btf.Pointer{Target: (*btf.Void)(nil)}
	mask := &btf.Int{Name: "unsigned long long", Size: 8, Encoding: btf.Unsigned}
	ctx, e, passed := btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer}, btf.FuncParam{Name: "passed", Type: mask}
	filter := &btf.FuncProto{Return: mask, Params: []btf.FuncParam{ctx, e}}
	action := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: []btf.FuncParam{ctx, e, passed}}
	return []function{{filterName(p), filter, c.sourced(c.Filter, filterName(p))}, {actionName(p), action, c.sourced(c.Action, actionName(p))}}
}

func calls(insns asm.Instructions, function string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return callTo(ins, function) })
}

// refersTo tells whether code refers to a map.
func refersTo(insns asm.Instructions, mapName string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return ins.IsLoadFromMap() && ins.Reference() == mapName })
}

func callTo(ins asm.Instruction, function string) bool {
	return ins.IsFunctionCall() && ins.Reference() == function
}

// quoted is what the kernel quotes above the instructions in the verifier's log and in bpftool's dumps.
type quoted string

func (s quoted) String() string { return string(s) }

// sourced gives a body a line of source at its beginning, which the kernel wants of a function.
func (c *Code) sourced(body asm.Instructions, name string) asm.Instructions {
	insns := slices.Clone(body)
	insns[0] = insns[0].WithSource(quoted(cmp.Or(c.Source, name)))
	return insns
}

// called returns a function that is called as such.
func (f *function) called() asm.Instructions {
	insns := slices.Clone(f.body)
	fn := &btf.Func{Name: f.name, Type: f.proto, Linkage: btf.StaticFunc}
	insns[0] = btf.WithFuncMetadata(insns[0].WithSymbol(f.name), fn)
	return insns
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// stackSize is MAX_BPF_STACK of the kernel: what the frames of a call chain may take together, each rounded up to stackRound.
const (
	stackSize  = 512
	stackRound = 32
)

// StackLeft returns how many bytes of stack the filter, and the action, of a probe may use beside the deepest frame of the programs
// that call them. The kernel counts less where it removes code for what is not wanted.
func (c *Catalog) StackLeft(p *event.Probe) (int, error) {
	spec, err := c.objects[p.Group]()
	if err != nil {
		return 0, err
	}
	deepest := 1
	for _, prog := range spec.Programs {
		if calls(prog.Instructions, actionName(p)) {
			deepest = max(deepest, frameSize(prog.Instructions))
		}
	}
	return stackSize - align(deepest, stackRound), nil
}

// frameSize returns how far the instructions of a function reach below the frame pointer: by loads and stores, and by the addresses
// that they make of it, a copy to which a number is added.
func frameSize(insns asm.Instructions) int {
	deepest := 0
	pointers := make(map[asm.Register]bool) // copies of the frame pointer
	for _, ins := range insns {
		op := ins.OpCode
		switch class := op.Class(); {
		case class.IsLoad() && ins.Src == asm.RFP, class.IsStore() && ins.Dst == asm.RFP:
			deepest = max(deepest, -int(ins.Offset))
		case class.IsALU() && op.ALUOp() == asm.Mov:
			pointers[ins.Dst] = op.Source() == asm.RegSource && ins.Src == asm.RFP
		case class.IsALU() && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && pointers[ins.Dst]:
			deepest = max(deepest, -int(ins.Constant))
		}
	}
	return deepest
}
