package ir

import (
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file defines the meaning of every operator on values: int64, uint64, bool and string, nil for an absent value, and []any for
// a tuple or a list. The engines have to agree with it.

// MaxString is how many bytes a string may have that the program makes. A longer one is absent.
const MaxString = syntax.MaxString

// Function returns the function that computes e from the values of its operands. An absent operand makes the result absent, except
// for `&&`, `||`, `in`, the test for absence, and a tuple, whose elements may be absent. `??` and `?:` choose what is computed, so
// they are not functions. For these and for nodes that are not operators, like reads of maps, Function returns nil.
func Function(e *Expr) func(operands []any) any {
	switch e.Op {
	case OpAnd:
		return and
	case OpOr:
		return or
	case OpIn:
		return in
	case OpAbsent:
		return func(x []any) any { return x[0] == nil }
	case OpTuple:
		return func(x []any) any { return slices.Clone(x) }
	}
	compute := present(e)
	if compute == nil {
		return nil
	}
	return func(x []any) any {
		if slices.Contains(x, nil) {
			return nil
		}
		return compute(x)
	}
}

// present returns the function of e for operands that are all present, or nil.
func present(e *Expr) func(x []any) any {
	switch e.Op {
	case OpNot:
		return func(x []any) any { return not(x[0]) }
	case OpTruth:
		return func(x []any) any { return event.To[uint64](x[0]) != 0 }
	case OpSigned:
		return func(x []any) any { return event.To[int64](x[0]) }
	case OpBetween:
		return func(x []any) any { return between{x[0], x[1]} }
	case OpMember:
		return func(x []any) any { return As(e.Type.Kind, x[0].([]any)[e.Index]) }
	case OpCast:
		return cast(e.Type.Kind, e.Bits)
	case OpByte:
		return func(x []any) any { return byteOf(x[0].(string), e.Index) }
	case OpSwap:
		return func(x []any) any { return bits.ReverseBytes64(event.To[uint64](x[0])) >> (64 - e.Bits) }
	case OpList:
		return func(x []any) any { return alike(x) }
	case OpEq:
		return func(x []any) any { return equal(x[0], x[1]) }
	case OpNe:
		return func(x []any) any { return not(equal(x[0], x[1])) }
	case OpLt:
		return func(x []any) any { return event.Compare(x[0], x[1]) < 0 }
	case OpLe:
		return func(x []any) any { return event.Compare(x[0], x[1]) <= 0 }
	case OpGt:
		return func(x []any) any { return event.Compare(x[0], x[1]) > 0 }
	case OpGe:
		return func(x []any) any { return event.Compare(x[0], x[1]) >= 0 }
	case OpContains:
		return func(x []any) any { return strings.Contains(x[0].(string), x[1].(string)) }
	case OpStartsWith:
		return func(x []any) any { return strings.HasPrefix(x[0].(string), x[1].(string)) }
	case OpEndsWith:
		return func(x []any) any { return strings.HasSuffix(x[0].(string), x[1].(string)) }
	case OpMatches:
		return func(x []any) any { return x[1].(*regexp.Regexp).MatchString(x[0].(string)) }
	}
	if e.Type.Kind == event.Int {
		return integer[int64](e.Op)
	}
	return integer[uint64](e.Op)
}

// integer returns an operation on 64-bit numbers in two's complement, or nil.
func integer[T int64 | uint64](op Op) func(x []any) any {
	var f func(a, b T) T
	switch op {
	case OpNegate:
		return func(x []any) any { return -event.To[T](x[0]) }
	case OpCompl:
		return func(x []any) any { return ^event.To[T](x[0]) }
	case OpAdd:
		f = func(a, b T) T { return a + b }
	case OpSub:
		f = func(a, b T) T { return a - b }
	case OpMul:
		f = func(a, b T) T { return a * b }
	case OpDiv:
		f = func(a, b T) T {
			if b == 0 {
				return 0
			}
			return a / b
		}
	case OpMod:
		f = func(a, b T) T {
			if b == 0 {
				return a
			}
			return a % b
		}
	case OpBitAnd:
		f = func(a, b T) T { return a & b }
	case OpBitOr:
		f = func(a, b T) T { return a | b }
	case OpBitXor:
		f = func(a, b T) T { return a ^ b }
	case OpShl:
		f = func(a, b T) T { return a << (b & 63) }
	case OpShr:
		f = func(a, b T) T { return a >> (b & 63) }
	case OpPower:
		f = power[T]
	default:
		return nil
	}
	return func(x []any) any { return f(event.To[T](x[0]), event.To[T](x[1])) }
}

// power returns a to the power of n, wrapped to 64 bits. A negative power is 1/a**-n, truncated like /.
func power[T int64 | uint64](a, n T) T {
	if n < 0 {
		switch a {
		case 1:
			return 1
		case ^T(0): // -1, because a negative n rules out uint64
			return 1 - 2*(n&1)
		}
		return 0
	}
	result := T(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= a
		}
		a *= a
	}
	return result
}

// cast keeps the low bits of a number or boolean. The result has the sign of kind.
func cast(kind event.Kind, size int) func(x []any) any {
	unused := 64 - size
	if kind == event.Int {
		return func(x []any) any { return event.To[int64](format.Numeric(x[0])) << unused >> unused }
	}
	return func(x []any) any { return event.To[uint64](format.Numeric(x[0])) << unused >> unused }
}

// alike returns a list of values of one sort. Its numbers are signed if one of them is, as in arithmetic.
func alike(x []any) []any {
	list := slices.Clone(x)
	signed := slices.ContainsFunc(list, func(v any) bool { _, ok := v.(int64); return ok })
	if signed {
		for i, v := range list {
			list[i] = As(event.Int, v)
		}
	}
	return list
}

// As reinterprets the bits of a number as kind. It returns other values, and absent ones, unchanged.
func As(kind event.Kind, v any) any {
	switch v := v.(type) {
	case int64:
		if kind == event.Uint {
			return uint64(v)
		}
	case uint64:
		if kind == event.Int {
			return int64(v)
		}
	}
	return v
}

// equal returns true or false, or nil if the result depends on an absent element of a tuple. Tuples are equal if all their elements
// are.
func equal(a, b any) any {
	x, ok := a.([]any)
	if !ok {
		return event.Compare(a, b) == 0
	}
	var result any = true
	for i, v := range b.([]any) {
		switch {
		case x[i] == nil || v == nil:
			result = nil
		case event.Compare(x[i], v) != 0:
			return false
		}
	}
	return result
}

// not returns the negation of a boolean. Absent stays absent.
func not(v any) any {
	if v == nil {
		return nil
	}
	return !v.(bool)
}

// and is Kleene's: false if one operand is false, otherwise absent if one is absent.
func and(x []any) any {
	if x[0] == false || x[1] == false {
		return false
	}
	if x[0] == nil || x[1] == nil {
		return nil
	}
	return true
}

// or is Kleene's: true if one operand is true, otherwise absent if one is absent.
func or(x []any) any {
	if x[0] == true || x[1] == true {
		return true
	}
	if x[0] == nil || x[1] == nil {
		return nil
	}
	return false
}

// between is a range as an operand of in.
type between struct{ lo, hi any }

// in searches for the first value among the others. An absent element might have been equal, as in or.
func in(x []any) any {
	if x[0] == nil {
		return nil
	}
	var result any = false
	for _, element := range x[1:] {
		switch r := element.(type) {
		case nil:
			result = nil
		case between:
			if event.Compare(x[0], r.lo) >= 0 && event.Compare(x[0], r.hi) <= 0 {
				return true
			}
		default:
			switch equal(x[0], r) {
			case true:
				return true
			case nil:
				result = nil
			}
		}
	}
	return result
}

// byteOf returns byte i of a string, as a char of C on x86 has it.
func byteOf(s string, i int) int64 {
	if i < len(s) {
		return int64(int8(s[i]))
	}
	return 0
}
