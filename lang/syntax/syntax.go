// Package syntax turns the text of a program into a tree and back.
//
// It knows nothing of probes, fields and types: a name is a name. The tree of an expression consists of expr's own nodes
// (github.com/expr-lang/expr/ast), so that expr's tools work on it. The surface is ours: integer division, bitwise operators,
// 64-bit literals, durations and sizes. Locations in the nodes are byte offsets into the text.
//
// Nodes are normalised: `and`, `or` and `not` become `&&`, `||` and `!`; `x not in y` becomes `!(x in y)`. A number is an
// [ast.ConstantNode] with an [Int], a decimal fraction one with a [Float]. A dotted name is one [ast.IdentifierNode], and so is
// `$name`, with its dollar. [MapRef], [Tuple] and [Cast] are nodes of our own, because expr has none.
package syntax

import (
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Program is a parsed program: either one bare expression, with or without a body, or params, maps and clauses.
type Program struct {
	Text Text
	// Expr is the bare expression that is the predicate of the whole program, or nil.
	Expr ast.Node
	// Body is the body after the bare expression, or nil.
	Body *Block
	// Config are the settings of the block config, which has the place Configured.
	Config     []*Setting
	Configured Span
	// Imports are files that the program imports. [Program.Import] puts what they have in their place.
	Imports []*Import
	// Params, Lets, Macros and Clauses in the order of the text; empty if Expr is set.
	Macros  []*Macro
	Params  []*Param
	Lets    []*Let
	Clauses []*Clause
	// Comments of the text, in order, for printing.
	Comments []Comment
	// words is how many words and signs were read, also in files that were read before.
	words int
}

// Comment is `// …`, `/* … */` or, at the start of a line, `# …`.
type Comment struct {
	Text string // with its signs
	Span Span
}

// Param is `param name = literal "help"`: a flag of the program, read as $name. `param i, interval = 1` also has a short flag.
type Param struct {
	Short string // one letter, or ""
	Name  string
	// Default is a literal: an integer, duration, size, string or boolean. It may have a minus sign.
	Default ast.Node
	Help    string
	Span    Span
}

// Import is `import "file"`.
type Import struct {
	Path string
	Span Span
}

// Let is `let @x = lru(10000)`: the kind and the size of a map.
type Let struct {
	Map     string // with its @
	Kind    string // as written; lru or hash
	MaxKeys ast.Node
	Span    Span
}

// Clause is `probe, probe / predicate / { … }`.
type Clause struct {
	Probes []ProbeRef
	// Pred is nil if the clause has no predicate.
	Pred ast.Node
	// Body is nil if the clause has no body.
	Body *Block
	Span Span
	// written is the text before macros were expanded, or "".
	written string
}

// ProbeRef names probes: `nvme:complete_rq`, `ib:*_qp`, `*:*`, where both halves are globs of `*` and `?`; or a moment: `begin` and
// `end` (only Group), `interval:1s` and `profile:99hz` (Group, and in Name the text after the colon). Spellings of bpftrace are
// normalised: BEGIN is begin, interval:s:1 is interval:1s, interval:ms:10 interval:10ms, interval:us:5 interval:5us,
// interval:1000000 interval:1ms, interval:hz:10 interval:100ms, profile:hz:99 profile:99hz, profile:ms:10 profile:100hz.
// `self:signal:SIGUSR1` has the group self, and `test:NAME` and `bench:NAME` have their names.
type ProbeRef struct {
	Group, Name string
	// Counted is the Name of a timer as bpftrace has it, a unit and a number: s:1 or ms:$name as written, and us:1000000 of 1s. It is
	// empty if a param has the unit.
	Counted string
	// Period is the text after the second colon, or "": net:counters:100ms, or net:counters:$name.
	Period string
	// Label is the name before an equals sign: label=begin. It has no meaning yet, as in bpftrace.
	Label string
	Span  Span
}

// String returns the reference without its label.
func (r ProbeRef) String() string {
	text := r.Group
	for _, part := range []string{r.Name, r.Period} {
		if part != "" {
			text += ":" + part
		}
	}
	return text
}

// Param returns the param that a period or a rate is, with its dollar, or "".
func (r ProbeRef) Param() string {
	if _, param, ok := strings.Cut(r.Name+r.Period, "$"); ok {
		return "$" + param
	}
	return ""
}

// Block is `{ statement; … }`.
type Block struct {
	Stmts []Stmt
	Span  Span
}

// Stmt is a statement: *Assign, *Declare, *If, *For, *While, *Unroll, *Nested, *Call, *Discard, *Jump or *Return.
type Stmt interface{ Pos() Span }

// Assign is `@x[k] = e`, `$v += e`, `@x++`. An aggregation, `@x = count()`, is an assignment of a call.
type Assign struct {
	// Target is a *MapRef or an identifier that begins with a dollar.
	Target ast.Node
	// Op is = += -= *= /= %= &= |= ^= <<= >>= ++ or --.
	Op string
	// Value is nil for ++ and --.
	Value ast.Node
	Span  Span
	// step is what ++ and -- are as a value, for the last statement of a block that has one.
	step *Step
}

// If is `if (cond) { … } else { … }`; `else if` is an Else of one If. The brackets around the condition are optional.
type If struct {
	Cond ast.Node
	Then *Block
	Else *Block // nil without else
	Span Span
}

// For is `for ($kv : @map) { … }` or `for ($i : a..b) { … }`, which runs to b-1, as in bpftrace. The elements of a map have the
// order of their keys or, with `for ($kv : @map, by = "value")`, of their values.
type For struct {
	Var string // with its dollar
	// In is a *MapRef without a key, or the range: an [ast.BinaryNode] of "..".
	In ast.Node
	// By is the order of the elements of a map, a literal, or nil.
	By   ast.Node
	Body *Block
	Span Span
}

// Call is a call for its effect: print(@x), printf("…", a).
type Call struct {
	Call *ast.CallNode
	Span Span
}

// Return is `return`, which ends the clause for this event. Its value is nil if it has none.
type Return struct {
	Value ast.Node
	Span  Span
}

func (s *Assign) Pos() Span { return s.Span }
func (s *If) Pos() Span     { return s.Span }
func (s *For) Pos() Span    { return s.Span }
func (s *Call) Pos() Span   { return s.Span }
func (s *Return) Pos() Span { return s.Span }

// MapRef is `@name`, `@name[a, b]` or `@name[first = a, b]`. Its key has a [NamedArg] for each element with a name. It is an
// [ast.Node] of expr by embedding one.
type MapRef struct {
	node
	Name string // with its @; "@" alone is a name
	Key  []ast.Node
}

// Tuple is `(a, b)`, or a record `(x = a, y = b)`, which has a [NamedArg] for each element. It may be a key, or the value of a map
// or a variable; .0, .1 … and .x, .y are its members.
type Tuple struct {
	node
	Elems []ast.Node
}

// Member is `x.0`, an element of a tuple by number, or `x.a`, an element of a record by name. In `for ($kv : @map)`, $kv.0 is the key
// and $kv.1 the value.
type Member struct {
	node
	Of    ast.Node
	Index int
	Name  string // "": by number
}

// Selector returns the number or the name.
func (n *Member) Selector() string {
	if n.Name != "" {
		return n.Name
	}
	return strconv.Itoa(n.Index)
}

// Cast is `(uint8)x` or `(int64)x`: the value modulo 2^n, signed or unsigned. (bool)x is whether x is not 0, (string)x its text.
type Cast struct {
	node
	To Type
	Of ast.Node
}

// NamedArg is `name = expr` as an argument of a call, hist(latency, min = 20us), or as an element of a key, @lat[device = dev].
type NamedArg struct {
	node
	Name  string
	Value ast.Node
}

// node makes a type of ours an expr node. Expr's walkers do not know these types and must not be used on them: use [Walk].
type node struct{ ast.NilNode }

func (n *MapRef) String() string   { return Print(n) }
func (n *Tuple) String() string    { return Print(n) }
func (n *Member) String() string   { return Print(n) }
func (n *Cast) String() string     { return Print(n) }
func (n *NamedArg) String() string { return Print(n) }

// Int is the value of a number literal: an integer, a duration in nanoseconds or a size in bytes.
type Int struct {
	Value uint64
	// Text is the number as written, like 1.5ms.
	Text string
}

// Float is a decimal fraction, 99.9, which only quantile takes.
type Float struct {
	Value float64
	Text  string
}
