//go:build linux

package probes

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// splice puts a body in the place of the calls of a function: a call costs, and hides from its caller what the body returns. It is
// kept where the body does not fit: if it lacks registers, or stack below the frame of the caller. splice tells whether it has
// replaced a call.
func (f *flow) splice(function string, body *flow, frame int) (spliced bool) {
	deep := frameSize(body.insns)
	if deep > 0 && (frame+deep > stackSize || !movable(body.insns)) {
		return false
	}
	for i := len(f.insns) - 1; i >= 0; i-- {
		if !callTo(f.insns[i], function) {
			continue
		}
		live := f.live(f.effects(), make([]bool, len(f.insns)))[i]
		if names, ok := body.rename(live); ok {
			f.replace(i, body.lowered(frame), names)
			spliced = true
		}
	}
	return spliced
}

// movable tells whether the body uses the frame pointer only in ways that lowered knows: in loads and stores, and to copy it.
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

// lowered returns the body with its part of the stack below a frame.
func (body *flow) lowered(frame int) *flow {
	low := &flow{}
	moved := make([]int, len(body.insns))
	for i, ins := range body.insns {
		moved[i] = len(low.insns)
		class := ins.OpCode.Class()
		if class == asm.LdXClass && ins.Src == asm.RFP || class.IsStore() && ins.Dst == asm.RFP {
			ins.Offset -= int16(frame)
		}
		low.insns, low.targets = append(low.insns, ins), append(low.targets, body.targets[i])
		if class.IsALU() && ins.OpCode.Source() == asm.RegSource && ins.Src == asm.RFP {
			low.insns, low.targets = append(low.insns, asm.Add.Imm(ins.Dst, int32(-frame))), append(low.targets, nowhere)
		}
	}
	for i, target := range low.targets {
		if target != nowhere {
			low.targets[i] = moved[target]
		}
	}
	return low
}

// names says which register stands for each of the body's own.
type names [11]asm.Register

// rename finds registers for those that a call would save and the body uses: such as are not live after it, or, if the body calls
// nothing, any that it does not use.
func (body *flow) rename(live registers) (n names, ok bool) {
	used, calls := body.uses()
	free := saved &^ live
	if !calls {
		free |= scratch &^ used
	}
	for r := range n {
		n[r] = asm.Register(r)
	}
	for r := asm.R6; r <= asm.R9; r++ {
		if !used.has(r) {
			continue
		}
		as := asm.R9
		for !free.has(as) {
			if as == asm.R0 {
				return n, false
			}
			as--
		}
		n[r] = as
		free &^= set(as)
	}
	return n, true
}

// uses returns the registers that a body touches, and whether it calls anything.
func (body *flow) uses() (used registers, calls bool) {
	for _, ins := range body.insns {
		if ins.OpCode.JumpOp() == asm.Call {
			calls = true
			continue
		}
		reads, writes := touches(ins)
		used |= reads | writes
	}
	return used, calls
}

// replace puts a body in the place of instruction at. Its ends go to what follows.
func (f *flow) replace(at int, body *flow, n names) {
	longer := len(body.insns) - 1
	for i, target := range f.targets {
		if target > at {
			f.targets[i] = target + longer
		}
	}
	insns, targets := slices.Clone(body.insns), slices.Clone(body.targets)
	for i, ins := range insns {
		if ins.OpCode.JumpOp() == asm.Exit {
			ins, targets[i] = asm.Ja.Label("").WithMetadata(ins.Metadata), len(insns)
		}
		if ins.OpCode.JumpOp() != asm.Call && !ins.OpCode.IsDWordLoad() { // whose Src is no register
			ins.Src = n[ins.Src]
		}
		ins.Dst = n[ins.Dst]
		insns[i] = ins
		if targets[i] != nowhere {
			targets[i] += at
		}
	}
	f.insns = slices.Concat(f.insns[:at], insns, f.insns[at+1:])
	f.targets = slices.Concat(f.targets[:at], targets, f.targets[at+1:])
}
