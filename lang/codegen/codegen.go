// Package codegen turns typed trees into BPF instructions. It also defines the layouts that generated code shares with user space:
// rows of keys and values, and the state of aggregations.
//
// It knows neither the catalog nor the kernel: an event is bytes at an address, and a field is an offset into it.
//
// # The meaning of an expression
//
// Numbers have 64 bits, in two's complement; Type.Kind determines whether they are signed. Arithmetic wraps; `/` and `%` truncate
// toward zero, x/0 is 0, x%0 is x, the smallest number divided by -1 is itself; shift counts use their low six bits, and >> of a
// signed number keeps the sign. Comparisons are mathematical, whatever the signs of the operands. Strings end at their first NUL,
// and are padded with NULs to their size. Values may be absent: an operator with an absent operand is absent, && and || are
// Kleene's, ?: takes the second branch if its condition is absent, and a condition that is absent does not hold. value.go of
// package ir defines the same in Go.
package codegen

import (
	"github.com/cilium/ebpf/asm"

	"trace/lang/agg"
)

// Kind is how a value is represented.
type Kind uint8

const (
	// Int and Uint are 64-bit numbers.
	Int Kind = iota
	Uint
	// Bool is 0 or 1.
	Bool
	// String is Size bytes, padded with NULs.
	String
	// Bytes is Size bytes, not interpreted (a GID).
	Bytes
)

// Type is the type of a value. Size is the number of bytes of a String or Bytes; it is 0 for other kinds.
type Type struct {
	Kind Kind
	Size int
}

// Op is the operation of a node.
type Op uint8

const (
	OpLit    Op = iota // Num or Str
	OpField            // Field
	OpVar              // Var
	OpLookup           // element Elem of the value of a scalar map; Args are the key; 0 or "" if there is no such key
	OpHasKey           // whether the map has the key Args
	OpStack            // the number of Stack, a Uint

	OpRand    // a random number of 32 bits, another one each time
	OpNuma    // the NUMA node of the CPU
	OpJiffies // the kernel's count of its ticks
	OpGroup   // the group id of the current task
	OpFrame   // the address of the stack on which the code runs: while it runs, no other has it
	OpSent    // how many pieces the part has sent of this event
	OpSignal  // sends the signal Args[0] if the process Args[1] runs: to it, or to its thread alone if Num is 1; what the helper returns

	OpTruth  // Args[0] != 0
	OpAbsent // Args[0] is absent; never absent itself
	OpSigned // the bits of Args[0] as an Int
	OpCast   // Args[0] modulo 2^Num, with the sign of Type
	OpByte   // byte Num of the text Args[0], with a sign; 0 from its end on
	OpSwap   // Args[0] with its Num/8 bytes in the opposite order
	OpPiece  // Args[0] mapped by the piece that has it; Num if none has
	OpNeg
	OpCompl // ~
	OpNot
	OpAnd // Kleene's; so is OpOr
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
	OpIn         // Args[0] equals one of the others, or lies in one that is an OpBetween; an || of the comparisons
	OpBetween    // Args[0] to Args[1], inclusive; only below OpIn
	OpStartsWith // Args[1] is a literal
	OpCoalesce   // Args[0], or Args[1] if that is absent
	OpCond       // Args[0] ? Args[1] : Args[2]
)

// Expr is a node of a typed tree.
type Expr struct {
	Op    Op
	Type  Type
	Args  []*Expr
	Num   uint64 // of OpLit, the bits of OpCast and OpSwap, the byte of OpByte, and who receives an OpSignal
	Str   string // of OpLit of String or Bytes; at most Type.Size bytes
	Field *Field
	Var   int // index of OpVar in Spec.Vars
	Map   *Map
	Elem  int
	Stack *Stack
	// Pieces are of OpPiece.
	Pieces []Piece
}

// Piece maps the signed numbers n from From to To to n + Add, or to Add - n if it is Negated.
type Piece struct {
	From, To int64
	Negated  bool
	Add      int64
}

// Field is a place in the event struct. A number of 1, 2, 4 or 8 bytes is little-endian; Expr.Type.Kind determines its sign.
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
	// Name is the name in the BPF object: at most 15 letters, digits and underscores.
	Name string
	// Index is the key in the map of counters, CountersName.
	Index int
	// Key is empty for a map without a key.
	Key Row
	// Agg is nil for a scalar map, whose value is Value.
	Agg   *agg.Agg
	Value Row
	// LRU reports that the oldest keys are dropped when the map is full.
	LRU bool
	// MaxKeys is how many keys the map has room for; 1 without a key.
	MaxKeys uint32
	// Shared reports that all CPUs share the state of an aggregation. Otherwise each CPU has its own.
	Shared bool
	// Alone reports that no two BPF programs update the map on one CPU at the same time. The state that each CPU has of an
	// aggregation then needs no atomic operations, which take 5 ns; a plain addition takes less than one.
	Alone bool
	// Turns reports that there are two maps, which take turns: Name is an array of both, and TurnName holds the index of the one
	// that BPF programs use. The other one stops changing as soon as the BPF programs that ran at the last turn have ended, so it
	// can be read and emptied. BPF programs only add to such a map, or only set it.
	Turns bool
}

// Stmt is a statement: *Set, *Add, *Update, *Delete, *Let, *If, *Repeat, *Jump, *Emit, *Stop or *Return.
type Stmt interface{ stmt() }

type (
	// Set is @m[key] = value, with an expression for each column. If the value has a single column and is absent, it is counted and
	// not set.
	Set struct {
		Map   *Map
		Key   []*Expr
		Value []*Expr
	}
	// Add is @m[key] += delta on a scalar number. It is atomic.
	Add struct {
		Map   *Map
		Key   []*Expr
		Delta *Expr
	}
	// Update is @m[key] = f(arg). Arg is nil for count() and rate(). If it is absent, that is counted and the map does not change. At
	// and Thread are fields of the event, which becomes an exemplar if the aggregation keeps them; nil: it does not.
	Update struct {
		Map        *Map
		Key        []*Expr
		Arg        *Expr
		At, Thread *Expr
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
	// Repeat runs Body so many Times, with Var one larger each time. The code has a copy for each.
	Repeat struct {
		Var   int
		From  uint64
		Times int
		Body  []Stmt
	}
	// Jump ends the innermost Repeat or, with Continue, its turn.
	Jump struct{ Continue bool }
	// Emit sends a record to user space: ID as 64 bits, then copies of parts of the event, then values. A record without room is
	// counted in Spec.Lost. A Piece is one of several of an event, which count as one record: after one without room no other is sent. One
	// that only Ends them is not sent if there are none.
	Emit struct {
		ID          uint64
		Size        int // of the record, a multiple of 8
		Copies      []Copy
		Values      []Slot
		Piece, Ends bool
	}
	// Stop makes all BPF programs ignore further events, and ends the action: exit().
	Stop struct{}
	// Return ends the clause.
	Return struct{}
)

// Copy copies Size bytes of the event into the record.
type Copy struct{ From, To, Size int }

// Slot is a value in a record: 8 bytes for a number or Bool, Size bytes for others, and a byte that is 1 if the value is present.
// If Presence is 0 there is no such byte.
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
func (*Repeat) stmt() {}
func (*Jump) stmt()   {}
func (*Emit) stmt()   {}
func (*Stop) stmt()   {}
func (*Return) stmt() {}

// Part is what the kernel runs of a site.
type Part struct {
	// Pred holds for the events that the clause wants; nil: all.
	Pred *Expr
	// Late predicates read maps. They are evaluated in the order of the parts, not in the filter.
	Late bool
	Body []Stmt
	// Comment is quoted by the verifier above the instructions: script:line: clause.
	Comment string
}

// Spec describes the code for the events of one probe.
type Spec struct {
	Parts []Part // at most MaxParts
	Vars  []Var
	// Stack is how many bytes of stack the generated functions may use. Code that needs more asks StackLeft, if it is set, how many there are.
	Stack     int
	StackLeft func() (int, error)
	// Within restricts the events to those whose fields are in all of these sets.
	Within []Within
	// Cut is where kernel stacks are cut.
	Cut Cut
	// StackOf is the argument of the BPF program that is the task whose stacks are captured; nil: the current task's.
	StackOf *int
	// CmpXchg reports that the kernel has atomic compare-and-exchange (5.12 on amd64).
	CmpXchg bool
	// Stops reports that a part of the whole program has a Stop, so events must be ignored after it.
	Stops bool
	// Ring is the name of the ring buffer, Lost the counter of records without room.
	Ring string
	Lost Counter
	// Prefix begins the labels. It is unique among the functions of one BPF program.
	Prefix string
}

// Within is a set of numbers in a map. The map is either a hash, whose 64-bit keys are the numbers, or an array with a single value
// that has a byte for each number, 1 if the number is in the set.
type Within struct {
	// Field is the field whose value must be in the set. An event without it is not in the set.
	Field *Field
	Map   string
	// Size is the size of the value of an array: numbers are less. 0 means a hash.
	Size int
}

// MaxParts is the most parts of one probe: each has a bit in the result of the filter.
const MaxParts = 63

// Counter is a 64-bit counter in the only value of a per-CPU array.
type Counter struct {
	Map    string
	Offset int
}

// Names of the maps that generated code uses besides the user's maps. Code.Maps lists the ones that it needs.
const (
	CountersName = "map_counters" // per-CPU array; element Map.Index is a MapCounters
	ZerosName    = "map_zeros"    // array of one value of zeros, as large as the largest value of a keyed map
	StoppedName  = "stopped"      // array of one 64-bit word: 1 after Stop
	TurnName     = "map_turn"     // array of one 64-bit word: which of the two maps has its turn, 0 or 1 (see Map.Turns)
)

// MapCounters count what went wrong in updates of a map: 64 bits each.
type MapCounters struct {
	Full     uint64 // no room for another key (E2BIG)
	NoMemory uint64 // ENOMEM
	Busy     uint64 // EBUSY, or an element that others kept changing
	Absent   uint64 // the argument was absent
}

// Code is the result of Generate.
type Code struct {
	// Filter is the body of X_filter(ctx, e): bit i of its result reports that part i wants the event. Action is the body of
	// X_action(ctx, e, passed).
	Filter, Action asm.Instructions
	// Before and After are the bytes of the event that Filter reads, and that only Action reads. They come from the loads that were
	// emitted.
	Before, After []Span
	// Maps are the names of the maps that the code refers to.
	Maps []string
}

// Span is Size bytes of the event at Offset.
type Span struct{ Offset, Size int }

// LimitError is the part of a program that the kernel cannot run but user space can.
type LimitError struct {
	Part   int // index in Spec.Parts
	Reason string
}

func (e *LimitError) Error() string { return e.Reason }
