package check

import (
	"fmt"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// stackCall types kstack, ustack and kstack(n), ustack(n).
func (c *checker) stackCall(word string, at syntax.Span, args []ast.Node) *ir.Expr {
	frames := int64(event.MaxFrames)
	switch {
	case c.probe == nil:
		return c.fail(at, fmt.Sprintf("%s has no event, so there is no %s", c.clause.Kind, word), "capture stacks in clauses that name probes")
	case len(args) > 1:
		return c.fail(at, fmt.Sprintf("%s() has %s", word, argumentCount(len(args))), fmt.Sprintf("write %s, or %[1]s(5) for five frames", word))
	case len(args) == 1:
		if name, ok := args[0].(*ast.IdentifierNode); ok && name.Value[0] != '$' {
			return c.fail(syntax.SpanOf(name), fmt.Sprintf("%s() takes a number of frames", word), fmt.Sprintf("write %s, or %[1]s(5) for five frames", word))
		}
		var ok bool
		if frames, ok = c.constant(args[0], "the number of frames of "+word+"()", 1, event.MaxFrames); !ok {
			return nil
		}
	}
	e := ir.StackOf(word, int(frames))
	e.Span = at
	return e
}
