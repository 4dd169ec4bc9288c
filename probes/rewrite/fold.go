package rewrite

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// This file removes the code for unwanted fields from a program. The verifier would remove most of it as well. But removed code loads no
// constant for each event, needs no type of the kernel, and uses no register or stack that generated code could use.

// A value is what is known about a register.
type value struct {
	known
	n int64 // a number, or an offset in the constants or from the frame pointer
}

type known uint8

const (
	nothing known = iota
	number
	address // of a constant
	frame   // an address on the stack
)

// A state is what is known about the registers.
type state [11]value

// Constants are the values in a section.
type Constants struct {
	Values []byte
	// Late are bytes that are found out, by offset, when a program reads them: it may take long.
	Late map[int64]func() byte
}

// Fold evaluates what follows from the constants in a section, and removes what is then unreachable or has no effect.
func (f *Flow) Fold(section string, constants Constants) {
	x := &folder{Flow: f, section: section, constants: constants, states: make([]*state, len(f.Insns)), reached: make([]bool, len(f.Insns))}
	x.explore()
	x.apply()
}

type folder struct {
	*Flow
	section   string
	constants Constants
	states    []*state // before the targets of jumps
	reached   []bool
	pending   []int // to be explored
}

// explore finds what is known wherever the paths of the function meet. It continues until nothing is left that only some paths know.
func (x *folder) explore() {
	for _, target := range x.targets {
		if target != nowhere {
			x.states[target] = &state{}
		}
	}
	x.states[0] = &state{asm.RFP: {frame, 0}}
	x.pending = []int{0}
	x.reached[0] = true
	for len(x.pending) > 0 {
		i := x.pending[len(x.pending)-1]
		x.pending = x.pending[:len(x.pending)-1]
		x.follow(i)
	}
}

// follow continues from the target of a jump to the next target, or to the end.
func (x *folder) follow(i int) {
	s := *x.states[i]
	for {
		ins := x.Insns[i]
		taken, skipped := x.branch(ins, &s)
		if taken {
			x.meet(x.targets[i], &s)
		}
		if !skipped {
			return
		}
		x.step(ins, &s)
		i++
		if x.states[i] != nil {
			x.meet(i, &s)
			return
		}
		x.reached[i] = true
	}
}

// meet merges a state into the state at a jump target.
func (x *folder) meet(i int, s *state) {
	old := *x.states[i]
	merged := *s
	if x.reached[i] {
		for r := range merged {
			if merged[r] != old[r] {
				merged[r] = value{}
			}
		}
		if merged == old {
			return
		}
	}
	x.reached[i] = true
	*x.states[i] = merged
	x.pending = append(x.pending, i)
}

// branch reports whether the target of a jump may follow, and whether the next instruction may.
func (x *folder) branch(ins asm.Instruction, s *state) (taken, skipped bool) {
	if !jumps(ins) {
		return false, !ends(ins)
	}
	a, b := s[ins.Dst], value{number, ins.Constant}
	if ins.OpCode.Source() == asm.RegSource {
		b = s[ins.Src]
	}
	if ins.OpCode.JumpOp() == asm.Ja {
		return true, false
	}
	if a.known != number || b.known != number || ins.OpCode.Class() != asm.JumpClass {
		return true, true
	}
	switch ins.OpCode.JumpOp() {
	case asm.JEq:
		return a.n == b.n, a.n != b.n
	case asm.JNE:
		return a.n != b.n, a.n == b.n
	case asm.JGT:
		return uint64(a.n) > uint64(b.n), uint64(a.n) <= uint64(b.n)
	case asm.JGE:
		return uint64(a.n) >= uint64(b.n), uint64(a.n) < uint64(b.n)
	case asm.JLT:
		return uint64(a.n) < uint64(b.n), uint64(a.n) >= uint64(b.n)
	case asm.JLE:
		return uint64(a.n) <= uint64(b.n), uint64(a.n) > uint64(b.n)
	default:
		return true, true
	}
}

// step evaluates what an instruction writes.
func (x *folder) step(ins asm.Instruction, s *state) {
	if _, writes := touches(ins); !pure(ins) {
		for r := range s {
			if writes.has(asm.Register(r)) {
				s[r] = value{}
			}
		}
		if ins.OpCode.AtomicOp() != asm.InvalidAtomic { // may fetch
			s[ins.Src], s[asm.R0] = value{}, value{}
		}
		return
	}
	s[ins.Dst] = x.result(ins, s)
}

func (x *folder) result(ins asm.Instruction, s *state) value {
	op := ins.OpCode
	switch {
	case btf.CORERelocationMetadata(&ins) != nil: // known only when the program is loaded
		return value{}
	case ins.IsLoadFromMap() && ins.Src == asm.PseudoMapValue && ins.Reference() == x.section:
		return value{address, ins.Constant >> 32}
	case op.Class() == asm.LdXClass && op.Mode() == asm.MemMode && s[ins.Src].known == address:
		return x.read(s[ins.Src].n+int64(ins.Offset), op.Size().Sizeof())
	case op == asm.Mov.Op(asm.ImmSource), op == asm.Mov.Op32(asm.ImmSource) && ins.Constant >= 0:
		return value{number, ins.Constant}
	case op == asm.Mov.Op(asm.RegSource):
		return s[ins.Src]
	case op.Class() == asm.ALU64Class:
		return compute(ins, s)
	}
	return value{}
}

// compute handles what clang generates for several conditions: it combines them in a register.
func compute(ins asm.Instruction, s *state) value {
	a, b := s[ins.Dst], value{number, ins.Constant}
	if ins.OpCode.Source() == asm.RegSource {
		b = s[ins.Src]
	}
	if op := ins.OpCode.ALUOp(); a.known == frame && b.known == number && op == asm.Add {
		return value{frame, a.n + b.n}
	}
	if a.known != number || b.known != number {
		return value{}
	}
	switch ins.OpCode.ALUOp() {
	case asm.And:
		return value{number, a.n & b.n}
	case asm.Or:
		return value{number, a.n | b.n}
	case asm.Xor:
		return value{number, a.n ^ b.n}
	case asm.LSh:
		return value{number, a.n << (b.n & 63)}
	case asm.RSh:
		return value{number, int64(uint64(a.n) >> (b.n & 63))}
	}
	return value{}
}

// read returns the constant at an offset.
func (x *folder) read(at int64, size int) value {
	if at < 0 || at+int64(size) > int64(len(x.constants.Values)) {
		return value{}
	}
	if late := x.constants.Late[at]; late != nil {
		return value{number, int64(late())}
	}
	var word [8]byte
	copy(word[:], x.constants.Values[at:at+int64(size)])
	return value{number, int64(binary.NativeEndian.Uint64(word[:]))}
}

// apply replaces what is known by numbers, and removes what is unreachable or has no effect.
func (x *folder) apply() {
	out := make([]bool, len(x.Insns))
	var s state
	for i, ins := range x.Insns {
		if !x.reached[i] {
			out[i] = true
			continue
		}
		if x.states[i] != nil {
			s = *x.states[i]
		}
		taken, skipped := x.branch(ins, &s)
		switch {
		case taken && !skipped:
			x.Insns[i] = asm.Ja.Label("").WithMetadata(ins.Metadata)
		case jumps(ins) && !taken:
			out[i] = true
		}
		if !jumps(ins) {
			x.Insns[i] = direct(ins, &s)
		}
		x.step(ins, &s)
		if v := s[ins.Dst]; ins.OpCode.Class() == asm.LdXClass && v.known == number && v.n == int64(int32(v.n)) {
			x.Insns[i] = asm.Mov.Imm(ins.Dst, int32(v.n)).WithMetadata(ins.Metadata)
		}
	}
	x.remove(out) // at once, as this is most of a program
	out = make([]bool, len(x.Insns))
	for effects := x.effects(); x.idle(effects, out); {
	}
	x.remove(out)
}

// direct lets a load or store on the stack use the frame pointer. Before 6.8 (41f6f64e6999, "bpf: support non-r10 register spill/fill to/from
// stack in precision tracking") the verifier loses what a load by another register depends on: it takes paths with different numbers on the stack
// for equal, and removes the code that only one of them reaches.
func direct(ins asm.Instruction, s *state) asm.Instruction {
	base := &ins.Src
	switch class := ins.OpCode.Class(); {
	case class.IsStore():
		base = &ins.Dst
	case class != asm.LdXClass:
		return ins
	}
	at := s[*base].n + int64(ins.Offset)
	if ins.OpCode.Mode() != asm.MemMode || *base == asm.RFP || s[*base].known != frame || at != int64(int16(at)) {
		return ins
	}
	*base, ins.Offset = asm.RFP, int16(at)
	return ins
}

// idle finds further instructions without effect: they write what nobody reads, or jump to the next instruction.
func (f *Flow) idle(effects []effect, out []bool) (found bool) {
	live := f.live(effects, out)
	next := len(f.Insns)
	for i := len(f.Insns) - 1; i >= 0; i-- {
		ins := f.Insns[i]
		if out[i] {
			continue
		}
		if pure(ins) && !live[i].has(ins.Dst) || jumps(ins) && f.targets[i] > i && f.targets[i] <= next {
			out[i], found = true, true
			continue
		}
		next = i
	}
	return found
}
