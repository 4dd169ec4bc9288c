package rewrite

import (
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Calls reports whether instructions call a function.
func Calls(insns asm.Instructions, function string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return callTo(ins, function) })
}

func callTo(ins asm.Instruction, function string) bool {
	return ins.IsFunctionCall() && ins.Reference() == function
}

// Idle reports whether a program has no visible effect: it calls only helpers that return information, and writes only to its own frame.
func Idle(insns asm.Instructions) bool {
	return !slices.ContainsFunc(insns, func(ins asm.Instruction) bool {
		op := ins.OpCode
		switch class := op.Class(); {
		case op.JumpOp() == asm.Call:
			return argRegs(ins) != 0
		case class.IsStore():
			return ins.Dst != asm.RFP
		default:
			return false
		}
	})
}

// Relocated reports whether instructions depend on the kernel's types.
func Relocated(insns asm.Instructions) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return btf.CORERelocationMetadata(&ins) != nil })
}

// FrameSize returns how many bytes below the frame pointer a function uses, in whole words: by loads and stores, and by addresses computed
// from copies of the frame pointer.
func FrameSize(insns asm.Instructions) int {
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
	return align(deepest, 8)
}

// StackSize is MAX_BPF_STACK of the kernel: how many bytes of stack a program may use.
const StackSize = 512

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }
