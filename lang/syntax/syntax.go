// Package syntax turns the text of a program into a tree and back.
//
// It knows nothing of probes, fields and types: a name is a name. The tree of an expression is made of expr's own nodes
// (github.com/expr-lang/expr/ast), so that expr's tools work on it, but the surface is ours: integer division, bitwise
// operators, 64-bit literals, durations and sizes. Locations in the nodes are byte offsets into the source.
//
// Nodes are normalised: `and`, `or` and `not` become `&&`, `||` and `!`; `x not in y` becomes `!(x in y)`. A number is an
// [ast.ConstantNode] that holds an [Int]; a dotted name is one [ast.IdentifierNode].
package syntax

import "github.com/expr-lang/expr/ast"

// Program is a parsed program: either one bare expression or clauses.
type Program struct {
	Source Source
	// Expr is the bare expression that is the whole program, or nil.
	Expr ast.Node
	// Clauses in the order of the text; empty if Expr is set.
	Clauses []*Clause
}

// Clause is `probe, probe / predicate /`.
type Clause struct {
	Probes []ProbeRef
	// Pred is nil if the clause has no predicate.
	Pred ast.Node
}

// ProbeRef names probes: `nvme:complete_rq`, `ib:*_qp`, `*:*`. Both halves are globs of `*` and `?`.
type ProbeRef struct {
	Group, Name string
	Span        Span
}

func (r ProbeRef) String() string { return r.Group + ":" + r.Name }

// Int is the value of a number literal: an integer, a duration in nanoseconds or a size in bytes.
type Int struct {
	Value uint64
	// Text as it was written, like 1.5ms.
	Text string
}
