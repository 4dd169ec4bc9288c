package rewrite

import (
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Calls tells whether instructions call a function.
func Calls(insns asm.Instructions, function string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return callTo(ins, function) })
}

func callTo(ins asm.Instruction, function string) bool {
	return ins.IsFunctionCall() && ins.Reference() == function
}

// Idle tells whether a program does nothing that anyone could see: it calls only helpers that ask nothing and tell something, and
// writes only into its own frame.
func Idle(insns asm.Instructions) bool {
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

// Relocated tells whether instructions depend on the kernel's types.
func Relocated(insns asm.Instructions) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return btf.CORERelocationMetadata(&ins) != nil })
}

// FrameSize returns how far the instructions of a function reach below the frame pointer, in whole words: by loads and stores, and by
// the addresses that they make of it, a copy to which a number is added.
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

// StackSize is MAX_BPF_STACK of the kernel: what the frames of a call chain may take together, each rounded up to stackRound.
const (
	StackSize  = 512
	stackRound = 32
)

// Charged is what the kernel counts of the stack for a function with a frame of so many bytes.
func Charged(frame int) int { return align(max(frame, 1), stackRound) }

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }
