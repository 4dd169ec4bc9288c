package codegen

import (
	"strings"

	"github.com/cilium/ebpf/asm"
)

func (t Type) isText() bool { return t.Kind == String || t.Kind == Bytes }

// text is a string or bytes: a literal, or bytes in the event or on the stack, padded with NULs.
type text struct {
	memory
	size    int
	field   *Field // the field that the memory belongs to
	literal *string
}

// text makes the value of e addressable, or jumps to absent. It may allocate stack.
func (g *gen) text(e *Expr, absent label) text {
	if s, ok := g.heldText[e]; ok {
		return s
	}
	switch e.Op {
	case OpLit:
		if e.Type.Kind == String && strings.ContainsRune(e.Str, 0) {
			g.fail("in the kernel a string ends at its first NUL")
		}
		literal := e.Str
		if e.Type.Kind == Bytes && len(literal) < e.Type.Size {
			literal += strings.Repeat("\x00", e.Type.Size-len(literal))
		}
		return text{literal: &literal, size: len(literal)}
	case OpField:
		g.tested(e, absent)
		return text{memory: memory{event, e.Field.Offset}, size: e.Field.Size, field: e.Field}
	case OpVar:
		g.tested(e, absent)
		v := g.vars[e.Var]
		return text{memory: v.memory, size: g.spec.Vars[e.Var].Type.Size}
	}
	buffer := memory{frame, g.alloc(e.Type.Size)}
	g.textTo(buffer, e, e.Type.Size, absent)
	return text{memory: buffer, size: e.Type.Size}
}

// holdText is hold for strings. The caller releases the stack.
func (g *gen) holdText(e *Expr, absent label) {
	g.heldText[e] = g.text(e, absent)
}

// textTo stores the value of e, padded with NULs to size. If e is absent, it stores nothing and jumps to absent. It uses R1 and, if
// to is not based on them, R0.
func (g *gen) textTo(to memory, e *Expr, size int, absent label) {
	if g.err != nil {
		return
	}
	other, end := g.label(), g.label()
	switch e.Op {
	case OpCond:
		then := g.label()
		g.cond(e.Args[0], then, other, other)
		g.place(then)
		g.textTo(to, e.Args[1], size, absent)
		g.jump(end)
		g.place(other)
		g.textTo(to, e.Args[2], size, absent)
	case OpCoalesce:
		g.textTo(to, e.Args[0], size, other)
		g.jump(end)
		g.place(other)
		g.textTo(to, e.Args[1], size, absent)
	case OpLookup:
		m := g.used
		from := g.find(e, other, absent)
		g.release(m)
		if from.base == asm.R1 {
			g.emit(asm.Mov.Reg(asm.R0, asm.R1))
			from.base = asm.R0
		}
		g.copyText(to, text{memory: from, size: e.Type.Size}, size)
		g.jump(end)
		g.place(other)
		g.zero(to, size)
	default:
		g.copyText(to, g.text(e, absent), size)
	}
	g.place(end)
}

// copyText copies s and pads it to size. It uses R1.
func (g *gen) copyText(to memory, s text, size int) {
	if s.size > size {
		g.fail("a text of %d bytes does not fit in %d", s.size, size)
		return
	}
	g.readText(s)
	if s.literal != nil {
		for at := 0; at < size; {
			n := step(size-at, to.offset+at)
			g.storeConst(to.plus(at), s.word(at, n), n)
			at += n
		}
		return
	}
	g.copy(to, s.memory, s.size)
	g.zero(to.plus(s.size), size-s.size)
}

// copy copies bytes through R1.
func (g *gen) copy(to, from memory, size int) {
	for at := 0; at < size; {
		n := step(size-at, to.offset+at, from.offset+at)
		g.load(asm.R1, from.plus(at), n)
		g.store(to.plus(at), asm.R1, n)
		at += n
	}
}

func (g *gen) readText(s text) {
	if s.field != nil {
		g.read(s.field.Offset, s.field.Size)
	}
}

// byteOf puts a byte of a text into R0. The padding after its end is 0.
func (g *gen) byteOf(e *Expr, absent label) {
	m := g.used
	s := g.text(e.Args[0], absent)
	switch at := int(e.Num); {
	case at >= s.size:
		g.set(asm.R0, 0)
	case s.literal != nil:
		g.set(asm.R0, int64(int8(s.word(at, 1))))
	default:
		g.readText(s)
		g.load(asm.R0, s.plus(at), 1)
		g.emit(asm.LSh.Imm(asm.R0, 56), asm.ArSh.Imm(asm.R0, 56))
	}
	g.release(m)
}

// word returns bytes of a literal as a little-endian number, with NULs beyond its end.
func (s text) word(at, size int) int64 {
	var x uint64
	for i := range size {
		if at+i < len(*s.literal) {
			x |= uint64((*s.literal)[at+i]) << (8 * i)
		}
	}
	return int64(x)
}

// compareWords jumps to differ if size bytes of x, which is in memory, differ from y. With ordered, the words are then in R1 and
// R2.
func (g *gen) compareWords(x, y text, at, size int, ordered bool, differ label) {
	g.readText(x)
	g.readText(y)
	g.load(asm.R1, x.plus(at), size)
	if y.literal == nil {
		g.load(asm.R2, y.plus(at), size)
	} else {
		c := y.word(at, size)
		if !ordered && fits32(c) {
			g.branch(asm.JNE.Imm(asm.R1, int32(c), ""), differ)
			return
		}
		g.set(asm.R2, c)
	}
	g.branch(asm.JNE.Reg(asm.R1, asm.R2, ""), differ)
}

// compareText compares two strings bytewise. They are padded with NULs, so they are compared in words, up to the end of the shorter
// one. Then the next byte of the longer one decides.
func (g *gen) compareText(op Op, x, y *Expr, yes, no, absent label) {
	if x.Type.Kind != y.Type.Kind {
		g.fail("the kernel cannot compare text with bytes")
		return
	}
	m := g.used
	defer func() { g.release(m) }()
	a, b := g.text(x, absent), g.text(y, absent)
	if x.Type.Kind == Bytes && a.size != b.size {
		g.fail("the kernel cannot compare bytes of different sizes")
		return
	}
	if a.literal != nil {
		a, b, op = b, a, mirrored[op]
	}
	if a.literal != nil {
		g.decided(compareLiterals(op, *a.literal, *b.literal), yes, no)
		return
	}
	equal, less, greater := outcomes(op, yes, no)
	common := min(a.size, b.size)
	if b.literal != nil && b.size < a.size { // includes its NUL, in a word that is wide enough for the rest
		common = b.size + 1
	}
	ordered := less != greater
	differ := make(map[int]label) // by the size of the words in R1 and R2
	for at := 0; at < common; {
		n := step(a.size-at, a.offset+at)
		if b.literal == nil {
			n = step(common-at, a.offset+at, b.offset+at)
		}
		for n/2 >= common-at {
			n /= 2
		}
		if _, ok := differ[n]; !ok {
			differ[n] = g.label()
			if !ordered {
				differ[n] = less
			}
		}
		g.compareWords(a, b, at, n, ordered, differ[n])
		at += n
	}
	switch {
	case a.size > common && b.literal == nil:
		g.load(asm.R1, a.plus(common), 1)
		g.branch(asm.JNE.Imm(asm.R1, 0, ""), greater)
		g.jump(equal)
	case b.size > common && b.literal == nil:
		g.load(asm.R1, b.plus(common), 1)
		g.branch(asm.JNE.Imm(asm.R1, 0, ""), less)
		g.jump(equal)
	case b.size > a.size: // a longer literal
		g.jump(less)
	default:
		g.jump(equal)
	}
	if !ordered {
		return
	}
	swapped := g.label()
	for _, n := range []int{8, 4, 2, 1} {
		if l, ok := differ[n]; ok {
			g.place(l)
			if n > 1 { // as big-endian numbers, words have the order of their bytes
				g.emit(asm.HostTo(asm.BE, asm.R1, widths[n]), asm.HostTo(asm.BE, asm.R2, widths[n]))
			}
			g.jump(swapped)
		}
	}
	g.place(swapped)
	g.branch(asm.JLT.Reg(asm.R1, asm.R2, ""), less)
	g.jump(greater)
}

// outcomes returns where a comparison jumps if its operands are equal, and if the first one is less or greater.
func outcomes(op Op, yes, no label) (equal, less, greater label) {
	switch op {
	case OpEq:
		return yes, no, no
	case OpNe:
		return no, yes, yes
	case OpLt:
		return no, yes, no
	case OpLe:
		return yes, yes, no
	case OpGt:
		return no, no, yes
	default:
		return yes, no, yes
	}
}

func compareLiterals(op Op, x, y string) bool {
	const yes, no label = 1, 0
	equal, less, greater := outcomes(op, yes, no)
	switch strings.Compare(x, y) {
	case -1:
		return less == yes
	case 1:
		return greater == yes
	}
	return equal == yes
}
