package ir

import (
	"slices"

	"trace/lang/format"
	"trace/probes/event"
)

// This file takes tuples in variables apart: each element gets a variable of its own, so that the kernel, which has no tuples, runs
// what the program does with them.

// Split replaces the variables of the clause that hold only tuples of known elements. A tuple that is read from a map stays whole:
// its elements, read one by one, could be of two moments.
func (c *Clause) Split() {
	s := &splitter{parts: map[*Variable][]*Variable{}}
	s.choose(c)
	if len(s.parts) == 0 {
		return
	}
	for _, b := range c.Sites {
		b.Stmts = s.stmts(b.Stmts)
	}
	var all []*Variable
	for _, v := range c.Vars {
		if parts := s.parts[v]; parts != nil {
			all = append(all, parts...)
		} else {
			all = append(all, v)
		}
	}
	c.Vars = append(all, s.olds...)
	for i, v := range c.Vars {
		v.Index = i
	}
}

// splitter knows the variables of the elements of each variable that is replaced.
type splitter struct {
	parts map[*Variable][]*Variable
	// olds hold elements that are assigned while others are still read.
	olds []*Variable
}

// choose finds the variables to replace, and makes the variables of their elements.
func (s *splitter) choose(c *Clause) {
	values := map[*Variable][]*Expr{}
	for _, b := range c.Sites {
		WalkStmts(b.Stmts, func(stmt Stmt) {
			if let, is := stmt.(*LetStmt); is && len(let.V.Elems) > 0 {
				values[let.V] = append(values[let.V], let.Value)
			}
		})
	}
	for again := true; again; {
		again = false
		for v, assigned := range values {
			if slices.ContainsFunc(assigned, func(e *Expr) bool { return e.Op != OpTuple && (e.Op != OpVar || values[e.Variable] == nil) }) {
				delete(values, v)
				again = true
			}
		}
	}
	for _, v := range c.Vars {
		if values[v] == nil {
			continue
		}
		for i, t := range v.Elems {
			s.parts[v] = append(s.parts[v], &Variable{Name: v.Name, Type: t, Optional: v.MayLack[i], Hidden: v.Hidden})
		}
	}
}

// stmts returns statements without the variables that are replaced.
func (s *splitter) stmts(in []Stmt) (out []Stmt) {
	for _, one := range in {
		switch one := one.(type) {
		case *LetStmt:
			if s.parts[one.V] != nil {
				out = append(out, s.let(one)...)
				continue
			}
			one.Value = s.expr(one.Value)
		case *SetStmt:
			s.exprs(one.Key)
			s.exprs(one.Value)
		case *UpdateStmt:
			s.exprs(one.Key)
			one.Arg, one.At = s.expr(one.Arg), s.expr(one.At)
		case *IfStmt:
			one.Cond, one.Then, one.Else = s.expr(one.Cond), s.stmts(one.Then), s.stmts(one.Else)
		case *ForStmt:
			one.Lo, one.Hi, one.Body = s.expr(one.Lo), s.expr(one.Hi), s.stmts(one.Body)
		case *WhileStmt:
			one.Before, one.Cond, one.Body = s.stmts(one.Before), s.expr(one.Cond), s.stmts(one.Body)
		case *CallStmt:
			s.exprs(one.Key)
			s.exprs(one.Args)
		case *ReturnStmt:
			one.Value = s.expr(one.Value)
		}
		out = append(out, one)
	}
	return out
}

// let assigns each element. If the value reads the variable, all elements are evaluated before the first one is assigned.
func (s *splitter) let(let *LetStmt) (out []Stmt) {
	to := s.parts[let.V]
	reads := false
	WalkExpr(let.Value, func(e *Expr) { reads = reads || e.Op == OpVar && e.Variable == let.V })
	values := s.expr(let.Value).Args
	if reads {
		values = slices.Clone(values)
		for i, v := range values {
			old := &Variable{Name: to[i].Name, Type: to[i].Type, Optional: to[i].Optional, Hidden: true}
			s.olds = append(s.olds, old)
			out = append(out, &LetStmt{V: old, Value: v, Span: let.Span})
			values[i] = read(old, v)
		}
	}
	for i, v := range values {
		out = append(out, &LetStmt{V: to[i], Value: v, Span: let.Span})
	}
	return out
}

// read returns the value of a variable, in place of an expression.
func read(v *Variable, e *Expr) *Expr {
	return &Expr{Op: OpVar, Variable: v, Type: v.Type, Optional: v.Optional, Span: e.Span}
}

func (s *splitter) exprs(all []*Expr) {
	for i, e := range all {
		all[i] = s.expr(e)
	}
}

// expr returns an expression without the variables that are replaced. e may be nil.
func (s *splitter) expr(e *Expr) *Expr {
	switch {
	case e == nil:
		return nil
	case e.Op == OpMember && e.Args[0].Op == OpVar && s.parts[e.Args[0].Variable] != nil:
		return read(s.parts[e.Args[0].Variable][e.Index], e)
	case e.Op == OpVar && s.parts[e.Variable] != nil:
		whole := *e
		whole.Op, whole.Variable, whole.Type = OpTuple, nil, event.Type{Kind: format.Tuple}
		for _, v := range s.parts[e.Variable] {
			whole.Args = append(whole.Args, read(v, e))
		}
		return &whole
	}
	if len(e.Args) > 0 {
		out := *e
		out.Args = slices.Clone(e.Args)
		s.exprs(out.Args)
		return &out
	}
	return e
}
