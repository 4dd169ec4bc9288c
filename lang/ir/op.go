package ir

// Op is the operation of a node of the typed tree.
type Op uint8

const (
	OpLit     Op = iota
	OpField      // a field of the event
	OpVar        // a variable
	OpSlot       // value number Index of the record: the planner makes it for what the kernel computes
	OpStack      // kstack or ustack (Fn), of at most Frames frames
	OpNow        // nsecs in clauses that no event triggers
	OpElapsed    // time since the program began; Field is the nsecs of the event, if there is one
	OpCommand    // the process of the command of -c
	OpOwn        // the process of trace itself, at events
	OpSelf       // Fn of the process that runs the clause, which is trace itself; rand also at events
	OpSignal     // sends the signal Args[0] to the process Args[1], or to its thread alone, as Fn names it; what the kernel returns. Only the kernel can
	OpElement    // # in the predicate of a function on lists

	OpLookup // @m[Args]: a scalar, or an aggregation read as a number
	OpHasKey // has_key(@m, Args)
	OpLen    // len(@m)
	OpTuple  // (Args); never absent, but its elements may be
	OpMember // Args[0].Index
	OpList   // [Args], an operand of a function; kind Array, like the results of split(), filter() and map()
	OpCall   // Fn(Args): a function on strings or lists, evaluated in user space

	OpAbsent  // x == nil
	OpTruth   // a number as a condition
	OpSigned  // the same 64 bits as a signed number
	OpCast    // Args[0] modulo 2^Bits, with the sign of the type; a boolean is 0 or 1
	OpByte    // byte Index of the string Args[0], with a sign; 0 from its end on
	OpSwap    // Args[0] with its Bits/8 bytes in the opposite order
	OpBetween // a range as an operand of in
	OpCond    // Args[0] ? Args[1] : Args[2]
	OpCoalesce

	OpAnd
	OpOr
	OpNot
	OpIn
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpContains
	OpStartsWith
	OpEndsWith
	OpMatches

	OpNegate // unary minus
	OpCompl
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMod
	OpPower
	OpBitAnd
	OpBitOr
	OpBitXor
	OpShl
	OpShr

	numOps
)

// opNames are the operators as the language writes them, and names for the other operations.
var opNames = [numOps]string{
	OpLit: "literal", OpField: "field", OpVar: "variable", OpSlot: "slot", OpStack: "stack", OpNow: "now", OpElapsed: "elapsed",
	OpCommand: "cpid", OpOwn: "own", OpSelf: "self", OpSignal: "signal", OpElement: "#", OpLookup: "lookup", OpHasKey: "has_key", OpLen: "len", OpTuple: "tuple", OpMember: "member",
	OpList: "list", OpCall: "call", OpAbsent: "absent", OpTruth: "truth", OpSigned: "signed", OpCast: "cast", OpByte: "byte", OpSwap: "bswap", OpBetween: "between",
	OpCond: "?:", OpCoalesce: "??", OpAnd: "&&", OpOr: "||", OpNot: "!", OpIn: "in", OpEq: "==", OpNe: "!=", OpLt: "<", OpLe: "<=",
	OpGt: ">", OpGe: ">=", OpContains: "contains", OpStartsWith: "startsWith", OpEndsWith: "endsWith", OpMatches: "matches",
	OpNegate: "negate", OpCompl: "~", OpAdd: "+", OpSub: "-", OpMul: "*", OpDiv: "/", OpMod: "%", OpPower: "**", OpBitAnd: "&",
	OpBitOr: "|", OpBitXor: "^", OpShl: "<<", OpShr: ">>",
}

// String returns an operator as the language writes it, or a name for another operation.
func (o Op) String() string { return opNames[o] }

// operators maps the text of an operator to its operation.
var operators = func() map[string]Op {
	all := make(map[string]Op, numOps)
	for o, text := range opNames {
		all[text] = Op(o)
	}
	return all
}()

// Operator returns the operation of a binary operator, or of ~, as the parser writes it.
func Operator(text string) Op { return operators[text] }
