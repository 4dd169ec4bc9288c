package lang

import (
	"time"

	"trace/lang/agg"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is the typed tree: what the checker makes of a program, and what both engines run.

// expr is a node of the typed tree: names are resolved, types agree, and the sign of each operation is settled.
type expr struct {
	// op is an operator of the language, or one of the below.
	op   string
	args []*expr
	// typ of the value; Kind tuple for a tuple. Enum and Unit are those of a field whose value it is.
	typ event.Type
	// elems are the types of the elements of a tuple, and of a list the one type of all its elements. A tuple is never the element
	// of another but in the loop variable of a for (see variable).
	elems []event.Type
	// optional says that the value may be absent.
	optional bool

	field    *event.Field // of opField
	val      any          // of opLit: int64, uint64, bool, string or *regexp.Regexp
	variable *variable    // of opVar
	m        *mapInfo     // of opLookup, opHasKey, opLen
	index    int          // of opMember and opSlot; of opCast the number of bits
	fn       string       // of opCall and opStack
	span     syntax.Span
}

const (
	opLit     = "literal"
	opField   = "field"
	opAbsent  = "absent"  // x == nil
	opTruth   = "truth"   // a number as a condition
	opSigned  = "signed"  // the same 64 bits as a signed number
	opNegate  = "negate"  // unary minus
	opBetween = "between" // a range, as an element of in
	opCond    = "?:"

	opVar     = "variable"
	opLookup  = "lookup"  // @m[args]: a scalar, or an aggregation read as a number
	opHasKey  = "has_key" // has_key(@m, args)
	opLen     = "len"     // len(@m)
	opTuple   = "tuple"   // (args), never absent, though its elements may be
	opMember  = "member"  // args[0].index
	opCast    = "cast"    // args[0] modulo 2^index, then of the sign of typ; a boolean is 0 or 1
	opCall    = "call"    // fn(args): a function on strings or lists, evaluated in user space
	opList    = "list"    // [args], of such a function; kind array, as split(), filter() and map() have
	opElement = "#"       // the element in the predicate of such a function
	opElapsed = "elapsed" // nsecs since the program began; field is the nsecs of the event, if there is one
	opCommand = "cpid"    // the process of the command of -c
	opSlot    = "slot"    // value number index of the record: made by the planner for what the kernel has computed
	opStack   = "stack"   // kstack or ustack in fn, of index frames
	opNow     = "now"     // nsecs in begin, end and interval clauses, where no event tells it
)

// pending is the kind of a value that is not known yet: only while types are inferred.
const pending event.Kind = 200

// clauseKind says when a clause runs.
type clauseKind uint8

const (
	onEvent    clauseKind = iota
	onBegin               // before the probes are attached
	onEnd                 // after the last event, before the maps are printed
	onInterval            // every period
)

func (k clauseKind) String() string {
	return [...]string{"event", "begin", "end", "interval"}[k]
}

// variable is a $name of one clause, or the loop variable of a for. Params are literals and no variables. Two blocks may each have
// a variable of one name.
type variable struct {
	name     string
	index    int // in the clause
	typ      event.Type
	elems    []event.Type // of a tuple
	optional bool         // some assignment may be absent
	// entryOf is the map whose entries the variable runs over: then it is a tuple of key and value. Member 0 is the only element of
	// the key, or a tuple of all if there are several; member 1 the value, which may be a tuple too. Such a variable stands only
	// under opMember, and print($kv) is a callStmt with m and key.
	entryOf *mapInfo
}

// mapInfo is a @map of the program: what all its uses agree on.
type mapInfo struct {
	name string // with its @
	key  []column
	// names are those of the elements of the key.
	names []string
	// agg is nil for a scalar.
	agg *agg.Agg
	// value is the type of a scalar, a column for each element of a tuple; for an aggregation that of the aggregated values, one
	// column, which gives the unit of what is printed. count() has a plain number.
	value   []column
	isTuple bool // the scalar is a tuple, even if of one element
	// of let
	lru     bool
	entries uint32      // 0: the default
	span    syntax.Span // of its first use
}

// column is the type of one element of a key or value.
type column struct {
	typ      event.Type
	optional bool
}

// body is what a clause does with the events of one probe, or at its moment.
type body struct {
	probe *event.Probe // nil but for onEvent
	pred  *expr        // nil: always
	stmts []stmt
	// prints says that the clause has no block: it prints the event.
	prints bool
}

// stmt is a statement: *setStmt, *updateStmt, *letStmt, *ifStmt, *forStmt, *callStmt or *returnStmt.
type stmt interface{ pos() syntax.Span }

// setStmt is @m[key] = value. With op "+", @m[key] += value on a number (++ and -- too, as + with 1 and -1 literals; -= as +
// with a negation). Other compound operators are made into = with a lookup.
type setStmt struct {
	m     *mapInfo
	key   []*expr
	op    string // "=" or "+"
	value []*expr
	span  syntax.Span
}

// updateStmt is @m[key] = f(arg). arg is nil for count() and rate(); gauge() and the others have one.
type updateStmt struct {
	m    *mapInfo
	key  []*expr
	arg  *expr
	span syntax.Span
}

// letStmt is $v = value.
type letStmt struct {
	v     *variable
	value *expr
	span  syntax.Span
}

type ifStmt struct {
	cond      *expr
	then, els []stmt
	span      syntax.Span
}

// forStmt runs over the entries of a map, with the tuple of key and value in v (v.0 is the key: a value, or a tuple if the map has
// several; v.1 the value), or over numbers from lo to hi-1.
type forStmt struct {
	v      *variable
	m      *mapInfo // nil for a range
	lo, hi *expr
	by     string // order of the entries: "" and "key" are that of the keys, "value" that of the values
	body   []stmt
	span   syntax.Span
}

// callStmt is a call for its effect. fn is one of: print clear zero delete exit printf time.
type callStmt struct {
	fn string
	m  *mapInfo // of print(@m), clear, zero, delete
	// key of delete(@m, key) and print(@m[key]); nil otherwise.
	key []*expr
	// args of printf (without the format), or the value of print(expr).
	args     []*expr
	format   *pattern // of printf, time
	top, div int64    // of print(@m, top, div, by): 0 is none
	by       string   // "", or "key" or "value"
	span     syntax.Span
}

type returnStmt struct{ span syntax.Span }

func (s *setStmt) pos() syntax.Span    { return s.span }
func (s *updateStmt) pos() syntax.Span { return s.span }
func (s *letStmt) pos() syntax.Span    { return s.span }
func (s *ifStmt) pos() syntax.Span     { return s.span }
func (s *forStmt) pos() syntax.Span    { return s.span }
func (s *callStmt) pos() syntax.Span   { return s.span }
func (s *returnStmt) pos() syntax.Span { return s.span }

// Param is a param of the program: a flag.
type Param struct {
	Name, Help string
	// Short is the letter of its short flag, or "".
	Short string
	// Type is that of the literal: Uint or Int (with Nanoseconds or Bytes as unit if written so), Bool or String.
	Type    event.Type
	Default string // as written
	// Value is the default as int64, uint64, bool or string.
	Value any
	// Span is where it is declared.
	Span syntax.Span
}

// period of an interval clause that is not given as $param.
type period = time.Duration

// mapStore holds the contents of one map, in the kernel or in user space. Keys are what exprs evaluate to: int64, uint64, bool,
// string, or nil for an absent element.
type mapStore interface {
	// set, add, update and delete change the value of a key. They count what they cannot do (see counters).
	set(key, value []any) error
	add(key []any, delta uint64) error
	update(key []any, x uint64, absent bool) error
	remove(key []any) error
	// lookup returns the value of a scalar.
	lookup(key []any) (value []any, ok bool, err error)
	// state returns the state of an aggregation.
	state(key []any) (state []uint64, ok bool, err error)
	// entries returns a snapshot of all, in no order.
	entries() ([]entry, error)
	// clear forgets all keys, zero their values. What was added after the last entries() is kept.
	clear() error
	zero() error
}

// entry of a map.
type entry struct {
	key   []any
	value []any    // of a scalar
	state []uint64 // of an aggregation
}
