package ir

import (
	"slices"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// Types of values that do not come from a field.
var (
	Boolean   = event.Type{Kind: event.Bool, Size: 1}
	Text      = event.Type{Kind: event.String}
	Integer64 = event.Type{Kind: event.Int, Size: 8}
	Natural64 = event.Type{Kind: event.Uint, Size: 8}
	Durations = event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}
)

// Signed reinterprets the bits of e as signed.
func Signed(e *Expr) *Expr {
	switch {
	case e.Type.Kind != event.Uint:
		return e
	case e.Op == OpLit:
		literal := *e
		literal.Type.Kind, literal.Val = event.Int, event.To[int64](e.Val)
		return &literal
	}
	return &Expr{Op: OpSigned, Args: []*Expr{e}, Type: event.Type{Kind: event.Int, Size: 8}, Optional: e.Optional, Span: e.Span}
}

// Operation makes a node. It is absent if an operand is, except for operators that handle absent operands. A comparison of tuples
// is also absent if an element is.
func Operation(op Op, typ event.Type, args ...*Expr) *Expr {
	e := &Expr{Op: op, Type: typ, Args: args}
	switch op {
	case OpAbsent, OpTuple, OpLookup, OpHasKey, OpLen:
	case OpCoalesce:
		e.Optional = args[0].Optional && args[1].Optional
	case OpCond:
		e.Optional = args[1].Optional || args[2].Optional
	default:
		e.Optional = slices.ContainsFunc(args, func(a *Expr) bool { return a.Optional || a.Type.Kind == format.Tuple && op != OpMember })
	}
	return e
}

// Own reports whether the program itself determines the value: literals, and what it chooses from them or computes of them.
func Own(e *Expr) bool {
	switch e.Op {
	case OpLit:
		return true
	case OpCond:
		return Own(e.Args[1]) && Own(e.Args[2])
	case OpCoalesce, OpCall:
		return !slices.ContainsFunc(e.Args, func(a *Expr) bool { return !Own(a) })
	}
	return false
}

// Instant is the unit of nsecs: a plain number, but the difference of two is a duration.
const Instant event.Unit = 100

// StackUse is a stack that a program captures: kstack(n) or ustack(n).
type StackUse struct {
	Word   string
	Frames int
}

// StackOf makes the node of kstack or ustack, named by word, of at most the given number of frames.
func StackOf(word string, frames int) *Expr {
	return &Expr{Op: OpStack, Fn: word, Frames: frames, Type: event.Type{Kind: format.Stack, Size: 8}, Optional: true}
}

// StackUse returns what an OpStack captures.
func (e *Expr) StackUse() StackUse { return StackUse{e.Fn, e.Frames} }

// ZeroOf returns the value of a variable or key that was never set.
func ZeroOf(t event.Type, elems []event.Type) any {
	switch t.Kind {
	case event.Int:
		return int64(0)
	case event.Uint, format.Stack:
		return uint64(0)
	case event.Bool:
		return false
	case event.String:
		return ""
	case event.GID:
		return strings.Repeat("\x00", 16)
	case format.Array:
		return []any{}
	}
	values := make([]any, len(elems))
	for i, elem := range elems {
		values[i] = ZeroOf(elem, nil)
	}
	return values
}
