// Package codegen turns typed trees into BPF instructions, and holds the layouts that the generated code shares with user space:
// rows of keys and values, and the state of aggregations.
//
// It knows no catalog and no kernel: an event is bytes at an address, a field is an offset into it.
//
// # The meaning of an expression
//
// Numbers are 64 bits, two's complement; Type.Kind says whether they are signed. Arithmetic wraps; `/` and `%` truncate toward zero,
// x/0 is 0, x%0 is x, the smallest number divided by -1 is itself; shift counts use their low six bits, and >> of a signed number keeps
// the sign. Comparisons are mathematical, whatever the signs of the operands. Strings end at their first NUL, and are padded with NULs
// to their size. Values may be absent: an operator with an absent operand is absent, && and || are Kleene's, ?: takes the second branch
// if its condition is absent, a condition that is absent does not hold. Package lang's value.go says the same in Go.
package codegen

import (
	"github.com/cilium/ebpf/asm"

	"trace/lang/agg"
)

// Kind says how a value is represented.
type Kind uint8

const (
	// Int and Uint are 64-bit numbers.
	Int Kind = iota
	Uint
	// Bool is 0 or 1.
	Bool
	// String is Size bytes, padded with NULs.
	String
	// Bytes are Size bytes as they are (a GID).
	Bytes
)

// Type of a value. Size counts the bytes of a String or Bytes; other kinds leave it 0.
type Type struct {
	Kind Kind
	Size int
}

// Op is what a node does.
type Op uint8

const (
	OpLit    Op = iota // Num or Str
	OpField            // Field
	OpVar              // Var
	OpLookup           // element Elem of the value of a scalar map; Args are the key. 0 or "" if there is no such key.
	OpHasKey           // does the map have the key Args
	OpStack            // Stack: its number, a Uint

	OpTruth  // Args[0] != 0
	OpAbsent // Args[0] is absent; never absent itself
	OpSigned // Args[0] as Int, the same bits
	OpCast   // Args[0] modulo 2^Num, then as Type: Int extends the sign
	OpNeg
	OpCompl // ~
	OpNot
	OpAnd // Kleene's, as is
	OpOr
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMod
	OpBitAnd
	OpBitOr
	OpBitXor
	OpShl
	OpShr
	OpIn         // Args[0] equals one of the others, or lies in one that is an OpBetween; as an || of the comparisons
	OpBetween    // Args[0] to Args[1], both included; only below OpIn
	OpStartsWith // Args[1] is a literal
	OpCoalesce   // Args[0], or Args[1] if that is absent
	OpCond       // Args[0] ? Args[1] : Args[2]
)

// Expr is a node of a typed tree.
type Expr struct {
	Op    Op
	Type  Type
	Args  []*Expr
	Num   uint64 // of OpLit, and the bits of OpCast
	Str   string // of OpLit of String or Bytes; at most Type.Size bytes
	Field *Field
	Var   int // index of OpVar in Spec.Vars
	Map   *Map
	Elem  int
	Stack *Stack
}

// Field is a place in the event struct. A number of 1, 2, 4 or 8 bytes is little-endian; Expr.Type.Kind tells its sign.
type Field struct {
	Name         string
	Offset, Size int
	// Optional fields have a presence bit: HasMask in the byte at HasOffset.
	Optional  bool
	HasOffset int
	HasMask   uint8
}

// Var is a $variable of the program. It is 0 or "" when the clause begins.
type Var struct {
	Name     string
	Type     Type
	Optional bool // may be absent
}

// Map is a map of the user's program that lives in the kernel.
type Map struct {
	// Name in the BPF object, at most 15 letters, digits and underscores.
	Name string
	// Index in the map of counters, CountersName.
	Index int
	// Key is empty for a map without a key.
	Key Row
	// Agg is nil for a scalar map, whose value is Value.
	Agg   *agg.Agg
	Value Row
	// LRU says that the oldest keys give way when the map is full.
	LRU bool
	// MaxKeys that the map has room for; 1 without a key.
	MaxKeys uint32
	// Shared says that all CPUs share the state of an aggregation, rather than each having its own.
	Shared bool
	// Alone says that no two programs update the map on one CPU at the same time: then the state of an aggregation that each CPU has
	// for itself needs no atomic operations, which take 5 ns where a plain addition takes less than one.
	Alone bool
	// Turns says that there are two maps, which take turns: Name is an array of both, and TurnName tells which one programs use. The
	// other one changes no more as soon as the programs that ran at the last turn have ended, so it can be read and emptied. Programs
	// only add to such a map, or only set it.
	Turns bool
}

// Stmt is a statement: *Set, *Add, *Update, *Delete, *Let, *If, *Emit, *Stop or *Return.
type Stmt interface{ stmt() }

type (
	// Set is @m[key] = value, value an expression for each column. A value of one column that is absent is not set, but counted.
	Set struct {
		Map   *Map
		Key   []*Expr
		Value []*Expr
	}
	// Add is @m[key] += delta on a scalar number: one atomic step.
	Add struct {
		Map   *Map
		Key   []*Expr
		Delta *Expr
	}
	// Update is @m[key] = f(arg). Arg is nil for count() and rate(); an absent one is counted and changes nothing.
	Update struct {
		Map *Map
		Key []*Expr
		Arg *Expr
	}
	// Delete is delete(@m, key).
	Delete struct {
		Map *Map
		Key []*Expr
	}
	// Let is $v = value.
	Let struct {
		Var   int
		Value *Expr
	}
	// If runs Then or Else.
	If struct {
		Cond       *Expr
		Then, Else []Stmt
	}
	// Emit sends a record to user space: ID as 64 bits, then copies of parts of the event, then values. A record for which there is
	// no room is counted in Spec.Lost.
	Emit struct {
		ID     uint64
		Size   int // of the record, a multiple of 8
		Copies []Copy
		Values []Slot
	}
	// Stop makes all programs ignore further events, and ends the action: exit().
	Stop struct{}
	// Return ends the clause.
	Return struct{}
)

// Copy is Size bytes of the event to a place of the record.
type Copy struct{ From, To, Size int }

// Slot is a value in a record: 8 bytes for a number or Bool, Size for others, and a byte that is 1 if the value is there. There is
// no such byte if Presence is 0.
type Slot struct {
	Value        *Expr
	To, Presence int
}

func (*Set) stmt()    {}
func (*Add) stmt()    {}
func (*Update) stmt() {}
func (*Delete) stmt() {}
func (*Let) stmt()    {}
func (*If) stmt()     {}
func (*Emit) stmt()   {}
func (*Stop) stmt()   {}
func (*Return) stmt() {}

// Part is what a clause of the user's program does in the kernel with the events of one probe.
type Part struct {
	// Pred holds for the events that the clause wants; nil: all.
	Pred *Expr
	// Late predicates read maps: they are evaluated where the clause stands among the others, not in the filter.
	Late bool
	Body []Stmt
	// Comment is quoted by the verifier above the instructions: script:line: clause.
	Comment string
}

// Spec is all that happens to the events of one probe.
type Spec struct {
	Parts []Part // at most MaxParts
	Vars  []Var
	// Stack is how many bytes of stack the generated functions may use.
	Stack int
	// Within lets only the events reach the clauses whose fields are in all of these sets.
	Within []Within
	// Cut is what kernel stacks are cut by.
	Cut Cut
	// CmpXchg says that the kernel has atomic compare-and-exchange (5.12 on amd64).
	CmpXchg bool
	// Stops says that some clause of the whole program has a Stop, so that events have to be ignored after it.
	Stops bool
	// Ring is the name of the ring buffer, Lost the counter of records that found no room.
	Ring string
	Lost Counter
	// Prefix of the labels, unique among the functions of one BPF program.
	Prefix string
}

// Within is a set of numbers in a map: the keys, of 64 bits, of a hash, or an array whose only value has a byte for each number, 1 if it
// is in the set.
type Within struct {
	// Field whose value has to be in the set. An event without it is not.
	Field *Field
	Map   string
	// Size of the value of an array: numbers are less. 0 is a hash.
	Size int
}

// MaxParts of one probe: a bit each in the result of the filter.
const MaxParts = 63

// Counter is a 64-bit counter in the only value of a per-CPU array.
type Counter struct {
	Map    string
	Offset int
}

// Names of the maps that generated code uses besides those of the user; which of them, Code.Maps tells.
const (
	CountersName = "map_counters" // per-CPU array; by Map.Index: MapCounters
	ZerosName    = "map_zeros"    // array of one value of zeros, as large as the largest value of a keyed map
	StoppedName  = "stopped"      // array of one 64-bit word: 1 after Stop
	TurnName     = "map_turn"     // array of one 64-bit word: which of the two maps it is the turn of, 0 or 1 (see Map.Turns)
)

// MapCounters are what went wrong in updates of a map: 64 bits each.
type MapCounters struct {
	Full     uint64 // no room for another key (E2BIG)
	NoMemory uint64 // ENOMEM
	Busy     uint64 // EBUSY, or an element that others kept changing
	Absent   uint64 // the argument was absent
}

// Code is what Generate makes.
type Code struct {
	// Filter is the body of X_filter(ctx, e): bit i of its result tells that clause i wants the event. Action is the body of
	// X_action(ctx, e, passed).
	Filter, Action asm.Instructions
	// Before and After are the bytes of the event that Filter reads and that only Action reads: found by looking at the loads that
	// were emitted.
	Before, After []Span
	// Maps are the names of the maps that the code refers to.
	Maps []string
}

// Span is Size bytes of the event from Offset.
type Span struct{ Offset, Size int }

// LimitError says what of a program the kernel cannot run, and user space can.
type LimitError struct {
	Part   int // index in Spec.Parts
	Reason string
}

func (e *LimitError) Error() string { return e.Reason }
