package probes

import (
	"cmp"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Code is generated code for the events of a probe: what its programs call and do not define (see EVENT in bpf/trace.h).
type Code struct {
	// Filter is the body of X_filter(ctx, e), which returns a bit for each clause that wants the event; Action is the body of
	// X_action(ctx, e, passed), which is called with them if there are any. Both begin with a plain mov, and their labels are
	// unique among both.
	Filter, Action asm.Instructions
	// Before are the bytes of the event that Filter reads, After those that only Action does. A field is captured if any of its
	// own bytes is among them: the byte that holds its presence bit, which it shares with others, does not count.
	Before, After []Span
	// Source is shown above the first instructions in the verifier's log.
	Source string
}

// Span is Size bytes of the event from Offset.
type Span struct{ Offset, Size int }

// in tells whether a byte of the field is in one of the spans.
func (f *Field) in(spans []Span) bool {
	return slices.ContainsFunc(spans, func(s Span) bool {
		return s.Offset < f.offset+f.Type.Size && f.offset < s.Offset+s.Size
	})
}

// Stages of capture, enum stage in trace.h.
const (
	stageNever = iota
	stageBefore
	stageAfter
)

// stage in which the code wants a field captured.
func (c *Code) stage(f *Field) byte {
	switch {
	case f.in(c.Before):
		return stageBefore
	case f.in(c.After):
		return stageAfter
	default:
		return stageNever
	}
}

// wanted returns the content of X_want: the stage in which the member at each offset is captured.
func (r *request) wanted() []byte {
	want := make([]byte, r.Probe.size)
	for _, f := range r.Probe.Fields {
		want[f.offset] = r.Code.stage(f)
	}
	return want
}

func (p *Probe) filterName() string { return p.event + "_filter" }
func (p *Probe) actionName() string { return p.event + "_action" }
func (p *Probe) countsName() string { return p.event + "_counts" }

// LostCounter returns where generated code counts the records for which the ring buffer has no room: 64 bits in the only value of
// a per-CPU array.
func (p *Probe) LostCounter() (mapName string, offset int) { return p.countsName(), 8 * countRingFull }

// RingName is the name by which generated code refers to the ring buffer.
const RingName = "events"

// define appends the functions that a program calls and does not define. The names of their parameters are ours: clang 14 drops them
// from the externs, and the kernel refuses a function whose parameters have none.
func (r *request) define(spec *ebpf.ProgramSpec) {
	p, c := r.Probe, r.Code
	if !calls(spec.Instructions, p.actionName()) {
		return
	}
	pointer := &btf.Pointer{Target: (*btf.Void)(nil)}
	mask := &btf.Int{Name: "unsigned long long", Size: 8, Encoding: btf.Unsigned}
	ctx, e, passed := btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer}, btf.FuncParam{Name: "passed", Type: mask}
	filter := &btf.FuncProto{Return: mask, Params: []btf.FuncParam{ctx, e}}
	action := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: []btf.FuncParam{ctx, e, passed}}
	spec.Instructions = append(spec.Instructions, c.function(p.filterName(), filter, c.Filter)...)
	spec.Instructions = append(spec.Instructions, c.function(p.actionName(), action, c.Action)...)
}

func calls(insns asm.Instructions, function string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool {
		return ins.IsFunctionCall() && ins.Reference() == function
	})
}

// source is what the kernel quotes above the instructions in the verifier's log and in bpftool's dumps.
type source string

func (s source) String() string { return string(s) }

// function gives a body a name and a type. The kernel wants a source line for its first instruction.
func (c *Code) function(name string, proto *btf.FuncProto, body asm.Instructions) asm.Instructions {
	fn := &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc}
	text := source(cmp.Or(c.Source, name))
	insns := slices.Clone(body)
	insns[0] = btf.WithFuncMetadata(insns[0].WithSymbol(name), fn).WithSource(text)
	return insns
}

// stackSize is MAX_BPF_STACK of the kernel: what the frames of a call chain may take together, each rounded up to stackRound.
const (
	stackSize  = 512
	stackRound = 32
)

// StackLeft returns how many bytes of stack the filter, and the action, of a probe may use beside the deepest frame of the programs
// that call them. The kernel counts less where it removes code for what is not wanted.
func (c *Catalog) StackLeft(p *Probe) (int, error) {
	spec, err := c.objects[p.Group]()
	if err != nil {
		return 0, err
	}
	deepest := 1
	for _, prog := range spec.Programs {
		if calls(prog.Instructions, p.actionName()) {
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
