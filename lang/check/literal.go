package check

import (
	"math/bits"
	"net/netip"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types literals.

// literal makes the node of a number. A number that is not negative is unsigned; a signed operand makes it signed. It has the bytes of
// the smallest signed type that holds it.
func literal(v any) *ir.Expr {
	e := &ir.Expr{Op: ir.OpLit, Type: event.Type{Kind: event.Uint, Size: bytesFor(v)}, Val: v}
	if i, ok := v.(int64); ok {
		if i < 0 {
			e.Type.Kind = event.Int
		} else {
			e.Val = uint64(i)
		}
	}
	return e
}

// bytesFor returns the size of the smallest signed type that holds a number; 8 if none does.
func bytesFor(v any) int {
	n := event.To[uint64](v)
	if i, ok := v.(int64); ok && i < 0 {
		n = uint64(^i)
	}
	return min(8, 1<<bits.Len(uint(bits.Len64(n)/8))) // the sign takes a bit
}

// unitOf returns the unit in the text of a number literal.
func unitOf(text string) event.Unit {
	if len(text) > 1 && text[0] == '0' && strings.IndexByte("xXob", text[1]) >= 0 {
		return event.None
	}
	switch text[len(text)-1] {
	case 's', 'm', 'h', 'd':
		return event.Nanoseconds
	case 'B':
		return event.Bytes
	}
	return event.None
}

// literalValue returns the value of a literal, which may have a minus sign, as int64, uint64, bool or string.
func literalValue(n ast.Node) (value any, unit event.Unit, ok bool) {
	switch n := n.(type) {
	case *ast.BoolNode:
		return n.Value, event.None, true
	case *ast.StringNode:
		return n.Value, event.None, true
	case *ast.ConstantNode:
		if i, ok := n.Value.(syntax.Int); ok {
			return i.Value, unitOf(i.Text), true
		}
	case *ast.UnaryNode:
		v, unit, ok := literalValue(n.Node)
		if u, isNumber := v.(uint64); ok && isNumber && n.Operator == "-" && u <= 1<<63 {
			return literal(-int64(u)).Val, unit, true
		}
	}
	return nil, event.None, false
}

func typeOfParam(value any, unit event.Unit) event.Type {
	switch value := value.(type) {
	case bool:
		return ir.Boolean
	case string:
		return event.Type{Kind: event.String, Size: len(value) + 1}
	default:
		t := literal(value).Type
		t.Unit = unit
		return t
	}
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)

func isNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}

const networkHelp = `one of a network is found by its text: string(dgid) startsWith "::ffff:10.9."`

// computedSize is how many bytes of a computed string a map in the kernel keeps.
const computedSize = 64
