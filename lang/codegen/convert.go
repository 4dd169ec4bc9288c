package codegen

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

// This file converts numbers in a register.

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
