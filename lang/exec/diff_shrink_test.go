package exec

import (
	"slices"
	"strconv"
)

// This file makes a failing case small: it removes from the program and the events what the failure does not need.

// shrink changes c as long as it fails.
func (c *diffCase) shrink(fails func(*diffCase) bool) {
	for again := true; again; {
		again = c.shrinkEvents(fails)
		for c.tryEdits(fails) {
			again = true
		}
	}
	c.shrinkFields(fails)
}

// shrinkEvents removes events, many at a time at first.
func (c *diffCase) shrinkEvents(fails func(*diffCase) bool) (changed bool) {
	for n := len(c.events) / 2; n > 0; n /= 2 {
		for from := 0; from+n <= len(c.events) && len(c.events) > 1; {
			fewer := *c
			fewer.events = slices.Delete(slices.Clone(c.events), from, from+n)
			if fails(&fewer) {
				c.events, changed = fewer.events, true
			} else {
				from += n
			}
		}
	}
	return changed
}

// shrinkFields makes fields zero.
func (c *diffCase) shrinkFields(fails func(*diffCase) bool) {
	for i := range c.events {
		for _, f := range c.events[i].probe.Fields {
			offset, size := f.Offset, f.Type.Size
			fewer := *c
			fewer.events = slices.Clone(c.events)
			e := rawEvent{c.events[i].probe, slices.Clone(c.events[i].raw)}
			clear(e.raw[offset : offset+size])
			if fewer.events[i] = e; !slices.Equal(e.raw, c.events[i].raw) && fails(&fewer) {
				c.events = fewer.events
			}
		}
	}
}

// diffEdit changes the program. It returns a function that undoes the change.
type diffEdit func() (undo func())

// tryEdits keeps the first edit after which the program still fails. It returns false if no edit does.
func (c *diffCase) tryEdits(fails func(*diffCase) bool) (changed bool) {
	for _, edit := range c.prog.edits() {
		undo := edit()
		c.text = c.prog.String()
		if fails(c) {
			return true
		}
		undo()
	}
	c.text = c.prog.String()
	return false
}

// replace returns the edit that gives *at another value.
func replace[T any](at *T, value T) diffEdit {
	return func() func() {
		old := *at
		*at = value
		return func() { *at = old }
	}
}

// edits returns all small steps to a smaller program, the larger ones first.
func (p *diffProgram) edits() []diffEdit {
	var all []diffEdit
	for i, c := range p.clauses {
		all = append(all, replace(&p.clauses, slices.Delete(slices.Clone(p.clauses), i, i+1)))
		if c.pred != nil {
			all = append(all, replace(&c.pred, nil))
		}
	}
	all = append(all, blockEdits(&p.begin)...)
	for i := range p.interval {
		all = append(all, replace(&p.interval, slices.Delete(slices.Clone(p.interval), i, i+1)))
	}
	for _, c := range p.clauses {
		all = append(all, blockEdits(&c.stmts)...)
	}
	for _, m := range p.maps {
		if m.kind != "" {
			all = append(all, replace(&m.kind, ""))
		}
	}
	for _, c := range p.clauses {
		all = append(all, nodeEdits(&c.pred)...)
	}
	p.walk(func(s *diffStmt) {
		if !s.compound {
			all = append(all, nodeEdits(&s.value)...)
		}
		for _, nodes := range [][]*diffNode{s.key, s.args} {
			for i := range nodes {
				all = append(all, nodeEdits(&nodes[i])...)
			}
		}
	})
	return all
}

func blockEdits(at *[]*diffStmt) []diffEdit {
	var all []diffEdit
	for i, s := range *at {
		all = append(all, replace(at, slices.Delete(slices.Clone(*at), i, i+1)))
		if s.kind == "for" || s.kind == "unroll" || s.kind == "while" {
			all = append(all, blockEdits(&s.then)...)
		}
		if s.kind == "if" {
			all = append(all, replace(at, slices.Concat((*at)[:i], s.then, (*at)[i+1:])))
			if s.els != nil {
				all = append(all, replace(at, slices.Concat((*at)[:i], s.els, (*at)[i+1:])), replace(&s.els, nil))
			}
			all = append(append(all, blockEdits(&s.then)...), blockEdits(&s.els)...)
		}
	}
	return all
}

// nodeEdits replaces an expression by an operand or a literal.
func nodeEdits(at **diffNode) []diffEdit {
	n := *at
	if n == nil {
		return nil
	}
	var all []diffEdit
	for _, a := range n.args {
		if a.sort == n.sort && a.op != nBetween {
			all = append(all, replace(at, a))
		}
	}
	if len(n.args) > 0 && n.op != nBetween {
		switch n.sort {
		case aText:
			all = append(all, replace(at, textLiteral("a")))
		case aBool:
			for _, v := range []bool{true, false} {
				all = append(all, replace(at, &diffNode{op: nLit, sort: aBool, text: strconv.FormatBool(v), val: v}))
			}
		}
	}
	if len(n.args) > 2 && (n.op == "in" || n.op == "not in") {
		for i := 1; i < len(n.args); i++ {
			all = append(all, replace(&n.args, slices.Delete(slices.Clone(n.args), i, i+1)))
		}
	}
	for i := range n.args {
		all = append(all, nodeEdits(&n.args[i])...)
	}
	return all
}
