package event

import (
	"cmp"
	"strings"
)

// To converts a number to T, bit by bit.
func To[T int64 | uint64](v any) T {
	if i, ok := v.(int64); ok {
		return T(i)
	}
	return T(v.(uint64))
}

// Compare orders two values of the same kind. Numbers of both signs compare by value: -1 is below every uint64.
func Compare(a, b any) int {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
		if a < 0 {
			return -1
		}
		return cmp.Compare(uint64(a), b.(uint64))
	case uint64:
		if _, ok := b.(int64); ok {
			return -Compare(b, a)
		}
		return cmp.Compare(a, b.(uint64))
	case string:
		return strings.Compare(a, b.(string))
	}
	if a == b {
		return 0
	}
	return 1
}

// IsNumber reports whether values of a type are integers.
func IsNumber(t Type) bool { return t.Kind == Int || t.Kind == Uint }
