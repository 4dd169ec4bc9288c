package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// asked are the helpers that do nothing but answer.
var asked = []asm.BuiltinFunc{
	asm.FnKtimeGetNs, asm.FnGetCurrentPidTgid, asm.FnGetCurrentUidGid, asm.FnGetCurrentTask, asm.FnGetSmpProcessorId, asm.FnGetCurrentCgroupId,
	asm.FnMapLookupElem,
}

// Nobody asks a helper for what he then does not use: where that seems so, the compiler has left out the store. clang 14 does, before it copies a
// constant of 5 bytes: the beginnings of calls were 0, and the latencies that came of them were the time since boot.
func TestResultsAreUsed(t *testing.T) {
	calls := 0
	for _, name := range Objects() {
		_, all := whole(t, name)
		for program, spec := range all.Programs {
			insns := spec.Instructions
			at, offsets := make(map[asm.RawInstructionOffset]int), make([]asm.RawInstructionOffset, len(insns)) // by which jumps count
			for iter := insns.Iterate(); iter.Next(); {
				at[iter.Offset], offsets[iter.Index] = iter.Index, iter.Offset
			}
			target := func(i int) int { return at[offsets[i]+asm.RawInstructionOffset(insns[i].Offset)+1] }
			for i, ins := range insns {
				if !ins.IsBuiltinCall() || !slices.Contains(asked, asm.BuiltinFunc(ins.Constant)) {
					continue
				}
				calls++
				if !resultIsUsed(insns, target, i+1, make(map[int]bool)) {
					t.Errorf("%s: %s does not use the result of instruction %d, %v", name, program, i, ins)
				}
			}
		}
	}
	if calls < 1000 {
		t.Errorf("only %d calls of such helpers were found", calls)
	}
}

// resultIsUsed reports whether something reads R0 on a way from an instruction, before something else is written to it.
func resultIsUsed(insns asm.Instructions, target func(jump int) int, from int, seen map[int]bool) bool {
	for i := from; i < len(insns) && !seen[i]; i++ {
		seen[i] = true
		ins := insns[i]
		op := ins.OpCode
		switch class := op.Class(); {
		case class.IsJump() && op.JumpOp() == asm.Call:
			return false
		case class.IsJump() && op.JumpOp() == asm.Exit:
			return true
		case class.IsJump():
			if op.JumpOp() != asm.Ja && (ins.Dst == asm.R0 || op.Source() == asm.RegSource && ins.Src == asm.R0) {
				return true
			}
			if resultIsUsed(insns, target, target(i), seen) {
				return true
			}
			if op.JumpOp() == asm.Ja {
				return false
			}
		case class.IsStore():
			if ins.Dst == asm.R0 || class == asm.StXClass && ins.Src == asm.R0 {
				return true
			}
		case class.IsLoad():
			if class == asm.LdXClass && ins.Src == asm.R0 {
				return true
			}
			if ins.Dst == asm.R0 {
				return false
			}
		default:
			if op.Source() == asm.RegSource && ins.Src == asm.R0 || ins.Dst == asm.R0 && op.ALUOp() != asm.Mov {
				return true
			}
			if ins.Dst == asm.R0 {
				return false
			}
		}
	}
	return false
}
