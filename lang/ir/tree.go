package ir

import (
	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is the typed tree: what the checker builds from a program, and what both engines run.

// Expr is a node of the typed tree. Names are resolved, types agree, and the sign of each operation is settled.
type Expr struct {
	// Op is what the node computes from Args.
	Op   Op
	Args []*Expr
	// Type of the value; its kind is Tuple for a tuple. Enum and Unit come from the field that has the value.
	Type event.Type
	// Elems are the types of the elements of a tuple, or the single type of all elements of a list. The values of nested tuples
	// stand in a row, except in the loop variable of a for (see Variable); Form is how they are nested.
	Elems []event.Type
	Form  *format.Form
	// Optional reports that the value may be absent.
	Optional bool

	Field    *event.Field // of OpField
	Val      any          // of OpLit: int64, uint64, bool, string or *regexp.Regexp
	Variable *Variable    // of OpVar
	Map      *Map         // of OpLookup, OpHasKey, OpLen
	Index    int          // of OpMember and OpSlot: the number of the element or value
	Bits     int          // of OpCast and OpSwap
	Frames   int          // of OpStack: the most frames
	Fn       string       // of OpCall and OpStack
	Span     syntax.Span
	Flag     string // the command-line flag that the condition comes from, if it is not in the program's text
}

// Pending is the kind of a value whose type is not known yet. It occurs only during inference.
const Pending event.Kind = 200

// Variable is a $name of one clause, or the loop variable of a for. Params are literals, not variables. Two blocks may each have a
// variable of the same name.
type Variable struct {
	Name     string
	Index    int // in the clause
	Type     event.Type
	Elems    []event.Type // of a tuple
	MayLack  []bool       // which of them may be absent; nil for a loop variable
	Optional bool         // some assignment may be absent
	Hidden   bool         // the checker has made it for a value that is needed later
	// LoopOver is the map that a loop variable runs over. The variable is then a tuple of key and value. Member 0 is the only
	// element of the key, or a tuple of its elements if there are several; member 1 is the value, which may be a tuple too. Such a
	// variable stands only under OpMember, and print($kv) is a CallStmt with Map and Key.
	LoopOver *Map
}

// Map is a @map of the program: what all its uses agree on.
type Map struct {
	Name string // with its @
	Key  []Column
	// Own is how many columns of the key the program writes in brackets. The columns after them are ranked, by an aggregation that
	// ranks.
	Own int
	// Names are the names of the elements of the key.
	Names []string
	// Agg is nil for a scalar.
	Agg *agg.Agg
	// Value has the type of a scalar, a column for each element of a tuple. For an aggregation it has one column, the type of the
	// aggregated values, which gives printed numbers their unit; count() has a plain number.
	Value   []Column
	IsTuple bool // the scalar is a tuple, even if it has only one element
	// KeyForm and ValueForm are how the elements of the key and of a tuple are nested and named.
	KeyForm, ValueForm *format.Form
	// Sampled reports that only a part of the events that update it is seen.
	Sampled bool
	// declared by let
	Lru     bool
	MaxKeys uint32      // how many keys it has room for; 0: the default
	Span    syntax.Span // of its first use
}

// Column is the type of one element of a key or value.
type Column struct {
	Type     event.Type
	Optional bool
}

// Site is a clause for one of its probes, or for its moment.
type Site struct {
	Probe *event.Probe // nil for a moment
	Pred  *Expr        // nil: always true
	Stmts []Stmt
	// Prints reports that the clause has no body: it prints the event.
	Prints bool
}

// Stmt is a statement: *SetStmt, *UpdateStmt, *LetStmt, *IfStmt, *ForStmt, *WhileStmt, *JumpStmt, *CallStmt or *ReturnStmt.
type Stmt interface{ Pos() syntax.Span }

// SetStmt is @m[key] = value. With Adds it is @m[key] += value on a number. ++ and -- are += with the literals 1 and -1; -= is +=
// with a negation. Other compound operators become = with a lookup.
type SetStmt struct {
	Map   *Map
	Key   []*Expr
	Value []*Expr
	Adds  bool // += rather than =
	Span  syntax.Span
}

// UpdateStmt is @m[key] = f(arg). arg is nil for count() and rate(); gauge() and the others have one. At is the time of the value, if
// the aggregation needs it. Thread is the thread of the event, if the event may become an exemplar.
type UpdateStmt struct {
	Map    *Map
	Key    []*Expr
	Arg    *Expr
	At     *Expr
	Thread *Expr
	Span   syntax.Span
}

// LetStmt is $v = value.
type LetStmt struct {
	V     *Variable
	Value *Expr
	Span  syntax.Span
}

// IfStmt is if Cond { Then } else { Else }.
type IfStmt struct {
	Cond       *Expr
	Then, Else []Stmt
	Span       syntax.Span
}

// ForStmt runs over the elements of a map, with the tuple of key and value in V (see Variable.LoopOver), or over the numbers from
// Lo to Hi-1.
type ForStmt struct {
	V      *Variable
	Map    *Map // nil for a range
	Lo, Hi *Expr
	By     string // order of the elements: "" and "key" sort by key, "value" by value
	Body   []Stmt
	Span   syntax.Span
}

// WhileStmt runs Before, then ends unless Cond holds, then runs Body, and begins again.
type WhileStmt struct {
	Before []Stmt
	Cond   *Expr
	Body   []Stmt
	Span   syntax.Span
}

// JumpStmt ends the innermost loop or, with Continue, its turn.
type JumpStmt struct {
	Continue bool
	Span     syntax.Span
}

// CallStmt is a call for its effect. Fn is one of: print clear zero delete exit printf time errorf warnf cat system
// signal signal_thread.
type CallStmt struct {
	Fn  string
	Map *Map // of print(@m), clear, zero, delete
	// Key of delete(@m, key) and print(@m[key]); nil otherwise.
	Key []*Expr
	// Args of printf and its like (without the format), the value of print(expr), or what an OpSignal has returned.
	Args     []*Expr
	Format   *format.Pattern // of printf and its like, time
	Place    string          // in the text, for errorf and warnf
	Top, Div int64           // of print(@m, top, div, by): 0 means not given
	By       string          // "", or "key" or "value"
	Span     syntax.Span
}

// ReturnStmt ends the clause. Value is what a test or a benchmark returns, or nil.
type ReturnStmt struct {
	Value *Expr
	Span  syntax.Span
}

// Pos returns where the statement is.
func (s *SetStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *UpdateStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *LetStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *IfStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *ForStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *WhileStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *JumpStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *CallStmt) Pos() syntax.Span { return s.Span }

// Pos returns where the statement is.
func (s *ReturnStmt) Pos() syntax.Span { return s.Span }
