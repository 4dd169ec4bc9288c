package plan

import (
	"fmt"
	"testing"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes/event"
)

// path is what one way through a body has sent.
type path struct {
	records []*Piece
	ended   bool // by a return or an exit()
	jumped  *codegen.Jump
}

// paths returns all ways through a body, after one.
func paths(p *Plan, before path, body []codegen.Stmt) []path {
	all := []path{before}
	for _, s := range body {
		var next []path
		for _, one := range all {
			if one.ended || one.jumped != nil {
				next = append(next, one)
				continue
			}
			next = append(next, steps(p, one, s)...)
		}
		all = next
	}
	return all
}

func steps(p *Plan, one path, s codegen.Stmt) []path {
	switch s := s.(type) {
	case *codegen.Emit:
		if s.Ends && len(one.records) == 0 {
			break
		}
		one.records = append(one.records[:len(one.records):len(one.records)], p.Parts[s.ID].Piece)
	case *codegen.If:
		return append(paths(p, one, s.Then), paths(p, one, s.Else)...)
	case *codegen.Repeat:
		all := []path{one}
		var out []path
		for range s.Times {
			var next []path
			for _, before := range all {
				for _, after := range paths(p, before, s.Body) {
					left := after.jumped != nil && !after.jumped.Continue
					if after.jumped = nil; left || after.ended {
						out = append(out, after)
					} else {
						next = append(next, after)
					}
				}
			}
			all = next
		}
		return append(out, all...)
	case *codegen.Jump:
		one.jumped = s
	case *codegen.Return, *codegen.Stop:
		one.ended = true
	}
	return []path{one}
}

// TestPieces goes all ways through bodies: where one sends anything, its last record is the only one that is marked so.
func TestPieces(t *testing.T) {
	var emit *codegen.Emit
	type body = []codegen.Stmt
	either := func(then, otherwise body) codegen.Stmt { return &codegen.If{Then: then, Else: otherwise} }
	again := func(b ...codegen.Stmt) codegen.Stmt { return &codegen.Repeat{Times: 3, Body: b} }
	other, stop, back := &codegen.Delete{}, &codegen.Stop{}, &codegen.Return{}
	leave, next := &codegen.Jump{}, &codegen.Jump{Continue: true}
	for i, b := range []body{
		{emit, other, emit},
		{emit, either(body{emit}, body{other}), other},
		{emit, either(body{emit}, body{emit}), emit},
		{either(body{emit}, nil), either(body{emit}, nil)},
		{either(body{emit, other, emit}, body{either(body{emit}, body{other}), other})},
		{emit, either(body{back}, nil), emit},
		{either(body{emit}, nil), either(body{back}, body{either(nil, body{back})}), either(body{emit}, nil)},
		{emit, either(body{emit, stop}, nil), either(body{emit, back}, body{other, back})},
		{again(emit)},
		{again(either(body{emit}, body{leave})), emit},
		{emit, again(either(body{next}, body{other}), emit, either(body{leave}, nil))},
		{again(again(either(body{emit, stop}, body{either(body{emit}, nil), leave}))), other},
		{again(either(body{back}, nil), other), emit, either(body{emit}, nil)},
		{again(either(body{emit, back}, nil)), either(body{emit}, body{back})},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p := &Plan{}
			k := &kernelizer{plan: p, code: &codegen.Spec{}, site: &Site{Site: &ir.Site{Probe: &event.Probe{}}}, pieces: true}
			b, _ = k.marker().mark(withRecords(k, b), false, false)
			sends := 0
			for _, one := range paths(p, path{}, b) {
				sends = max(sends, len(one.records))
				for at, piece := range one.records {
					if piece.Last != (at == len(one.records)-1) {
						t.Errorf("record %d of %d is marked as the last: %t", at+1, len(one.records), piece.Last)
					}
				}
			}
			if sends < 2 {
				t.Errorf("no way sends more than %d records", sends)
			}
		})
	}
}

// withRecords replaces each Emit by a record of its own.
func withRecords(k *kernelizer, b []codegen.Stmt) (out []codegen.Stmt) {
	for _, s := range b {
		switch one := s.(type) {
		case *codegen.Emit:
			s = k.plan.emit(&Part{Site: k.site, Piece: &Piece{}}, nil, nil, k)
		case *codegen.If:
			s = &codegen.If{Then: withRecords(k, one.Then), Else: withRecords(k, one.Else)}
		case *codegen.Repeat:
			s = &codegen.Repeat{Times: one.Times, Body: withRecords(k, one.Body)}
		}
		out = append(out, s)
	}
	return out
}
