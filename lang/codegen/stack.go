package codegen

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	events "trace/probes/event" // event is a register in this package
)

// Stack is what OpStack captures: frames of the kernel or of the current process, at most Frames of them, from the innermost one.
//
// Its value is a number that stands for the frames and, for a user stack, for the process: a hash of both. The map
// StacksName(Frames) holds a StackHeader and the addresses under that number, with zeros after the last address. They stay there as
// long as the program runs. A stack without room is counted, and its number is still valid as a key. With 64 bits, two of a hundred
// thousand stacks share a number once in four billion runs. BPF_MAP_TYPE_STACK_TRACE has 2^n buckets and chooses one by 32 bits of
// hash: with a quarter of the buckets in use, most lookups collide.
//
// No stack is deleted before the end, even if the map that had it as a key was cleared. Its number may be in another map, in a
// variable, in a recording or in a record on its way, and code that finds a stack in the map does not write it again. Only a
// program whose stacks are all keys of maps that take turns could have a map of stacks for each turn. That would take twice the
// memory for every user of stacks, because these maps have their full size from the start. Users who print and clear stacks for
// hours can give them that memory with a larger map (--map-size).
//
// The cost is walking the stack: 1.4 us for the kernel stack in a system call and 1.0 us for the stack of a small process, whether
// by bpf_get_stack, by bpf_get_stackid or by this code (6.18).
//
// A stack without frames is absent: the user stack of a kernel thread, or the kernel stack of a sample in user mode.
type Stack struct {
	User   bool
	Frames int // 1 to events.MaxFrames
}

// Cut is which of the innermost frames of a kernel stack belong to tracing itself: to the BPF program, which has its own frames at
// each hook, and to its callers. The array StackCutsName has ranges of addresses at Offset in its only value: pairs of 64 bits,
// first address and size.
type Cut struct {
	Offset, Ranges int
	// Through cuts all frames up to the last one within the ranges. Otherwise all frames before the first one within the ranges are
	// cut. Without such a frame, the number of cut frames is Unfound.
	Through bool
	// Unfound is the symbol of a number, 0 here, that the loader replaces: it knows what calls the BPF program.
	Unfound string
}

// cutFrames is the most frames of tracing: two of BPF, bpf_trace_run2, __bpf_trace_x, __traceiter_x.
const cutFrames = 6

// Names of the maps of stacks.
const (
	StackSlotsName  = "stack_slots"  // per-CPU array of one value: where stacks are captured
	StackCountsName = "stack_counts" // per-CPU array of one value: StackCounters
	StackCutsName   = "stack_cuts"   // array of one value: see Cut
)

// StacksName returns the name of the map for stacks of so many frames.
func StacksName(frames int) string { return fmt.Sprintf("stacks_%d", frames) }

// StackHeader begins the value of a stack.
type StackHeader struct {
	PID   uint64 // whose stack it is; 0: the kernel's
	Nsecs uint64 // since boot (CLOCK_BOOTTIME), when it was first seen
}

const stackHeaderSize = 16

// StackCounters count stacks that were lost or incomplete: 64 bits each.
type StackCounters struct {
	Full     uint64 // no room for its frames (E2BIG)
	NoMemory uint64 // the same, for another reason
	Busy     uint64 // absent: too many BPF programs interrupted one another, or one was preempted
	Failed   uint64 // absent: the kernel did not walk it because its own buffers were in use
}

// Offsets in StackCounters.
const (
	stackFull = 8 * iota
	stackNoMemory
	stackBusy
	stackFailed
	stackCounterSize
)

// The value of StackSlotsName: a word with the number of slots in use, and the slots. A slot is a word that is 1 while it is in
// use, a word for a value that the verifier should forget, and room for a stack's value, whose start moves up by the frames that
// are cut.
const (
	stackLevels = 4 // a task, and the soft, hard and non-maskable interrupts that may interrupt it
	slotScratch = 8
	slotValue   = 16
	slotSize    = slotValue + stackHeaderSize + 8*(events.MaxFrames+cutFrames)
)

// StackSpace is what the stacks of a program need: the numbers of frames, the room for stacks of each, and the number of ranges.
type StackSpace struct {
	Frames    []int
	MaxStacks func(frames int) uint32
	Ranges    int
}

// StackValueSize returns the size of the value of a stack in bytes.
func StackValueSize(frames int) int { return stackHeaderSize + 8*frames }

// StackSlotsSize is how many bytes stacks are captured in on each CPU.
const StackSlotsSize = 8 + stackLevels*slotSize

// Specs returns the maps.
func (s StackSpace) Specs() []*ebpf.MapSpec {
	if len(s.Frames) == 0 {
		return nil
	}
	specs := []*ebpf.MapSpec{
		{Name: StackSlotsName, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: StackSlotsSize, MaxEntries: 1},
		{Name: StackCountsName, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: stackCounterSize, MaxEntries: 1},
		{Name: StackCutsName, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(16 * max(s.Ranges, 1)), MaxEntries: 1},
	}
	for _, n := range s.Frames {
		specs = append(specs, &ebpf.MapSpec{
			Name: StacksName(n), Type: ebpf.Hash, KeySize: 8, ValueSize: uint32(StackValueSize(n)), MaxEntries: s.MaxStacks(n),
		})
	}
	return specs
}

// hasStack reports whether an expression captures a stack.
func hasStack(e *Expr) bool {
	if e == nil {
		return false
	}
	for _, a := range e.Args {
		if hasStack(a) {
			return true
		}
	}
	return e.Op == OpStack
}

// keepContext stores the context of the BPF program, R1, if the function captures stacks: the kernel walks from there.
func (g *gen) keepContext(filter bool) {
	wanted := false
	for i := range g.spec.Parts {
		c := &g.spec.Parts[i]
		if filter == c.filtered() {
			wanted = wanted || hasStack(c.Pred)
		}
		if !filter {
			eachExpr(c.Body, func(e *Expr) { wanted = wanted || hasStack(e) }, func(int) {})
		}
	}
	if wanted {
		g.context = g.alloc(8)
		g.store(memory{frame, g.context}, asm.R1, 8)
	}
}

// stack captures a stack and sets R0 to its number, or jumps to absent.
//
// It is captured in a slot, not on the stack of 512 bytes. An interrupt may run a BPF program meanwhile that captures a stack too.
// That one takes the next slot: the word depth counts the slots in use. Where BPF programs can be preempted, the next slot may
// belong to a BPF program that waits, so each slot also has an owner. Kernels that preempt BPF programs have the atomic operations
// for it (5.12). Before, BPF programs ran with preemption disabled: interrupts end before the code that they interrupt continues,
// so plain operations suffice.
func (g *gen) stack(e *Expr, absent label) {
	if e.Stack.User && g.spec.StackOf != nil {
		g.jump(absent) // the kernel refuses it
		return
	}
	mark := g.used
	busy, failed, release, end := g.label(), g.label(), g.label(), g.label()
	slots, slot, id := g.temp(), g.temp(), g.alloc(8)
	g.lookupIndex(StackSlotsName, 0)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), absent) // unreachable, but the verifier cannot know
	g.keep(slots)
	g.storeConst(memory{frame, id}, 0, 8)
	g.claimSlot(slots, slot, busy)

	// Frames that are cut come on top of those that the program wants.
	room := e.Stack.Frames
	flags := int32(1 << 8) // BPF_F_USER_STACK
	if !e.Stack.User {
		flags = 0
		if g.spec.Cut.Ranges > 0 {
			room += cutFrames
		}
	}
	g.load(asm.R1, memory{frame, g.context}, 8)
	g.use(asm.R2, slot)
	g.emit(asm.Add.Imm(asm.R2, slotValue+stackHeaderSize), asm.Mov.Imm(asm.R3, int32(8*room)), asm.Mov.Imm(asm.R4, flags))
	if g.spec.StackOf == nil {
		g.emit(asm.FnGetStack.Call())
	} else {
		g.load(asm.R1, memory{asm.R1, 8 * *g.spec.StackOf}, 8)
		g.emit(asm.FnGetTaskStack.Call())
	}
	g.branch(asm.JSLT.Imm32(asm.R0, 0, ""), failed)
	g.branch(asm.JEq.Imm32(asm.R0, 0, ""), release)

	entry := slot
	if !e.Stack.User && g.spec.Cut.Ranges > 0 {
		entry = g.temp()
		g.cut(slot, release)
		g.keep(entry)
	}
	g.storeStack(e.Stack, entry, id)
	g.jump(release)

	g.place(failed)
	g.count(StackCountsName, 0, stackFailed)
	g.place(release)
	g.releaseSlot(slots, slot)
	g.load(asm.R0, memory{frame, id}, 8)
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), end)
	g.jump(absent)
	g.place(busy)
	g.count(StackCountsName, 0, stackBusy)
	g.jump(absent)
	g.place(end)
	g.release(mark)
}

// claimSlot takes the next slot, or jumps to busy.
func (g *gen) claimSlot(slots, slot operand, busy label) {
	const depth, at = asm.R1, asm.R2
	g.use(asm.R0, slots)
	if g.spec.CmpXchg {
		g.set(depth, 1)
		g.emit(atomic(asm.FetchAdd, memory{asm.R0, 0}, depth))
	} else {
		g.load(depth, memory{asm.R0, 0}, 8)
		g.emit(asm.Mov.Reg(at, depth), asm.Add.Imm(at, 1))
		g.store(memory{asm.R0, 0}, at, 8)
	}
	free, taken := g.label(), g.label()
	g.branch(asm.JGT.Imm(depth, stackLevels-1, ""), taken)
	g.emit(asm.Mul.Imm(depth, slotSize), asm.Mov.Reg(at, asm.R0), asm.Add.Reg(at, depth), asm.Add.Imm(at, 8))
	if !g.spec.CmpXchg {
		g.jump(free)
	} else {
		const owner = asm.R3
		g.set(owner, 1)
		g.emit(atomic(asm.Xchg, memory{at, 0}, owner))
		g.branch(asm.JEq.Imm(owner, 0, ""), free)
	}
	g.place(taken)
	g.leaveSlots(asm.R0)
	g.jump(busy)
	g.place(free)
	g.emit(asm.Mov.Reg(asm.R0, at))
	g.keep(slot)
}

// releaseSlot gives a slot back.
func (g *gen) releaseSlot(slots, slot operand) {
	g.use(asm.R1, slot)
	g.storeConst(memory{asm.R1, 0}, 0, 8)
	g.use(asm.R1, slots)
	g.leaveSlots(asm.R1)
}

// leaveSlots decrements the number of slots in use. It uses R2.
func (g *gen) leaveSlots(slots asm.Register) {
	depth := memory{slots, 0}
	if g.spec.CmpXchg {
		g.set(asm.R2, -1)
		g.emit(atomic(asm.AddAtomic, depth, asm.R2))
		return
	}
	g.load(asm.R2, depth, 8)
	g.emit(asm.Sub.Imm(asm.R2, 1))
	g.store(depth, asm.R2, 8)
}

// cut sets R0 to the slot, moved up by the frames that are cut. Their number goes through memory. Otherwise the verifier would
// follow the rest once for each number.
func (g *gen) cut(slot operand, nothing label) {
	const cut, at, ranges, address, size, distance = asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5
	c := g.spec.Cut
	g.use(at, slot)
	g.emit(asm.Mov.Imm(cut, 0).WithReference(c.Unfound))
	g.direct(ranges, StackCutsName, c.Offset)
	done := g.label()
	for i := range cutFrames {
		within, next := g.label(), g.label()
		g.load(address, memory{at, slotValue + stackHeaderSize + 8*i}, 8)
		for k := range c.Ranges {
			g.load(size, memory{ranges, 16 * k}, 8)
			g.emit(asm.Mov.Reg(distance, address), asm.Sub.Reg(distance, size))
			g.load(size, memory{ranges, 16*k + 8}, 8)
			g.branch(asm.JLT.Reg(distance, size, ""), within)
		}
		g.jump(next)
		g.place(within)
		if c.Through {
			g.set(cut, int64(i+1))
		} else {
			g.set(cut, int64(i))
			g.jump(done)
		}
		g.place(next)
	}
	g.place(done)
	g.store(memory{at, slotScratch}, cut, 8)
	g.load(cut, memory{at, slotScratch}, 8)
	g.branch(asm.JGT.Imm(cut, cutFrames, ""), nothing) // unreachable
	g.emit(asm.LSh.Imm(cut, 3), asm.Add.Reg(cut, at))
}

// Hash of stacks. Each step is a bijection of the frame for a given hash, and of the hash for a given frame.
const (
	stackSeed  = 0x27d4eb2f165667c5
	stackPrime = -0x61c8864680b583eb // 2^64/golden ratio, odd
)

// hashedAtOnce is how many frames are hashed before the code checks whether there are more; the zeros after the last one are hashed
// too. Each check is a path for the verifier, with all code that follows. With a check at every frame, the verifier of 5.10 took
// minutes in an emulated machine for a record with two stacks, whose optional fields already make hundreds of paths.
const hashedAtOnce = 16

// StackNumber returns the value of OpStack for a stack, of at most most frames.
func StackNumber(pid uint64, frames []uint64, most int) uint64 {
	h := uint64(stackSeed)
	step := func(x uint64) {
		prime := int64(stackPrime)
		h = (h ^ x) * uint64(prime)
		h ^= h >> 32
	}
	step(pid)
	whole := (len(frames) + hashedAtOnce - 1) / hashedAtOnce * hashedAtOnce
	for i := range min(whole, most) {
		if i < len(frames) {
			step(frames[i])
		} else {
			step(0)
		}
	}
	return max(h, 1)
}

// storeStack computes the number of the stack in a slot into the word id, and stores the stack under it.
func (g *gen) storeStack(s *Stack, entry operand, id int) {
	const hash, prime, address, at = asm.R2, asm.R3, asm.R4, asm.R1
	if s.User {
		g.emit(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
	} else {
		g.set(asm.R0, 0)
	}
	g.use(at, entry)
	g.store(memory{at, slotValue}, asm.R0, 8)
	g.set(hash, stackSeed)
	g.set(prime, stackPrime)
	g.mix(hash, asm.R0, prime)
	hashed, some, known := g.label(), g.label(), g.label()
	for i := range s.Frames {
		g.load(address, memory{at, slotValue + stackHeaderSize + 8*i}, 8)
		if i > 0 && i%hashedAtOnce == 0 {
			g.branch(asm.JEq.Imm(address, 0, ""), hashed)
		}
		g.mix(hash, address, prime)
	}
	g.place(hashed)
	g.branch(asm.JNE.Imm(hash, 0, ""), some)
	g.set(hash, 1) // 0 means no stack
	g.place(some)
	g.store(memory{frame, id}, hash, 8)

	g.pointer(asm.R2, id)
	g.call(asm.FnMapLookupElem, StacksName(s.Frames))
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), known)
	g.emit(asm.FnKtimeGetBootNs.Call())
	g.use(asm.R3, entry)
	g.emit(asm.Add.Imm(asm.R3, slotValue))
	g.store(memory{asm.R3, 8}, asm.R0, 8)
	g.pointer(asm.R2, id)
	g.set(asm.R4, 1) // BPF_NOEXIST
	g.call(asm.FnMapUpdateElem, StacksName(s.Frames))
	g.branch(asm.JEq.Imm32(asm.R0, 0, ""), known)
	g.branch(asm.JEq.Imm32(asm.R0, -17, ""), known) // EEXIST: another BPF program was faster
	full := g.label()
	g.branch(asm.JEq.Imm32(asm.R0, -7, ""), full) // E2BIG
	g.count(StackCountsName, 0, stackNoMemory)
	g.jump(known)
	g.place(full)
	g.count(StackCountsName, 0, stackFull)
	g.place(known)
}

// mix adds a word to a hash. It changes x.
func (g *gen) mix(hash, x, prime asm.Register) {
	g.emit(
		asm.Xor.Reg(hash, x), asm.Mul.Reg(hash, prime),
		asm.Mov.Reg(x, hash), asm.RSh.Imm(x, 32), asm.Xor.Reg(hash, x),
	)
}
