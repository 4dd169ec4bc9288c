package codegen

import (
	"math"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"trace/lang/agg"
)

// update generates @m[key] = f(arg). The additions are atomic unless the map is Alone: another BPF program may interrupt or preempt
// this one on its CPU.
func (g *gen) update(s *Update) {
	m := s.Map
	arg := s.Arg
	if arg == nil {
		arg = &Expr{Op: OpLit, Type: Type{Kind: Uint}, Num: 1}
	}
	absent, end := g.label(), g.label()
	x := g.hold(arg, absent)
	if m.Ranks() {
		g.ranked(m, s.Key, x, end)
	} else {
		g.element(m, s.Key, end)
	}
	one := operand{leaf: &Expr{Op: OpLit, Num: 1}}
	switch shape := m.Agg.Shape().(type) {
	case agg.Counter:
		if !shape.Values {
			x = one
		}
		g.addTo(m, 0, x)
	case agg.Ranked:
		g.addTo(m, 0, x)
	case agg.CountAndSum:
		g.addTo(m, 0, one)
		g.addTo(m, 8, x)
	case agg.Extreme:
		g.extreme(m, shape, x, end)
	case agg.Buckets:
		g.bucket(m.Agg, shape.Ranges, x, g.width(arg))
		last := shape.Count() - 1
		g.branch(asm.JGT.Imm(bucket, int32(last), ""), end) // unreachable, but the verifier cannot know
		if shape.Exemplars && s.Thread != nil {
			g.exemplar(shape, s)
		}
		g.emit(asm.LSh.Imm(bucket, 3), asm.Add.Reg(asm.R0, bucket))
		g.addTo(m, 0, one)
	}
	g.forget(arg)
	g.place(end)
	g.skipped(m, absent)
}

// addTo adds to a word of the state at R0.
func (g *gen) addTo(m *Map, offset int, x operand) {
	word := memory{asm.R0, offset}
	if !m.Alone {
		g.emit(atomic(asm.AddAtomic, word, g.register(x, asm.R1)))
		return
	}
	added := g.register(x, asm.R1)
	g.load(asm.R2, word, 8)
	g.emit(asm.Add.Reg(asm.R2, added))
	g.store(word, asm.R2, 8)
}

// bucket is the register for the index of a bucket.
const bucket = asm.R3

// bucket computes Ranges.Index for a number of at most width bits. It leaves R0 alone.
func (g *gen) bucket(a *agg.Agg, ranges agg.Ranges, x operand, width int) {
	const n = asm.R1
	done := g.label()
	last := ranges.Count() - 1
	g.use(n, x)
	g.set(bucket, 0)
	switch r := ranges.(type) {
	case agg.Linear:
		g.branchLess(a, n, r.Low, done)
		g.set(bucket, int64(last))
		g.branchNotLess(a, n, r.High, done)
		g.subtract(n, r.Low)
		g.divideBelow(n, uint64(r.Width), uint64(r.High)-uint64(r.Low))
		g.emit(asm.Mov.Reg(bucket, n), asm.Add.Imm(bucket, 1))
	case agg.Log:
		g.branchLess(a, n, r.Low, done)
		if r.Top > 0 && width > r.Top {
			g.set(bucket, int64(last))
			g.set(asm.R2, 1<<r.Top)
			g.branch(asm.JGE.Reg(n, asm.R2, ""), done)
			width = r.Top
		}
		g.subtract(n, r.Low)
		if r.Shift > 0 {
			g.emit(asm.RSh.Imm(n, int32(r.Shift)))
		}
		if r.Low < 0 {
			width = 64
		}
		g.logBucket(n, r.Bits, width-r.Shift)
	}
	g.place(done)
}

// exemplar offers the event to the slot of its bucket (see agg.Slots) in the state at R0. It leaves R0 and the bucket alone. Events of a
// CPU come in the order of their times, so one of the same bucket is the later one. An event without a thread is no exemplar.
func (g *gen) exemplar(shape agg.Buckets, s *Update) {
	const there, found, slot, mix = asm.R1, asm.R2, asm.R4, asm.R5
	take, end := g.label(), g.label()
	at, thread := g.hold(s.At, end), g.hold(s.Thread, end)
	g.emit(asm.Mov.Reg(slot, bucket))
	if bits := shape.GroupBits(); bits > 0 {
		g.emit(asm.Add.Imm(slot, 1<<bits-1), asm.RSh.Imm(slot, int32(bits)))
	}
	g.emit(asm.And.Imm(slot, agg.Slots-1), asm.Mul.Imm(slot, 8*agg.SlotSize), asm.Add.Reg(slot, asm.R0))
	time := memory{slot, 8 * shape.Count()}
	both := time.plus(8)
	g.set(mix, agg.Mix)
	g.load(there, time, 8)
	g.load(found, both, 8)
	g.emit(asm.Mul.Reg(there, mix), asm.Xor.Reg(found, there), asm.RSh.Imm(found, agg.BucketShift))
	g.branch(asm.JGE.Reg(bucket, found, ""), take)
	g.load(there, time, 8)
	g.use(found, at)
	g.emit(asm.Sub.Reg(found, there), asm.ArSh.Imm(found, agg.OldBits))
	g.branch(asm.JSLE.Imm(found, 0, ""), end)
	g.place(take)
	g.use(there, at)
	g.store(time, there, 8)
	g.emit(asm.Mul.Reg(there, mix), asm.Mov.Reg(found, bucket), asm.LSh.Imm(found, agg.BucketShift))
	g.use(mix, thread)
	g.emit(asm.Or.Reg(found, mix), asm.Xor.Reg(found, there))
	g.store(both, found, 8)
	g.place(end)
	g.forget(s.At, s.Thread)
}

// branchLess jumps to l if n is less than the bound, both taken as mathematical numbers; branchNotLess jumps if it is not.
func (g *gen) branchLess(a *agg.Agg, n asm.Register, bound int64, l label) {
	switch {
	case a.Signed:
		g.branchConst(asm.JSLT, n, bound, l)
	case bound > 0:
		g.branchConst(asm.JLT, n, bound, l)
	}
}

func (g *gen) branchNotLess(a *agg.Agg, n asm.Register, bound int64, l label) {
	switch {
	case a.Signed:
		g.branchConst(asm.JSGE, n, bound, l)
	case bound > 0:
		g.branchConst(asm.JGE, n, bound, l)
	default:
		g.jump(l)
	}
}

// branchConst compares a register with a constant. It uses R2.
func (g *gen) branchConst(op asm.JumpOp, r asm.Register, c int64, l label) {
	if fits32(c) {
		g.branch(op.Imm(r, int32(c), ""), l)
	} else {
		g.set(asm.R2, c)
		g.branch(op.Reg(r, asm.R2, ""), l)
	}
}

// subtract uses R2.
func (g *gen) subtract(r asm.Register, c int64) {
	switch {
	case c == 0:
	case fits32(c):
		g.emit(asm.Sub.Imm(r, int32(c)))
	default:
		g.set(asm.R2, c)
		g.emit(asm.Sub.Reg(r, asm.R2))
	}
}

// logBucket computes logBucket of n, which has at most width bits. A step halves the distance of n from the numbers below 2^(k+1),
// which have buckets of their own. It costs a jump, and two more instructions if it shifts.
func (g *gen) logBucket(n asm.Register, k, width int) {
	g.set(bucket, 1)
	for shift := 32; shift > 0; shift /= 2 {
		if shift+k >= width {
			continue
		}
		next := g.label()
		if shift+k < 31 {
			g.branch(asm.JLT.Imm(n, 1<<(shift+k), ""), next)
		} else {
			g.set(asm.R2, 1<<(shift+k))
			g.branch(asm.JLT.Reg(n, asm.R2, ""), next)
		}
		g.emit(asm.RSh.Imm(n, int32(shift)), asm.Add.Imm(bucket, int32(shift<<k)))
		g.place(next)
	}
	g.emit(asm.Add.Reg(bucket, n))
}

// divideBelow divides n, which is less than bound, by a constant. It uses R2. Below 2^31 n/step is n*m>>s with m = 2^s/step rounded
// up: with s = 31 + the bits of step, the error of m is too small to matter, and the product fits in 64 bits. That takes a few
// cycles; a division takes tens on many machines.
func (g *gen) divideBelow(n asm.Register, step, bound uint64) {
	switch {
	case step >= bound:
		g.set(n, 0)
	case step&(step-1) == 0:
		g.emit(asm.RSh.Imm(n, int32(bits.TrailingZeros64(step))))
	case bound <= math.MaxInt32:
		s := 31 + bits.Len64(step)
		g.set(asm.R2, int64((1<<s+step-1)/step))
		g.emit(asm.Mul.Reg(n, asm.R2), asm.RSh.Imm(n, int32(s)))
	default:
		g.set(asm.R2, int64(step))
		g.emit(asm.Div.Reg(n, asm.R2))
	}
}

// extreme puts x into the state of Min or Max at R0 (see agg.Extreme): the larger of two words is the better one.
//
// Between any two instructions, an interrupt may run a BPF program that puts another value into the same state. Any other BPF
// program may do so if BPF programs can be preempted or all CPUs share the state. So compare-and-exchange updates the word.
//
// A map that is Alone needs none of this. Kernels without compare-and-exchange (before 5.12, and later on some machines) get a
// plain store. They lose a value that comes between the comparison and the store of another value, within a nanosecond or two on
// the same CPU.
func (g *gen) extreme(m *Map, shape agg.Extreme, x operand, end label) {
	const state, value, found = asm.R2, asm.R3, asm.R4
	g.emit(asm.Mov.Reg(state, asm.R0))
	g.use(value, x)
	if mask := shape.Mask(m.Agg.Signed); mask != 0 {
		g.set(asm.R1, int64(mask))
		g.emit(asm.Xor.Reg(value, asm.R1))
	}
	some := g.label()
	g.branch(asm.JNE.Imm(value, 0, ""), some)
	g.storeConst(memory{state, 0}, 1, 8)
	g.jump(end)
	g.place(some)
	best := memory{state, 8}
	g.load(found, best, 8)
	if m.Alone || !g.spec.CmpXchg {
		g.branch(asm.JLE.Reg(value, found, ""), end)
		g.store(best, value, 8)
		return
	}
	for range cmpXchgTries {
		g.branch(asm.JLE.Reg(value, found, ""), end)
		g.emit(asm.Mov.Reg(asm.R0, found), atomic(asm.CmpXchg, best, value))
		g.branch(asm.JEq.Reg(asm.R0, found, ""), end)
		g.emit(asm.Mov.Reg(found, asm.R0))
	}
	g.count(CountersName, m.Index, countBusy)
}

// cmpXchgTries is how often a value is compared again after another BPF program has changed the word.
const cmpXchgTries = 4

// ranked sets R0 to the address of the state of a key in the hash. If there is no room, it adds to the state in a set and jumps to
// end.
func (g *gen) ranked(m *Map, args []*Expr, x operand, end label) {
	added, full, again, failed := g.label(), g.label(), g.label(), g.label()
	mark := g.used
	key := g.key(m, args)
	g.lookupKey(m, key)
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), added)
	g.lookupSet(m, key, end)
	g.load(asm.R1, memory{asm.R0, firstWay + wayState}, 8)
	g.branch(asm.JNE.Imm(asm.R1, 0, ""), full)
	g.insertZeros(m, key, again)
	g.branch(asm.JEq.Imm32(asm.R0, 0, ""), again)
	g.branch(asm.JEq.Imm32(asm.R0, -17, ""), again) // EEXIST: another BPF program was faster
	g.branch(asm.JNE.Imm32(asm.R0, -7, ""), failed) // E2BIG
	g.lookupSet(m, key, end)
	g.jump(full)
	g.place(again)
	g.lookupKey(m, key)
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), added)
	g.set(asm.R0, -16) // EBUSY: it is missing, which cannot happen
	g.place(failed)
	g.countError(m)
	g.jump(end)
	g.place(full)
	g.emit(asm.Mov.Reg(set, asm.R0))
	g.inSet(m, key, x)
	g.jump(end)
	g.place(added)
	g.release(mark)
}

// lookupSet sets R0 to the address of the set of the key on the stack, or jumps to none.
func (g *gen) lookupSet(m *Map, key int, none label) {
	const hash, word, factor = asm.R1, asm.R2, asm.R3
	mark := g.used
	index := g.alloc(8)
	g.release(mark)
	g.set(hash, 0)
	g.set(factor, agg.Mix) // it spreads the bits of a key
	for at := 0; at < m.Key.Size; at += 8 {
		g.load(word, memory{frame, key + at}, 8)
		g.emit(asm.Xor.Reg(hash, word), asm.Mul.Reg(hash, factor))
	}
	g.emit(asm.RSh.Imm(hash, int32(64-bits.Len(uint(m.Sets().Count()-1)))))
	g.store(memory{frame, index}, hash, 8)
	g.pointToMap(m.SetsName(), m.Turns, none)
	g.pointer(asm.R2, index)
	g.emit(asm.FnMapLookupElem.Call())
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), none)
}

// Registers of the code for a set: its address, the way to change, and the least state so far. R0 and R5 are scratch.
const (
	set   = asm.R1
	way   = asm.R2
	least = asm.R3
	state = asm.R4
)

// inSet adds to the state of a key in its set. A BPF program that interrupts or preempts another one in the same set of the same
// CPU loses its update, which is counted.
func (g *gen) inSet(m *Map, key int, x operand) {
	busy, end := g.label(), g.label()
	g.lockSet(m, busy)
	g.findWay(m, key)
	g.load(state, memory{way, wayState}, 8)
	g.emit(asm.Add.Reg(state, g.register(x, asm.R5)))
	g.store(memory{way, wayState}, state, 8)
	g.unlockSet(m)
	g.jump(end)
	g.place(busy)
	g.unlockSet(m)
	g.count(CountersName, m.Index, countBusy)
	g.place(end)
}

// lockSet takes a set, or jumps to busy if another BPF program of this CPU has it or is about to take it. A program has the set if
// it finds its own 1 alone in the first word. Additions have been atomic in all kernels; compare-and-exchange has not.
func (g *gen) lockSet(m *Map, busy label) {
	if m.Alone {
		return
	}
	g.addToSet(1)
	g.load(asm.R0, memory{set, 0}, 8)
	g.branch(asm.JNE.Imm(asm.R0, 1, ""), busy)
}

// unlockSet takes back what lockSet has added.
func (g *gen) unlockSet(m *Map) {
	if !m.Alone {
		g.addToSet(-1)
	}
}

func (g *gen) addToSet(n int64) {
	g.set(asm.R5, n)
	g.emit(atomic(asm.AddAtomic, memory{set, 0}, asm.R5))
}

// findWay finds the way of a key in its set, or makes one.
func (g *gen) findWay(m *Map, key int) {
	found, free := g.label(), g.label()
	g.emit(asm.Mov.Reg(way, set), asm.Add.Imm(way, firstWay))
	for i := range waysOfSet {
		at, differs, next := m.Sets().way(i), g.label(), g.label()
		g.load(state, memory{set, at + wayState}, 8)
		taken := g.label()
		g.branch(asm.JNE.Imm(state, 0, ""), taken)
		g.pointWay(at)
		g.jump(free)
		g.place(taken)
		for word := 0; word < m.Key.Size; word += 8 {
			g.load(asm.R0, memory{set, at + wayKey + word}, 8)
			g.load(asm.R5, memory{frame, key + word}, 8)
			g.branch(asm.JNE.Reg(asm.R0, asm.R5, ""), differs)
		}
		g.pointWay(at)
		g.jump(found)
		g.place(differs)
		if i > 0 {
			g.branch(asm.JGE.Reg(state, least, ""), next)
			g.pointWay(at)
		}
		g.emit(asm.Mov.Reg(least, state))
		g.place(next)
	}
	g.store(memory{way, wayError}, least, 8)
	g.place(free)
	for word := 0; word < m.Key.Size; word += 8 {
		g.load(asm.R0, memory{frame, key + word}, 8)
		g.store(memory{way, wayKey + word}, asm.R0, 8)
	}
	g.place(found)
}

func (g *gen) pointWay(offset int) {
	g.emit(asm.Mov.Reg(way, set), asm.Add.Imm(way, int32(offset)))
}
