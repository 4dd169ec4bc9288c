package rewrite

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A Flow is a list of instructions whose jumps refer to instructions instead of a number of bytes, so that instructions can be removed and
// inserted.
type Flow struct {
	Insns asm.Instructions
	// targets holds for each instruction the index of its jump target, or nowhere.
	targets []int
}

const nowhere = -1

// New resolves the jumps of a function: numbers in a compiled object, or labels in generated code. It drops the labels.
func New(insns asm.Instructions) (*Flow, error) {
	f := &Flow{Insns: make(asm.Instructions, len(insns)), targets: make([]int, len(insns))}
	labels, indexes := make(map[string]int), make([]int, 0, len(insns)) // by raw offset; some instructions take two places
	for it := insns.Iterate(); it.Next(); {
		for len(indexes) < int(it.Offset) {
			indexes = append(indexes, nowhere)
		}
		indexes = append(indexes, it.Index)
		if label := it.Ins.Symbol(); label != "" {
			labels[label] = it.Index
		}
	}
	for it := insns.Iterate(); it.Next(); {
		ins, target := *it.Ins, nowhere
		if ins.OpCode == asm.InvalidOpCode {
			return nil, fmt.Errorf("instruction %d is invalid", it.Index)
		}
		if jumps(ins) {
			if label := ins.Reference(); label != "" {
				if at, found := labels[label]; found {
					target = at
				}
				ins = ins.WithReference("")
			} else if at := int(it.Offset) + 1 + int(ins.Offset); at >= 0 && at < len(indexes) {
				target = indexes[at]
			}
			if target == nowhere {
				return nil, fmt.Errorf("instruction %d jumps nowhere: %v", it.Index, *it.Ins)
			}
		}
		if ins.Symbol() != "" {
			ins = ins.WithSymbol("")
		}
		f.Insns[it.Index], f.targets[it.Index] = ins, target
	}
	return f, nil
}

// Function returns the instructions under a name, with numeric jumps.
func (f *Flow) Function(name string) (asm.Instructions, error) {
	offsets := make([]int, len(f.Insns))
	for it := f.Insns.Iterate(); it.Next(); {
		offsets[it.Index] = int(it.Offset)
	}
	for i, target := range f.targets {
		if target == nowhere {
			continue
		}
		distance := offsets[target] - offsets[i] - 1
		if distance != int(int16(distance)) {
			return nil, fmt.Errorf("a jump over %d instructions, at most %d are possible", distance, math.MaxInt16)
		}
		f.Insns[i].Offset = int16(distance)
	}
	f.Insns[0] = f.Insns[0].WithSymbol(name)
	return f.Insns, nil
}

// remove removes instructions. A jump to one of them goes to what follows it. The kernel requires a function's type and a line of source at
// its beginning, so these move to the next instruction.
func (f *Flow) remove(out []bool) {
	left := 0
	for _, o := range out {
		if !o {
			left++
		}
	}
	kept := &Flow{make(asm.Instructions, 0, left), make([]int, 0, left)}
	moved := make([]int, len(f.Insns))
	var fn *btf.Func
	var source fmt.Stringer
	for i, ins := range f.Insns {
		moved[i] = len(kept.Insns)
		if own := btf.FuncMetadata(&ins); own != nil {
			fn = own
		}
		if own := ins.Source(); own != nil {
			source = own
		}
		if out[i] {
			continue
		}
		if fn != nil {
			ins = btf.WithFuncMetadata(ins, fn)
		}
		if source != nil {
			ins = ins.WithSource(source)
		}
		fn, source = nil, nil
		kept.Insns, kept.targets = append(kept.Insns, ins), append(kept.targets, f.targets[i])
	}
	for i, target := range kept.targets {
		if target != nowhere {
			kept.targets[i] = moved[target]
		}
	}
	*f = *kept
}

// jumps reports whether an instruction has a target: Ja and conditional jumps.
func jumps(ins asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// ends reports whether the next instruction cannot follow.
func ends(ins asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return op == asm.Ja || op == asm.Exit
}

// registers is a set of registers.
type registers uint16

func set(of ...asm.Register) (rs registers) {
	for _, r := range of {
		rs |= 1 << r
	}
	return rs
}

func (rs registers) has(r asm.Register) bool { return rs&(1<<r) != 0 }

// highest returns the last register of the set, if it has any.
func (rs registers) highest() (asm.Register, bool) {
	return asm.Register(bits.Len16(uint16(rs)) - 1), rs != 0
}

var (
	scratch = set(asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5) // of a call
	saved   = set(asm.R6, asm.R7, asm.R8, asm.R9)                 // across a call
	every   = scratch | saved | set(asm.RFP)
)

// arguments is how many arguments a helper of the kernel takes (include/uapi/linux/bpf.h). A helper that is missing here may take the
// maximum.
var arguments = map[asm.BuiltinFunc]int{
	asm.FnKtimeGetNs: 0, asm.FnKtimeGetBootNs: 0, asm.FnGetSmpProcessorId: 0, asm.FnGetCurrentTask: 0, asm.FnGetCurrentTaskBtf: 0,
	asm.FnGetCurrentPidTgid: 0, asm.FnGetCurrentUidGid: 0, asm.FnGetCurrentCgroupId: 0,
	asm.FnTaskPtRegs:    1,
	asm.FnMapLookupElem: 2, asm.FnMapDeleteElem: 2, asm.FnGetCurrentComm: 2, asm.FnRingbufSubmit: 2,
	asm.FnProbeReadKernel: 3, asm.FnProbeReadKernelStr: 3, asm.FnProbeReadUser: 3, asm.FnRingbufReserve: 3,
	asm.FnMapUpdateElem: 4, asm.FnGetStack: 4, asm.FnGetTaskStack: 4,
}

// argRegs returns the registers that a call reads.
func argRegs(call asm.Instruction) (reads registers) {
	n, ok := arguments[asm.BuiltinFunc(call.Constant)]
	if !ok || !call.IsBuiltinCall() {
		n = int(asm.R5)
	}
	for r := asm.R1; r <= asm.Register(n); r++ {
		reads |= set(r)
	}
	return reads
}

// touches returns the registers that an instruction reads, and the registers that it writes.
func touches(ins asm.Instruction) (reads, writes registers) {
	op := ins.OpCode
	dst, src := set(ins.Dst), set(ins.Src)
	switch class := op.Class(); {
	case class == asm.LdXClass:
		return src, dst
	case op.IsDWordLoad():
		return 0, dst
	case class == asm.StClass:
		return dst, 0
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		return dst | src | set(asm.R0), 0 // may write some of them
	case class == asm.StXClass:
		return dst | src, 0
	case class.IsALU():
		if op.ALUOp() != asm.Mov {
			reads = dst
		}
		if op.Source() == asm.RegSource {
			reads |= src
		}
		return reads, dst
	case op.JumpOp() == asm.Call:
		return argRegs(ins), scratch
	case op.JumpOp() == asm.Exit:
		return set(asm.R0), 0
	case op.JumpOp() == asm.Ja:
		return 0, 0
	case class.IsJump() && op.Source() == asm.RegSource:
		return dst | src, 0
	case class.IsJump():
		return dst, 0
	default:
		return every, 0
	}
}

// pure reports whether an instruction only writes its register.
func pure(ins asm.Instruction) bool {
	class := ins.OpCode.Class()
	return class.IsALU() || class == asm.LdXClass || ins.OpCode.IsDWordLoad()
}

// An effect is what an instruction does to the registers.
type effect struct{ reads, writes registers }

func (f *Flow) effects() []effect {
	effects := make([]effect, len(f.Insns))
	for i, ins := range f.Insns {
		effects[i].reads, effects[i].writes = touches(ins)
	}
	return effects
}

// live returns for each instruction which registers are read after it before they are written. Removed instructions do nothing.
func (f *Flow) live(effects []effect, out []bool) []registers {
	before, after := make([]registers, len(f.Insns)), make([]registers, len(f.Insns))
	for changed := true; changed; {
		changed = false
		for i := len(f.Insns) - 1; i >= 0; i-- {
			var next registers
			if i+1 < len(f.Insns) && (out[i] || !ends(f.Insns[i])) {
				next = before[i+1]
			}
			if f.targets[i] != nowhere && !out[i] {
				next |= before[f.targets[i]]
			}
			after[i] = next
			if !out[i] {
				next = next&^effects[i].writes | effects[i].reads
			}
			if next != before[i] {
				before[i], changed = next, true
			}
		}
	}
	return after
}
