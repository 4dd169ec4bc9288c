package codegen

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// maxInstructions is the most for one generated function, in 8-byte units. Verifiers give up on a path with more than 8192
// conditional jumps that wait for their other branch (BPF_COMPLEXITY_LIMIT_JMP_SEQ). Almost every generated conditional jump
// follows a load and a mask or another load, so a filter and an action of this size together stay below it. Every jump stays within
// the 16 bits of its offset.
const maxInstructions = 12000

// maxMaps is the most maps that one generated function refers to. The kernel allows 64 in a BPF program, which include the
// program's own maps.
const maxMaps = 48

// Registers. The rest are scratch: the kernel's helpers change R1 to R5, and R0 holds values as they are computed.
const (
	event = asm.R6 // the event, on the caller's stack and aligned to 8 bytes
	frame = asm.R10
)

// label is a place in the code that jumps may go to. All jumps go forward, except to the head of a loop, so when a label is placed
// it is known whether anything jumps there. Unreachable code is never emitted: the verifier of 5.10 rejects it.
type label int

// nowhere is the label for absence of a value that is never absent.
const nowhere label = -1

// gen generates one function.
type gen struct {
	spec   *Spec
	letter byte // distinguishes the labels of the two functions
	part   int
	err    error

	insns   asm.Instructions
	targets []label // where each instruction jumps, or nowhere
	bound   []int   // by label: index of its instruction, -1 until it is placed
	refs    []int   // by label: how many instructions jump there
	placed  []label // in their order, which is also the order of their indices
	live    bool    // the next instruction can be reached
	over    label   // the end of the action
	loop    loop
	size    int    // in 8-byte units
	comment string // for the next instruction
	maps    map[string]bool

	context int // where keepContext stores it
	turn    int // where keepTurn stores it
	sent    int // where the part has the number of pieces that it sent, less than 0 after one without room

	pool    []asm.Register // callee-saved registers for values that are needed later
	used    mark
	deepest int // bytes of stack that the part needs

	vars     map[int]variable
	held     map[*Expr]operand
	heldText map[*Expr]text
	optional map[*Expr]bool // cache of optionalExpr

	reads []Span
}

func newGen(p *Spec, letter byte, pool ...asm.Register) *gen {
	return &gen{
		spec: p, letter: letter, live: true, pool: pool, maps: make(map[string]bool),
		held: make(map[*Expr]operand), heldText: make(map[*Expr]text), optional: make(map[*Expr]bool),
	}
}

// fail notes the first thing that the kernel cannot do. After that nothing is emitted.
func (g *gen) fail(format string, args ...any) {
	if g.err == nil {
		g.err = &LimitError{Part: g.part, Reason: fmt.Sprintf(format, args...)}
	}
}

func (g *gen) emit(insns ...asm.Instruction) {
	for _, ins := range insns {
		g.append(ins, nowhere)
	}
}

func (g *gen) append(ins asm.Instruction, target label) {
	if !g.live || g.err != nil {
		return
	}
	if g.size += int(ins.Size() / asm.InstructionSize); g.size > maxInstructions {
		g.fail("it needs more than %d instructions", maxInstructions)
		return
	}
	if ins.IsLoadFromMap() {
		if g.maps[ins.Reference()] = true; len(g.maps) > maxMaps {
			g.fail("it needs more than %d maps, including the maps of earlier clauses", maxMaps)
			return
		}
	}
	if g.comment != "" {
		ins = ins.WithSource(asm.Comment(g.comment))
		g.comment = ""
	}
	g.insns = append(g.insns, ins)
	g.targets = append(g.targets, target)
	if target != nowhere {
		g.refs[target]++
	}
}

func (g *gen) label() label {
	g.bound = append(g.bound, -1)
	g.refs = append(g.refs, 0)
	return label(len(g.refs) - 1)
}

// jump always jumps to l.
func (g *gen) jump(l label) {
	g.branch(asm.Ja.Label(""), l)
	g.live = false
}

// branch emits a jump instruction.
func (g *gen) branch(ins asm.Instruction, l label) {
	if l == nowhere && g.live {
		g.fail("a value is absent that cannot be")
		return
	}
	g.append(ins, l)
}

// place makes l the place of the next instruction. It removes jumps to the next instruction, and merges a conditional jump over an
// unconditional one into one jump.
func (g *gen) place(l label) {
	for n := len(g.insns) - 1; n >= 0 && g.targets[n] == l; n-- {
		g.live = true
		g.drop()
	}
	n := len(g.insns) - 1
	if n >= 1 && g.last() < n && g.targets[n-1] == l && g.insns[n].OpCode.JumpOp() == asm.Ja {
		if inverse, ok := invert[g.insns[n-1].OpCode.JumpOp()]; ok {
			other := g.targets[n]
			g.drop()
			g.insns[n-1].OpCode = g.insns[n-1].OpCode.SetJumpOp(inverse)
			g.targets[n-1] = other
			g.refs[l]--
			g.refs[other]++
			g.live = true
		}
	}
	if g.refs[l] > 0 {
		g.bound[l] = len(g.insns)
		g.placed = append(g.placed, l)
		g.live = true
	}
}

// last returns the index of the last instruction that has a label.
func (g *gen) last() int {
	if len(g.placed) == 0 {
		return -1
	}
	return g.bound[g.placed[len(g.placed)-1]]
}

// drop removes the last instruction, a jump.
func (g *gen) drop() {
	n := len(g.insns) - 1
	g.refs[g.targets[n]]--
	g.size--
	g.insns, g.targets = g.insns[:n], g.targets[:n]
	for i := len(g.placed) - 1; i >= 0 && g.bound[g.placed[i]] > n; i-- {
		g.bound[g.placed[i]] = n
	}
}

var invert = map[asm.JumpOp]asm.JumpOp{
	asm.JEq: asm.JNE, asm.JNE: asm.JEq, asm.JGT: asm.JLE, asm.JLE: asm.JGT, asm.JGE: asm.JLT, asm.JLT: asm.JGE,
	asm.JSGT: asm.JSLE, asm.JSLE: asm.JSGT, asm.JSGE: asm.JSLT, asm.JSLT: asm.JSGE,
}

// finish returns the function with its labels as symbols.
func (g *gen) finish() asm.Instructions {
	for i, l := range g.targets {
		if l == nowhere {
			continue
		}
		target := &g.insns[g.bound[l]]
		if target.Symbol() == "" {
			*target = target.WithSymbol(fmt.Sprintf("%s%c%d", g.spec.Prefix, g.letter, l))
		}
		g.insns[i] = g.insns[i].WithReference(target.Symbol())
	}
	return g.insns
}

// mark is how many registers of the pool and bytes of stack are in use. release frees what was allocated after a mark.
type mark struct{ registers, stack int }

func (g *gen) release(m mark) { g.used = m }

// alloc reserves bytes of stack, aligned to 8. It returns their offset from the frame pointer.
func (g *gen) alloc(size int) int {
	g.used.stack += roundUp(size)
	g.deepest = max(g.deepest, g.used.stack)
	return -g.used.stack
}

// temp allocates a place for a number that survives calls to helpers.
func (g *gen) temp() operand {
	if g.used.registers < len(g.pool) {
		g.used.registers++
		return operand{where: inRegister, reg: g.pool[g.used.registers-1]}
	}
	return operand{where: onStack, offset: g.alloc(8)}
}

// read notes that the code reads a part of the event.
func (g *gen) read(offset, size int) {
	if g.live {
		g.reads = append(g.reads, Span{offset, size})
	}
}

// set loads a constant.
func (g *gen) set(r asm.Register, x int64) {
	if fits32(x) {
		g.emit(asm.Mov.Imm(r, int32(x)))
	} else {
		g.emit(asm.LoadImm(r, x, asm.DWord))
	}
}

// fits32 reports whether x can be an immediate operand, which the machine sign-extends. cilium/ebpf silently truncates larger ones.
func fits32(x int64) bool { return x >= math.MinInt32 && x <= math.MaxInt32 }

// call calls a helper for a map, which is its first argument.
func (g *gen) call(helper asm.BuiltinFunc, mapName string) {
	g.emit(asm.LoadMapPtr(asm.R1, 0).WithReference(mapName), helper.Call())
}

// direct sets r to the address of a place in the only value of an array. No lookup is needed.
func (g *gen) direct(r asm.Register, mapName string, offset int) {
	g.emit(asm.LoadMapValue(r, 0, uint32(offset)).WithReference(mapName))
}

// pointer sets r to the address of a place on the stack.
func (g *gen) pointer(r asm.Register, offset int) {
	g.emit(asm.Mov.Reg(r, frame), asm.Add.Imm(r, int32(offset)))
}

// lookupIndex looks up an element of an array; R0 is its address or 0. It writes a whole word, although the kernel reads only the
// lower half: to the verifier a partly written word still holds its old value, and it would follow paths separately that differ
// only in that.
func (g *gen) lookupIndex(mapName string, index int) {
	m := g.used
	key := g.alloc(4)
	g.release(m)
	g.storeConst(memory{frame, key}, int64(index), 8)
	g.pointer(asm.R2, key)
	g.call(asm.FnMapLookupElem, mapName)
}

// memory is a place in memory. Its base is aligned to 8 bytes.
type memory struct {
	base   asm.Register
	offset int
}

func (m memory) plus(n int) memory { return memory{m.base, m.offset + n} }

func (g *gen) load(r asm.Register, from memory, size int) {
	g.emit(asm.LoadMem(r, from.base, int16(from.offset), widths[size]))
}

func (g *gen) store(to memory, r asm.Register, size int) {
	g.emit(asm.StoreMem(to.base, int16(to.offset), r, widths[size]))
}

// CompareExchange returns a BPF program that the kernel accepts if it has the atomic operation of Spec.CmpXchg (5.12 on amd64, 5.18
// on arm64).
func CompareExchange() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		atomic(asm.CmpXchg, memory{asm.RFP, -8}, asm.R1),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}

// atomic is an atomic operation on a word. cilium/ebpf 0.22.0 encodes every operation as an addition unless the constant holds the
// operation too.
func atomic(op asm.AtomicOp, at memory, r asm.Register) asm.Instruction {
	ins := op.Mem(at.base, r, asm.DWord, int16(at.offset))
	ins.Constant = int64(op >> 8)
	return ins
}

// storeConst stores a number of size bytes. It uses R1 for a number that is too large for an immediate operand.
func (g *gen) storeConst(to memory, x int64, size int) {
	if size == 8 && !fits32(x) {
		g.set(asm.R1, x)
		g.store(to, asm.R1, 8)
		return
	}
	// asm.StoreImm refuses to store 8 bytes, but the machine can: it sign-extends the constant.
	g.emit(asm.Instruction{OpCode: asm.StoreImmOp(widths[size]), Dst: to.base, Offset: int16(to.offset), Constant: int64(int32(x))})
}

// zero clears size bytes.
func (g *gen) zero(to memory, size int) {
	for done := 0; done < size; {
		n := step(size-done, to.offset+done)
		g.storeConst(to.plus(done), 0, n)
		done += n
	}
}

var widths = map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}

// step returns the widest access of at most size bytes that is aligned at all of the offsets. The verifier allows no other access
// to the stack.
func step(size int, offsets ...int) int {
	n := 8
	for n > size || slices.ContainsFunc(offsets, func(o int) bool { return o%n != 0 }) {
		n /= 2
	}
	return n
}

// swap reverses the bytes of R0. A single byte has no order.
func (g *gen) swap(e *Expr) {
	sizes := map[uint64]asm.Size{16: asm.Half, 32: asm.Word, 64: asm.DWord}
	if size, many := sizes[e.Num]; many {
		g.emit(asm.HostTo(asm.BE, asm.R0, size)) // the machines of trace are little-endian
		return
	}
	g.emit(asm.And.Imm(asm.R0, 0xff))
}

func (g *gen) cast(r asm.Register, e *Expr) {
	if e.Num >= 64 {
		return
	}
	if e.Num == 0 {
		g.set(r, 0)
		return
	}
	right := asm.RSh
	if e.Type.Kind == Int {
		right = asm.ArSh
	}
	g.emit(asm.LSh.Imm(r, int32(64-e.Num)), right.Imm(r, int32(64-e.Num)))
}

// pieces converts the number in R0.
func (g *gen) pieces(e *Expr) {
	end := g.label()
	for _, p := range e.Pieces {
		next := g.label()
		g.boundary(asm.JSLT, p.From, next)
		g.boundary(asm.JSGT, p.To, next)
		if p.Negated {
			g.emit(asm.Neg.Imm(asm.R0, 0))
		}
		g.emit(asm.Add.Imm(asm.R0, int32(p.Add)))
		g.jump(end)
		g.place(next)
	}
	g.set(asm.R0, int64(e.Num))
	g.place(end)
}

// boundary jumps if the number in R0 is beyond a bound. No number is below the least one.
func (g *gen) boundary(jump asm.JumpOp, bound int64, beyond label) {
	if bound != math.MinInt64 {
		g.branch(jump.Imm(asm.R0, int32(bound), ""), beyond)
	}
}

// send sends a record to user space.
func (g *gen) send(s *Emit) {
	full, end := g.label(), g.label()
	if s.Piece {
		g.load(asm.R0, memory{frame, g.sent}, 8)
		over := asm.JSLT
		if s.Ends {
			over = asm.JSLE
		}
		g.branch(over.Imm(asm.R0, 0, ""), end)
	}
	g.set(asm.R2, int64(s.Size))
	g.set(asm.R3, 0)
	g.call(asm.FnRingbufReserve, g.spec.Ring)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), full)
	// A register: kernels up to 5.10 do not let a BPF program store the address on the stack.
	at := g.temp()
	g.keep(at)
	record := memory{at.reg, 0}
	g.storeConst(record, int64(s.ID), 8)
	g.gaps(record, s)
	for _, c := range s.Copies {
		g.read(c.From, c.Size)
		g.copy(record.plus(c.To), memory{event, c.From}, c.Size)
	}
	for _, v := range s.Values {
		presence := noPresence
		if v.Presence != 0 {
			presence = v.Presence
		}
		g.column(v.Value, v.Value.Type, record.plus(v.To), v.size(), presence)
	}
	g.emit(asm.Mov.Reg(asm.R1, at.reg), asm.Mov.Imm(asm.R2, 0), asm.FnRingbufSubmit.Call())
	if s.Piece {
		g.load(asm.R0, memory{frame, g.sent}, 8)
		g.emit(asm.Add.Imm(asm.R0, 1))
		g.store(memory{frame, g.sent}, asm.R0, 8)
	}
	g.jump(end)
	g.place(full)
	if s.Piece {
		g.storeConst(memory{frame, g.sent}, -1, 8)
	}
	g.count(g.spec.Lost.Map, 0, g.spec.Lost.Offset)
	g.place(end)
}

// sendsPieces reports whether statements send a piece.
func sendsPieces(body []Stmt) bool {
	return slices.ContainsFunc(body, func(s Stmt) bool {
		switch s := s.(type) {
		case *Emit:
			return s.Piece
		case *If:
			return sendsPieces(s.Then) || sendsPieces(s.Else)
		case *Repeat:
			return sendsPieces(s.Body)
		}
		return false
	})
}

// clearSent takes a 0 that the verifier does not know: it would follow every path again for each number of pieces that were sent before.
func (g *gen) clearSent() {
	g.direct(asm.R1, ZerosName, 0)
	g.load(asm.R1, memory{asm.R1, 0}, 8)
	g.store(memory{frame, g.sent}, asm.R1, 8)
}
