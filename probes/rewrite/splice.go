package rewrite

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Splice inlines a body in place of the calls of a function, with its stack below the frame of the caller. A call costs time and hides the
// result from its caller. After a call, the verifier of 5.10 compares every number of every state (__mark_reg_unknown), so that it follows
// paths again without need. And a function reads its caller's frame by a register, which verifiers before 6.8 do not follow, see [direct].
func (f *Flow) Splice(function string, body *Flow, frame int) error {
	deep := FrameSize(body.Insns)
	if deep > 0 && !movable(body.Insns) {
		return errors.New("the frame pointer is used otherwise than for loads and stores")
	}
	calls := f.calls(function)
	live := f.live(f.effects(), make([]bool, len(f.Insns)))
	low := body.lowered(frame)
	for _, i := range slices.Backward(calls) {
		n := body.rename(live[i])
		if stack := frame + deep + 8*len(n.saved); stack > StackSize {
			return fmt.Errorf("%d bytes of stack are used, a program can have %d", stack, StackSize)
		}
		f.replace(i, low.named(n).saving(n.saved, frame+deep))
	}
	return nil
}

// StackLeft returns how many bytes of stack any body may use that Splice puts in place of the calls of a function, whatever registers it uses.
func (f *Flow) StackLeft(function string, frame int) int {
	left := StackSize - frame
	live := f.live(f.effects(), make([]bool, len(f.Insns)))
	for _, i := range f.calls(function) {
		left = min(left, StackSize-frame-8*bits.OnesCount16(uint16(live[i]&saved)))
	}
	return left
}

// calls returns where a function is called.
func (f *Flow) calls(function string) (at []int) {
	for i, ins := range f.Insns {
		if callTo(ins, function) {
			at = append(at, i)
		}
	}
	return at
}

// movable reports whether the body uses the frame pointer only as lowered supports: in loads and stores, and copied.
func movable(insns asm.Instructions) bool {
	return !slices.ContainsFunc(insns, func(ins asm.Instruction) bool {
		class := ins.OpCode.Class()
		if class == asm.LdXClass || ins.OpCode == asm.Mov.Op(asm.RegSource) {
			return false
		}
		reads, _ := touches(ins)
		return reads.has(asm.RFP) && (!class.IsStore() || ins.Src == asm.RFP)
	})
}

// lowered returns the body with its stack moved below a frame.
func (body *Flow) lowered(frame int) *Flow {
	low := &Flow{}
	moved := make([]int, len(body.Insns))
	for i, ins := range body.Insns {
		moved[i] = len(low.Insns)
		class := ins.OpCode.Class()
		if class == asm.LdXClass && ins.Src == asm.RFP || class.IsStore() && ins.Dst == asm.RFP {
			ins.Offset -= int16(frame)
		}
		low.Insns, low.targets = append(low.Insns, ins), append(low.targets, body.targets[i])
		if class.IsALU() && ins.OpCode.Source() == asm.RegSource && ins.Src == asm.RFP {
			low.Insns, low.targets = append(low.Insns, asm.Add.Imm(ins.Dst, int32(-frame))), append(low.targets, nowhere)
		}
	}
	for i, target := range low.targets {
		if target != nowhere {
			low.targets[i] = moved[target]
		}
	}
	return low
}

// names maps each register of the body to another one; the caller needs those in saved afterwards.
type names struct {
	of    [11]asm.Register
	saved []asm.Register
}

// rename finds registers for those that a call would save and the body uses. It prefers registers that are not live after the call, or, if
// the body calls nothing, any that it does not use, and takes live ones if none is left.
func (body *Flow) rename(live registers) (n names) {
	used, calls := body.uses()
	free, taken := saved&^live, registers(0)
	if !calls {
		free |= scratch &^ used
	}
	for r := range n.of {
		n.of[r] = asm.Register(r)
	}
	for r := asm.R6; r <= asm.R9; r++ {
		if !used.has(r) {
			continue
		}
		as, ok := free.highest()
		if !ok {
			as, _ = (saved &^ taken).highest() // the body uses no more than there are
			n.saved = append(n.saved, as)
		}
		n.of[r] = as
		free &^= set(as)
		taken |= set(as)
	}
	return n
}

// uses returns the registers that a body uses, and whether it calls anything.
func (body *Flow) uses() (used registers, calls bool) {
	for _, ins := range body.Insns {
		if ins.OpCode.JumpOp() == asm.Call {
			calls = true
			continue
		}
		reads, writes := touches(ins)
		used |= reads | writes
	}
	return used, calls
}

// named returns the body with renamed registers.
func (body *Flow) named(n names) *Flow {
	named := &Flow{Insns: slices.Clone(body.Insns), targets: body.targets}
	for i, ins := range named.Insns {
		if ins.OpCode.JumpOp() != asm.Call && !ins.OpCode.IsDWordLoad() { // where Src is not a register
			ins.Src = n.of[ins.Src]
		}
		ins.Dst = n.of[ins.Dst]
		named.Insns[i] = ins
	}
	return named
}

// saving returns the body between instructions that store registers below a frame and load them again. All its exits become one.
func (body *Flow) saving(rs []asm.Register, frame int) *Flow {
	with := &Flow{}
	for i, r := range rs {
		with.Insns = append(with.Insns, asm.StoreMem(asm.RFP, int16(-frame-8*(i+1)), r, asm.DWord))
		with.targets = append(with.targets, nowhere)
	}
	before, end := len(with.Insns), len(with.Insns)+len(body.Insns)
	for i, ins := range body.Insns {
		target := body.targets[i]
		if target != nowhere {
			target += before
		}
		if ins.OpCode.JumpOp() == asm.Exit {
			ins, target = asm.Ja.Label("").WithMetadata(ins.Metadata), end
		}
		with.Insns, with.targets = append(with.Insns, ins), append(with.targets, target)
	}
	for i, r := range rs {
		with.Insns = append(with.Insns, asm.LoadMem(r, asm.RFP, int16(-frame-8*(i+1)), asm.DWord))
		with.targets = append(with.targets, nowhere)
	}
	return with
}

// replace puts a body in place of instruction at. Jumps to the body's end go to what follows.
func (f *Flow) replace(at int, body *Flow) {
	longer := len(body.Insns) - 1
	for i, target := range f.targets {
		if target > at {
			f.targets[i] = target + longer
		}
	}
	targets := slices.Clone(body.targets)
	for i, target := range targets {
		if target != nowhere {
			targets[i] = target + at
		}
	}
	f.Insns = slices.Concat(f.Insns[:at], body.Insns, f.Insns[at+1:])
	f.targets = slices.Concat(f.targets[:at], targets, f.targets[at+1:])
}
