package codegen

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// setSize is the size of the word before the row of a scalar map without a key. It is 1 once the map is set.
const setSize = 8

// counterSize is the size of MapCounters.
const counterSize = 32

// Offsets in MapCounters.
const (
	countFull = 8 * iota
	countNoMemory
	countBusy
	countAbsent
)

// MapSpecs returns the user's maps, and the shared maps of generated code that are used.
//
// Hashes are preallocated. Otherwise an insertion fails whenever the kernel has no memory for BPF programs, which must not sleep.
// The caller creates the two maps of a map that takes turns from the spec's InnerMap.
func MapSpecs(maps []*Map, used []string) []*ebpf.MapSpec {
	var specs []*ebpf.MapSpec
	zeros, indices := 8, 1
	for _, m := range maps {
		specs = append(specs, m.inTurns(m.spec()))
		if m.Ranks() {
			specs = append(specs, m.inTurns(m.Sets().spec(m.SetsName())))
		}
		indices = max(indices, m.Index+1)
		if len(m.Key.Columns) > 0 {
			zeros = max(zeros, m.valueSize())
		}
	}
	for _, s := range []*ebpf.MapSpec{
		{Name: CountersName, Type: ebpf.PerCPUArray, ValueSize: counterSize, MaxEntries: uint32(indices)},
		{Name: ZerosName, Type: ebpf.Array, ValueSize: uint32(zeros), MaxEntries: 1},
		{Name: TurnName, Type: ebpf.Array, ValueSize: 8, MaxEntries: 1},
		{Name: StoppedName, Type: ebpf.Array, ValueSize: 8, MaxEntries: 1},
	} {
		if slices.Contains(used, s.Name) {
			s.KeySize = 4
			specs = append(specs, s)
		}
	}
	return specs
}

// Ranks reports whether the map ranks, and so has [Sets].
func (m *Map) Ranks() bool { return m.Agg.Ranker() != nil }

// Sets returns the sets of a map that ranks.
func (m *Map) Sets() Sets { return Sets{m.Key.Size, m.MaxKeys} }

// SetsName returns the name of the sets in the BPF object.
func (m *Map) SetsName() string { return "sets_" + m.Name[:min(len(m.Name), 10)] }

// inTurns returns the map, or the array of two of them if they take turns.
func (m *Map) inTurns(s *ebpf.MapSpec) *ebpf.MapSpec {
	if !m.Turns {
		return s
	}
	return &ebpf.MapSpec{Name: s.Name, Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 2, InnerMap: s}
}

func (m *Map) valueSize() int {
	switch {
	case m.Agg != nil:
		return 8 * m.Agg.Words()
	case len(m.Key.Columns) == 0:
		return setSize + m.Value.Size
	}
	return m.Value.Size
}

func (m *Map) spec() *ebpf.MapSpec {
	perCPU := m.Agg != nil && !m.Shared
	s := &ebpf.MapSpec{Name: m.Name, KeySize: 4, ValueSize: uint32(m.valueSize()), MaxEntries: 1}
	if len(m.Key.Columns) == 0 {
		s.Type = ebpf.Array
		if perCPU {
			s.Type = ebpf.PerCPUArray
		}
		return s
	}
	s.KeySize, s.MaxEntries = uint32(m.Key.Size), m.MaxKeys
	switch {
	case perCPU && m.LRU:
		s.Type = ebpf.LRUCPUHash
	case perCPU:
		s.Type = ebpf.PerCPUHash
	case m.LRU:
		s.Type = ebpf.LRUHash
	default:
		s.Type = ebpf.Hash
	}
	return s
}

// key builds a key on the stack.
func (g *gen) key(m *Map, args []*Expr) int { return g.row(m.Key, args) }

// lookupKey looks up the key on the stack. R0 becomes the address of the value or 0.
func (g *gen) lookupKey(m *Map, key int) {
	none := g.label()
	g.pointTo(m, none)
	g.pointer(asm.R2, key)
	g.emit(asm.FnMapLookupElem.Call())
	g.place(none) // R0 is 0
}

// keepTurn stores on the stack which of two maps the BPF program uses, if it uses maps that take turns. The turn may change
// meanwhile, but all effects of an event belong to one turn.
func (g *gen) keepTurn() {
	if !slices.ContainsFunc(g.spec.Parts, func(c Part) bool { return turns(c.Body) }) {
		return
	}
	g.turn = g.alloc(8)
	g.direct(asm.R1, TurnName, 0)
	g.load(asm.R1, memory{asm.R1, 0}, 8)
	g.store(memory{frame, g.turn}, asm.R1, 8)
}

// turns reports whether statements change a map that takes turns. No statement reads one.
func turns(body []Stmt) bool {
	return slices.ContainsFunc(body, func(s Stmt) bool {
		switch s := s.(type) {
		case *Set:
			return s.Map.Turns
		case *Add:
			return s.Map.Turns
		case *Update:
			return s.Map.Turns
		case *If:
			return turns(s.Then) || turns(s.Else)
		case *Repeat:
			return turns(s.Body)
		}
		return false
	})
}

// pointTo sets R1, the first argument of helpers, to the map. A map that takes turns is looked up. The code jumps to none, with 0
// in R0, if it is not found, which the verifier considers possible.
func (g *gen) pointTo(m *Map, none label) { g.pointToMap(m.Name, m.Turns, none) }

func (g *gen) pointToMap(name string, turns bool, none label) {
	if !turns {
		g.emit(asm.LoadMapPtr(asm.R1, 0).WithReference(name))
		return
	}
	g.pointer(asm.R2, g.turn)
	g.call(asm.FnMapLookupElem, name)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), none)
	g.emit(asm.Mov.Reg(asm.R1, asm.R0))
}

// single sets R0 to the address of the only value of a map without a key, or jumps to none.
func (g *gen) single(m *Map, none label) {
	switch {
	case m.Turns:
		mark := g.used
		index := g.alloc(8)
		g.storeConst(memory{frame, index}, 0, 8)
		g.lookupKey(m, index)
		g.release(mark)
	case m.Agg != nil && !m.Shared: // each CPU has its own
		g.lookupIndex(m.Name, 0)
	default:
		g.direct(asm.R0, m.Name, 0)
		return
	}
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), none)
}

// element sets R0 to the address of the value of a key. A new key gets zeros. If that fails it counts the reason and jumps to end.
func (g *gen) element(m *Map, args []*Expr, end label) {
	if len(m.Key.Columns) == 0 {
		g.single(m, end)
		return
	}
	found, again, failed := g.label(), g.label(), g.label()
	mark := g.used
	key := g.key(m, args)
	g.lookupKey(m, key)
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), found)
	g.insertZeros(m, key, again)
	g.branch(asm.JEq.Imm32(asm.R0, 0, ""), again)
	g.branch(asm.JNE.Imm32(asm.R0, -17, ""), failed) // EEXIST: another BPF program was faster
	g.place(again)
	g.lookupKey(m, key)
	g.branch(asm.JNE.Imm(asm.R0, 0, ""), found)
	g.set(asm.R0, -16) // EBUSY: the key was deleted meanwhile
	g.place(failed)
	g.countError(m)
	g.jump(end)
	g.place(found)
	g.release(mark)
}

// insertZeros inserts zeros for the key on the stack. R0 becomes 0 or the error. The code jumps to none if there is no map.
func (g *gen) insertZeros(m *Map, key int, none label) {
	g.pointTo(m, none)
	g.pointer(asm.R2, key)
	g.direct(asm.R3, ZerosName, 0)
	g.set(asm.R4, 1) // BPF_NOEXIST
	g.emit(asm.FnMapUpdateElem.Call())
}

// countError counts the error in R0. Only its low 32 bits are valid: before 6.4 the helpers returned an int, and the JIT calls them
// directly.
func (g *gen) countError(m *Map) {
	mark := g.used
	counter := g.temp().reg // a register is free: between statements only the argument of a statement is held
	known, end := g.label(), g.label()
	g.set(counter, countFull)
	g.branch(asm.JEq.Imm32(asm.R0, -7, ""), known) // E2BIG
	g.set(counter, countNoMemory)
	g.branch(asm.JEq.Imm32(asm.R0, -12, ""), known) // ENOMEM
	g.set(counter, countBusy)
	g.place(known)
	g.lookupIndex(CountersName, m.Index)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), end)
	g.emit(asm.Add.Reg(asm.R0, counter))
	g.set(asm.R1, 1)
	g.emit(atomic(asm.AddAtomic, memory{asm.R0, 0}, asm.R1))
	g.place(end)
	g.release(mark)
}

// skipped counts an absent argument at the label absent and continues after it.
func (g *gen) skipped(m *Map, absent label) {
	end := g.label()
	g.jump(end)
	g.place(absent)
	g.count(CountersName, m.Index, countAbsent)
	g.place(end)
}

// assign generates @m[key] = value.
func (g *gen) assign(s *Set) {
	m := s.Map
	absent := g.label()
	switch {
	case len(s.Value) == 1 && m.Value.Size == 8 && !m.Value.Columns[0].Type.isText():
		g.assignNumber(s, absent)
	case len(s.Value) == 1:
		c := m.Value.Columns[0]
		row := memory{frame, g.alloc(m.Value.Size)}
		g.value(s.Value[0], row.plus(c.Offset), c.Type.width(), absent)
		if c.Optional {
			g.storeConst(row.plus(c.Presence), 1, 8)
		}
		g.assignRow(m, s.Key, row.offset)
	default:
		g.assignRow(m, s.Key, g.row(m.Value, s.Value))
	}
	g.skipped(m, absent)
}

// assignNumber sets a map whose values are single numbers. It writes in place because a store of a word is atomic.
func (g *gen) assignNumber(s *Set, absent label) {
	m := s.Map
	x := g.hold(s.Value[0], absent)
	defer g.forget(s.Value[0])
	missing, end := g.label(), g.label()
	if len(m.Key.Columns) == 0 {
		g.single(m, end)
		g.store(memory{asm.R0, setSize}, g.register(x, asm.R1), 8)
		g.storeConst(memory{asm.R0, 0}, 1, 8)
		g.place(end)
		return
	}
	key := g.key(m, s.Key)
	g.lookupKey(m, key)
	g.branch(asm.JEq.Imm(asm.R0, 0, ""), missing)
	g.store(memory{asm.R0, 0}, g.register(x, asm.R1), 8)
	g.jump(end)
	g.place(missing)
	row := g.alloc(8)
	g.store(memory{frame, row}, g.register(x, asm.R0), 8)
	g.insert(m, key, row)
	g.place(end)
}

// assignRow sets a map to a row on the stack.
func (g *gen) assignRow(m *Map, key []*Expr, row int) {
	if len(m.Key.Columns) > 0 {
		g.insert(m, g.key(m, key), row)
		return
	}
	end := g.label()
	g.single(m, end)
	g.copy(memory{asm.R0, setSize}, memory{frame, row}, m.Value.Size)
	g.storeConst(memory{asm.R0, 0}, 1, 8)
	g.place(end)
}

// insert sets a key of a hash. Key and row are on the stack.
func (g *gen) insert(m *Map, key, row int) {
	end := g.label()
	g.pointTo(m, end)
	g.pointer(asm.R2, key)
	g.pointer(asm.R3, row)
	g.set(asm.R4, 0) // BPF_ANY
	g.emit(asm.FnMapUpdateElem.Call())
	g.branch(asm.JEq.Imm32(asm.R0, 0, ""), end)
	g.countError(m)
	g.place(end)
}

// add generates @m[key] += delta.
func (g *gen) add(s *Add) {
	m := s.Map
	if m.Agg != nil || m.Value.Size != 8 || m.Value.Columns[0].Type.isText() {
		g.fail("the kernel can add only to a number that is never absent")
		return
	}
	absent, end := g.label(), g.label()
	delta := g.hold(s.Delta, absent)
	g.element(m, s.Key, end)
	value := 0
	if len(m.Key.Columns) == 0 {
		g.storeConst(memory{asm.R0, 0}, 1, 8)
		value = setSize
	}
	g.emit(atomic(asm.AddAtomic, memory{asm.R0, value}, g.register(delta, asm.R1)))
	g.forget(s.Delta)
	g.place(end)
	g.skipped(m, absent)
}

// remove generates delete(@m, key).
func (g *gen) remove(s *Delete) {
	m := s.Map
	switch {
	case len(m.Key.Columns) > 0:
		end := g.label()
		key := g.key(m, s.Key)
		g.pointTo(m, end)
		g.pointer(asm.R2, key)
		g.emit(asm.FnMapDeleteElem.Call())
		g.branch(asm.JEq.Imm32(asm.R0, 0, ""), end)
		g.branch(asm.JEq.Imm32(asm.R0, -2, ""), end) // ENOENT: there is no such key
		g.countError(m)
		g.place(end)
	case m.Agg == nil:
		g.direct(asm.R2, m.Name, 0)
		g.zero(memory{asm.R2, 0}, m.valueSize())
	default: // each CPU has its own value
		g.fail("the kernel cannot delete @%s, which has no key", m.Name)
	}
}

// hasKey sets R0 to non-zero if the map has the key, otherwise to 0.
func (g *gen) hasKey(e *Expr) {
	m := e.Map
	switch {
	case len(m.Key.Columns) > 0:
		mark := g.used
		g.lookupKey(m, g.key(m, e.Args))
		g.release(mark)
	case m.Agg == nil:
		g.direct(asm.R1, m.Name, 0)
		g.load(asm.R0, memory{asm.R1, 0}, 8)
	default:
		g.fail("the kernel cannot find out whether @%s has a value", m.Name)
	}
}
