package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types calls that are statements.

// callStmt types a call that is a statement.
func (c *checker) callStmt(s *syntax.Call) ir.Stmt {
	fn := callee(s.Call)
	switch fn {
	case "assert":
		return c.assert(s)
	case "static_assert":
		c.assertStatic(s.Call)
		return nil
	case "fail":
		c.failHere(s.Call)
		return nil
	case ir.ToProcess, ir.ToThread:
		return c.signal(s, fn)
	case "join":
		return c.callStmt(&syntax.Call{Call: c.printJoined(s.Call), Span: s.Span})
	}
	out := &ir.CallStmt{Fn: fn, Span: s.Span}
	ok := false
	switch fn {
	case "print":
		ok = c.print(out, s.Call)
	case "clear", "zero":
		ok = c.empty(out, s.Call)
	case "delete":
		ok = c.delete(out, s.Call)
	case "printf", "errorf", "warnf", "cat":
		ok = c.written(out, s.Call)
	case "system":
		ok = c.allowed(out) && c.written(out, s.Call)
	case "time":
		ok = c.time(out, s.Call)
	case "exit":
		ok = c.exit(out, s.Call)
	default:
		c.noStatement(s.Call, fn)
	}
	if !ok {
		return nil
	}
	return out
}

// printJoined is bpftrace's statement join(list), which prints the elements.
func (c *checker) printJoined(n *ast.CallNode) *ast.CallNode {
	joined := callOf("join", n.Arguments...)
	if len(n.Arguments) == 1 {
		joined.(*ast.CallNode).Arguments = append(joined.(*ast.CallNode).Arguments, &ast.StringNode{Value: " "})
	}
	return located(callOf("print", located(joined, n)), n).(*ast.CallNode)
}

// allowed reports whether the program may act.
func (c *checker) allowed(out *ir.CallStmt) bool {
	switch {
	case c.options.recorded():
		c.fail(out.Span, out.Fn+"() acts on this machine, and a recording is of the past", "leave it out")
		return false
	case !c.options.Unsafe:
		c.fail(out.Span, out.Fn+"() is an unsafe function being used in safe mode", "allow it with --unsafe")
		return false
	}
	return true
}

// signal types signal("KILL"), signal(9) and signal_thread(9): the kernel sends it at the event, and user space counts it.
func (c *checker) signal(s *syntax.Call, fn string) ir.Stmt {
	out := &ir.CallStmt{Fn: fn, Span: s.Span}
	if c.probe == nil {
		c.fail(s.Span, fmt.Sprintf("%s has no event, so there is no process to send a signal to", c.clause.Kind), "send it in a clause that names probes")
		return nil
	}
	if c.probe.Period != 0 {
		c.fail(s.Span, fmt.Sprintf("no task makes %s, so there is no process to send a signal to", c.probe), "send it at other probes")
		return nil
	}
	if !c.allowed(out) {
		return nil
	}
	number, process := c.signalNumber(s.Call, fn), c.name(&ast.IdentifierNode{Value: "pid"}, nil)
	if number == nil || process == nil {
		return nil
	}
	sent := ir.Operation(ir.OpSignal, ir.Integer64, number, process)
	sent.Fn, sent.Span = fn, s.Span
	result := c.keepValue(s, sent)
	if result == nil {
		return nil
	}
	out.Args = []*ir.Expr{result}
	return out
}

// signalNumber types the argument of signal() or signal_thread().
func (c *checker) signalNumber(n *ast.CallNode, fn string) *ir.Expr {
	usage := fmt.Sprintf(`%s("KILL") or %[1]s(9)`, fn)
	arg := c.oneArgument(n, usage)
	if arg == nil {
		return nil
	}
	if name, isName := arg.(*ast.StringNode); isName {
		value := format.SignalNumber(name.Value)
		if value == 0 {
			return c.fail(syntax.SpanOf(arg), fmt.Sprintf("%q is not a signal", name.Value), syntax.DidYouMean(name.Value, format.SignalNames()))
		}
		return literal(value)
	}
	number := c.numberArgument(n, usage)
	if number != nil && number.Op == ir.OpLit && (event.Compare(number.Val, int64(1)) < 0 || event.Compare(number.Val, int64(format.LastSignal)) > 0) {
		return c.fail(number.Span, fmt.Sprintf("%v is not a signal", number.Val), fmt.Sprintf("signals are 1 to %d", format.LastSignal))
	}
	return number
}

// exit types exit() and exit(status).
func (c *checker) exit(out *ir.CallStmt, n *ast.CallNode) bool {
	const help = "write exit(), or exit(3) for the exit status 3"
	if len(n.Arguments) == 0 {
		return true
	}
	if len(n.Arguments) > 1 {
		c.fail(out.Span, "exit() has "+argumentCount(len(n.Arguments)), help)
		return false
	}
	e := c.expr(n.Arguments[0], nil)
	switch {
	case e == nil:
		return false
	case !event.IsNumber(e.Type) && e.Type.Kind != event.Bool && e.Type.Kind != ir.Pending:
		c.fail(e.Span, "an exit status must be a number, not "+describe(e), help)
		return false
	case e.Op == ir.OpLit && event.IsNumber(e.Type) && (event.Compare(e.Val, int64(0)) < 0 || event.Compare(e.Val, int64(ir.MaxStatus)) > 0):
		c.fail(e.Span, fmt.Sprintf("an exit status must be between 0 and %d", ir.MaxStatus), help)
		return false
	}
	out.Args = []*ir.Expr{e}
	return true
}

// noStatement reports a call that has no effect.
func (c *checker) noStatement(n *ast.CallNode, fn string) {
	switch {
	case aggregationUsage(fn) != "":
		c.fail(syntax.SpanOf(n), fn+"() is not assigned to a map", fmt.Sprintf("write @x = %s", aggregationUsage(fn)))
	case c.hasValue(fn):
		c.expr(n, nil)
		c.discarded(syntax.SpanOf(n))
	default:
		c.unknownFunction(n, fn)
	}
}

// hasValue reports whether a function has a value, and no effect.
func (c *checker) hasValue(fn string) bool {
	_, known := signatures[fn]
	return known || foreignCalls[fn].means != nil || slices.Contains(special, fn) || isStack(fn) || c.isWord(fn)
}

// wholeMap returns the map that the first argument names without a key, or nil.
func (c *checker) wholeMap(n *ast.CallNode) *mapUses {
	if len(n.Arguments) == 0 {
		return nil
	}
	if ref, ok := n.Arguments[0].(*syntax.MapRef); ok && ref.Key == nil {
		return c.mapOf(ref.Name)
	}
	return nil
}

// empty types clear(@m) and zero(@m).
func (c *checker) empty(out *ir.CallStmt, n *ast.CallNode) bool {
	m := c.wholeMap(n)
	if m == nil || len(n.Arguments) != 1 {
		c.fail(out.Span, out.Fn+"() takes only a map", fmt.Sprintf("write %s(@map), or delete(@map[key]) to delete one key", out.Fn))
		return false
	}
	if out.Fn == "zero" && m.ranks() {
		c.fail(out.Span, fmt.Sprintf("%s is ranked by %s, and values of 0 have no rank", m.info.Name, m.how), fmt.Sprintf("write clear(%s)", m.info.Name))
		return false
	}
	out.Map = m.info
	return true
}

// delete types delete(@m, key) and delete(@m[key]).
func (c *checker) delete(out *ir.CallStmt, n *ast.CallNode) bool {
	m, nodes, at := c.mapAndKey(n, "delete")
	if m == nil {
		return false
	}
	if len(nodes) == 0 && m.key.known && len(m.key.columns) > 0 {
		c.fail(at, "delete() needs a key", fmt.Sprintf("write delete(%s, key), or clear(%[1]s) to delete all keys", m.info.Name))
		return false
	}
	key, ok := c.key(m, nodes, at)
	out.Map, out.Key = m.info, key
	if ok && len(key) == 0 && c.probe == nil {
		out.Fn = "clear" // as in bpftrace, so the end does not print it
	}
	return ok
}

// print types print(@m), print(@m[key]) and print(x).
func (c *checker) print(out *ir.CallStmt, n *ast.CallNode) bool {
	args, named := arguments(n)
	if len(args) == 0 {
		c.fail(out.Span, "print() needs a map or a value", "write print(@map), print(@map, 10) for the ten largest, or print(x)")
		return false
	}
	if m := c.wholeMap(n); m != nil {
		out.Map = m.info
		return c.printOptions(out, args[1:], named)
	}
	if !c.noneNamed("print", named) {
		return false
	}
	if len(args) > 1 {
		c.fail(syntax.SpanOf(args[1]), "print() takes a single value", `write print((a, b)) for a tuple, or printf("…", a, b)`)
		return false
	}
	if ref, ok := args[0].(*syntax.MapRef); ok {
		m := c.mapOf(ref.Name)
		out.Map = m.info
		out.Key, ok = c.key(m, ref.Key, syntax.SpanOf(ref))
		return ok
	}
	return c.printValue(out, args[0])
}

func (c *checker) printValue(out *ir.CallStmt, n ast.Node) bool {
	e := c.expr(n, nil)
	switch {
	case e == nil:
		return false
	case isLoopVar(e) && c.loopMap(e).many():
		key, ok := c.elements(c.memberOf(e, 0))
		out.Map, out.Key = e.Variable.LoopOver, key.values
		return ok
	case e.Type.Kind == format.Array:
		return c.scalar(e, "an argument of print()")
	}
	out.Args = []*ir.Expr{c.together(e)}
	return true
}

// printOptions reads top, div and by of print(@m, top, div, by = "key").
func (c *checker) printOptions(out *ir.CallStmt, args []ast.Node, named []*syntax.NamedArg) bool {
	ok := true
	for i, n := range args {
		switch i {
		case 0:
			out.Top, ok = c.constant(n, "the number of rows of print()", 0, maxInt64)
		case 1:
			var valid bool
			out.Div, valid = c.constant(n, "the divisor of print()", 1, maxInt64)
			ok = ok && valid
		default:
			c.fail(syntax.SpanOf(n), "print() has too many arguments", `write print(@map, top, divisor, by = "key")`)
			return false
		}
	}
	for _, arg := range named {
		if arg.Name != "by" {
			c.fail(syntax.SpanOf(arg), fmt.Sprintf("print() has no argument called %s", arg.Name), `it has by = "key" and by = "value"`)
			ok = false
			continue
		}
		by, valid := c.order(arg.Value, "print()")
		out.By, ok = by, ok && valid
	}
	return ok
}

// time types time() and time("format").
func (c *checker) time(out *ir.CallStmt, n *ast.CallNode) bool {
	layout := format.DefaultTimeFormat
	switch len(n.Arguments) {
	case 0:
	case 1:
		e := c.timeFormat(n.Arguments[0])
		if e == nil {
			return false
		}
		layout = e.Val.(string)
	default:
		c.fail(out.Span, "time() has "+argumentCount(len(n.Arguments)), `write time("%H:%M:%S\n")`)
		return false
	}
	var err error
	out.Format, err = format.NewTimePattern(layout)
	return err == nil
}

// written types printf("format", a, b) and its like.
func (c *checker) written(out *ir.CallStmt, n *ast.CallNode) bool {
	usage := fmt.Sprintf(`write %s("%%d %%s\n", pid, comm)`, out.Fn)
	if len(n.Arguments) == 0 {
		c.fail(out.Span, out.Fn+"() needs a format", usage)
		return false
	}
	text, isString := n.Arguments[0].(*ast.StringNode)
	if !isString {
		c.fail(syntax.SpanOf(n.Arguments[0]), fmt.Sprintf("the format of %s() must be a literal string", out.Fn), usage)
		return false
	}
	args, ok := c.exprs(n.Arguments[1:], func(int) *event.Type { return nil })
	for i, e := range args {
		switch {
		case e == nil || e.Type.Kind == ir.Pending:
			ok = false
		case e.Type.Kind == format.Array:
			ok = c.scalar(e, "an argument of "+out.Fn+"()")
		case isLoopVar(e):
			args[i] = c.together(e)
			ok = args[i] != nil
		}
	}
	if !ok {
		return false
	}
	var err error
	out.Args = args
	out.Place = c.text.Error(out.Span, "", "").Place()
	out.Format, err = format.NewPattern(text.Value, operandsOf(args), c.resolver.options.Raw)
	return c.formatted(n.Arguments, err)
}

// operandsOf describes the arguments to package format.
func operandsOf(args []*ir.Expr) []format.Operand {
	out := make([]format.Operand, len(args))
	for i, e := range args {
		out[i] = format.Operand{Type: e.Type, Elems: e.Elems, Own: ir.Own(e)}
	}
	return out
}

// formatted reports a mistake in a format string or in one of the arguments after it.
func (c *checker) formatted(args []ast.Node, err error) bool {
	var wrong *format.PatternError
	if errors.As(err, &wrong) {
		c.fail(syntax.SpanOf(args[wrong.Arg+1]), wrong.Msg, wrong.Help)
	}
	return err == nil
}

// failedStatus is the exit status after an assertion that does not hold.
const failedStatus = 1

// assert types assert(condition, "message"): if the condition does not hold, the message is reported and the program ends.
func (c *checker) assert(s *syntax.Call) ir.Stmt {
	args := s.Call.Arguments
	if len(args) != 2 {
		c.fail(s.Span, "assert() has "+argumentCount(len(args)), `write assert(condition, "message")`)
		return nil
	}
	out := &ir.IfStmt{Cond: c.condition(args[0]), Span: s.Span}
	reported := &ir.CallStmt{Fn: "assert", Span: s.Span} // mistakes are of assert()
	text := located(&ast.StringNode{Value: "assert failed: %s"}, s.Call)
	if !c.written(reported, callOf("errorf", text, args[1]).(*ast.CallNode)) || out.Cond == nil {
		return nil
	}
	reported.Fn = "errorf"
	out.Else = []ir.Stmt{reported, &ir.CallStmt{Fn: "exit", Span: s.Span, Args: []*ir.Expr{literal(uint64(failedStatus))}}}
	return out
}

// assertStatic types static_assert(condition, "message"): the condition has to hold before the program runs.
func (c *checker) assertStatic(n *ast.CallNode) {
	const usage = `write static_assert(condition, "message")`
	if len(n.Arguments) != 2 {
		c.fail(syntax.SpanOf(n), "static_assert() has "+argumentCount(len(n.Arguments)), usage)
		return
	}
	message, isText := c.stringLiteral(n.Arguments[1])
	cond := c.condition(n.Arguments[0])
	switch {
	case cond == nil:
	case !isText:
		c.fail(syntax.SpanOf(n.Arguments[1]), "the message of static_assert() must be a literal string", usage)
	case decided(cond, false):
		c.fail(syntax.SpanOf(n), message, "")
	case !decided(cond, true):
		c.fail(cond.Span, "static_assert() takes a condition of literals", "write assert(…) for what is known only when the program runs")
	}
}

// failHere types fail("format", literals…), a mistake that the program itself reports.
func (c *checker) failHere(n *ast.CallNode) {
	out := &ir.CallStmt{Fn: "fail", Span: syntax.SpanOf(n)}
	if !c.written(out, n) {
		return
	}
	var values []any
	for _, e := range out.Args {
		if e.Op != ir.OpLit {
			c.fail(e.Span, "fail() takes literals: it is reported before the program runs", "write errorf(…), and exit(1)")
			return
		}
		values = append(values, e.Val)
	}
	c.fail(out.Span, string(out.Format.Append(nil, values)), "")
}
