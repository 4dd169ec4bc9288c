package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types functions of bpftrace whose arguments or results need more than a signature.

// specialCall types a call of a function with a value that has no signature. is reports whether fn is one.
func (c *checker) specialCall(fn string, n *ast.CallNode) (e *ir.Expr, is bool) {
	switch fn {
	case "has_key":
		return c.hasKey(n), true
	case "len":
		return c.length(n), true
	case "str":
		return c.stringItself(n), true
	case "find":
		return c.find(n), true
	case "delete":
		return c.deleted(n), true
	case "bswap":
		return c.swapped(n), true
	case "pton":
		return c.addressOf(n), true
	case "strcap":
		return c.capacity(n), true
	case "syscall_name":
		return c.callName(n), true
	case "kaddr", "ksym":
		return c.kernelSymbol(n), true
	case "usym":
		return c.userSymbol(n), true
	case getopt:
		return c.getopt(n), true
	case "nsecs":
		return c.clock(n), true
	case "comm":
		return c.commOf(n), true
	case "sizeof":
		return c.sizeOf(n), true
	case "pid", "tid":
		return c.inNamespace(n)
	case "cgroupid":
		return c.cgroupCalled(n), true
	case "cgroup_path":
		return c.cgroupPath(n), true
	}
	if sorts[fn] != nil {
		return c.isSort(fn, n), true
	}
	return nil, false
}

// foreignCall types a call of a function of bpftrace.
func (c *checker) foreignCall(fn string, n *ast.CallNode) *ir.Expr {
	call, at := foreignCalls[fn], syntax.SpanOf(n)
	if len(n.Arguments) != len(call.params) {
		return c.fail(at, fmt.Sprintf("%s() has %s", fn, argumentCount(len(n.Arguments))), "write "+call.usage)
	}
	args := make([]ast.Node, len(n.Arguments))
	for i, arg := range c.inOrder(n.Arguments) { // here, where mistakes name the function that the user knows
		e := c.argument(fn, signature{usage: call.usage}, call.params[i], arg)
		if e == nil {
			return nil
		}
		args[i] = typed(arg, e)
	}
	same := call.means(args)
	if same == nil {
		return c.fail(at, fn+"() takes other arguments", "write "+call.usage)
	}
	return c.expr(located(same, n), nil)
}

// stringItself types bpftrace's str(s): a string is one already. str(s, n) has its first n bytes.
func (c *checker) stringItself(n *ast.CallNode) *ir.Expr {
	const usage = "str(s) or str(s, n)"
	if len(n.Arguments) != 1 && len(n.Arguments) != 2 {
		return c.fail(syntax.SpanOf(n), "str() has "+argumentCount(len(n.Arguments)), "write "+usage)
	}
	args := c.inOrder(n.Arguments)
	e, is := c.argumentText(n.Arguments[0])
	if !is {
		e = c.expr(args[0], nil)
	}
	if e != nil && e.Type.Kind != event.String && e.Type.Kind != ir.Pending {
		return c.fail(e.Span, "str() takes a string here, not "+describe(e), "what an address points to is not read; string(x) is the text of a number")
	}
	if e == nil || len(args) == 1 {
		return e
	}
	most := c.argument("str", signature{usage: usage}, 'n', args[1])
	if most == nil {
		return nil
	}
	return c.expr(located(callOf("buf", &typedNode{args[0], e}, &typedNode{args[1], most}), n), nil)
}

// oneArgument returns the only argument of a call, or nil after a mistake.
func (c *checker) oneArgument(n *ast.CallNode, usage string) ast.Node {
	if len(n.Arguments) != 1 {
		c.fail(syntax.SpanOf(n), fmt.Sprintf("%s() has %s", callee(n), argumentCount(len(n.Arguments))), "write "+usage)
		return nil
	}
	return n.Arguments[0]
}

// numberArgument types the only argument of a call, which must be a number.
func (c *checker) numberArgument(n *ast.CallNode, usage string) *ir.Expr {
	arg := c.oneArgument(n, usage)
	if arg == nil {
		return nil
	}
	return c.argument(callee(n), signature{usage: usage}, 'n', arg)
}

// literalArgument returns the only argument of a call, which must be a literal string.
func (c *checker) literalArgument(n *ast.CallNode, usage string) (text string, ok bool) {
	arg := c.oneArgument(n, usage)
	if arg == nil {
		return "", false
	}
	text, ok = c.stringLiteral(arg)
	if !ok {
		c.fail(syntax.SpanOf(arg), callee(n)+"() takes a literal string", "write "+usage)
	}
	return text, ok
}

// swapped types bswap(x): as many bytes as x has. A literal has the bytes that it needs.
func (c *checker) swapped(n *ast.CallNode) *ir.Expr {
	x := c.numberArgument(n, "bswap(x), or bswap((uint16)x)")
	if x == nil || x.Type.Kind == ir.Pending {
		return x
	}
	size := x.Type.Size
	e := ir.Operation(ir.OpSwap, event.Type{Kind: event.Uint, Size: size}, x)
	e.Bits = 8 * size
	return e
}

// addressOf types pton("fe80::1"), a GID, and pton("10.9.0.1"), an array of the four bytes of an address.
func (c *checker) addressOf(n *ast.CallNode) *ir.Expr {
	text, ok := c.literalArgument(n, `pton("10.9.0.1") or pton("fe80::1")`)
	if !ok {
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is4() {
		return c.str(syntax.SpanOf(n), text, &event.Type{Kind: event.GID})
	}
	whole := row{tuple: true, form: format.ArrayForm(4)}
	for _, b := range addr.As4() {
		e := literal(uint64(b))
		e.Type.Size, e.Span = 1, syntax.SpanOf(n)
		whole.values = append(whole.values, e)
	}
	return tupleOf(whole, syntax.SpanOf(n))
}

// capacity types strcap(s): how many bytes a string may have, with the NUL that ends it in the kernel.
func (c *checker) capacity(n *ast.CallNode) *ir.Expr {
	arg := c.oneArgument(n, "strcap(s)")
	if arg == nil {
		return nil
	}
	e := c.argument("strcap", signature{usage: "strcap(s)"}, 's', arg)
	if e == nil || e.Type.Kind == ir.Pending {
		return e
	}
	return literal(uint64(e.Type.Size))
}

// callName types syscall_name(n).
func (c *checker) callName(n *ast.CallNode) *ir.Expr {
	x := c.numberArgument(n, "syscall_name(n)")
	if x == nil || x.Type.Kind == ir.Pending {
		return x
	}
	calls := c.systemCalls()
	if calls == nil {
		return c.fail(syntax.SpanOf(n), "no probe here has the names of system calls", "")
	}
	e := c.result("syscall_name", signature{result: ir.Text}, []*ir.Expr{x})
	e.Type.Enum = calls
	return e
}

// systemCalls returns the names of the system calls, or nil if no probe has them.
func (c *checker) systemCalls() *event.Enum {
	for _, p := range c.catalog {
		if f := p.Field(p.Selector); p.Selector != "" && f != nil {
			return f.Type.Enum
		}
	}
	return nil
}

// kernelSymbol types ksym(address) and kaddr("function").
func (c *checker) kernelSymbol(n *ast.CallNode) *ir.Expr {
	fn := callee(n)
	if c.options.recorded() {
		return c.fail(syntax.SpanOf(n), fn+"() reads the functions of the running kernel, and a recording may be of another one", "print kstack, which is recorded with its names")
	}
	if fn == "ksym" {
		address := c.numberArgument(n, "ksym(address)")
		if address == nil {
			return nil
		}
		return c.result(fn, signature{result: ir.Text}, []*ir.Expr{address})
	}
	name, ok := c.literalArgument(n, `kaddr("schedule")`)
	if !ok {
		return nil
	}
	return c.result(fn, signature{result: ir.Natural64, fails: true}, []*ir.Expr{c.str(syntax.SpanOf(n), name, nil)})
}

// userSymbol types usym(address), an address in the process of the event.
func (c *checker) userSymbol(n *ast.CallNode) *ir.Expr {
	if c.options.recorded() {
		return c.fail(syntax.SpanOf(n), "usym() reads the process of the event, which a recording has not", "print ustack, which is recorded with its names")
	}
	address := c.numberArgument(n, "usym(address)")
	process := c.name(&ast.IdentifierNode{Value: "pid"}, nil)
	if address == nil || process == nil {
		return nil
	}
	return c.result("usym", signature{result: ir.Text}, []*ir.Expr{address, process})
}

// clock types nsecs() and nsecs(mode): the time on another clock, which the distance of the clocks at the start of the program gives.
func (c *checker) clock(n *ast.CallNode) *ir.Expr {
	now := c.name(located(&ast.IdentifierNode{Value: "nsecs"}, n).(*ast.IdentifierNode), nil)
	if len(n.Arguments) == 0 || now == nil {
		return now
	}
	modes := slices.Sorted(maps.Keys(c.options.Clocks))
	mode, isWord := n.Arguments[0].(*ast.IdentifierNode)
	if isWord && mode.Value == "boot" && len(n.Arguments) == 1 {
		return now
	}
	if c.options.recorded() {
		return c.fail(syntax.SpanOf(n), "a recording has only the clock of nsecs, the time since boot", "write nsecs, or strftime() for the time of day")
	}
	ahead, known := int64(0), false
	if isWord {
		ahead, known = c.options.Clocks[mode.Value]
	}
	if len(n.Arguments) != 1 || !known {
		return c.fail(syntax.SpanOf(n), "nsecs() takes the name of a clock", "write nsecs, or nsecs(mode): modes are "+strings.Join(append(modes, "boot"), ", "))
	}
	return ir.Operation(ir.OpAdd, ir.Natural64, now, literal(uint64(ahead)))
}

// commOf types comm(), and comm(pid): the name that another process has now.
func (c *checker) commOf(n *ast.CallNode) *ir.Expr {
	if len(n.Arguments) == 0 {
		return c.name(located(&ast.IdentifierNode{Value: "comm"}, n).(*ast.IdentifierNode), nil)
	}
	if c.options.recorded() {
		return c.fail(syntax.SpanOf(n), "comm(pid) reads the name of a process of this machine, and a recording is of the past", "write comm, the name at the event")
	}
	process := c.numberArgument(n, "comm, or comm(pid)")
	if process == nil {
		return nil
	}
	return c.result("comm", signature{result: ir.Text, fails: true}, []*ir.Expr{process})
}

// inNamespace types pid(init) and pid(curr_ns). Both are pid: a process has one number here, as the initial namespace has it at events.
func (c *checker) inNamespace(n *ast.CallNode) (e *ir.Expr, is bool) {
	if len(n.Arguments) == 0 {
		return nil, false
	}
	fn := callee(n)
	mode, isWord := n.Arguments[0].(*ast.IdentifierNode)
	if !isWord || len(n.Arguments) > 1 || mode.Value != "init" && mode.Value != "curr_ns" {
		return c.fail(syntax.SpanOf(n), fn+"() takes the name of a namespace", fmt.Sprintf("write %s, %[1]s(init) or %[1]s(curr_ns), which are the same here", fn)), true
	}
	return c.name(located(&ast.IdentifierNode{Value: fn}, n).(*ast.IdentifierNode), nil), true
}

// find types find(@m, key, $v): whether there is such a key. If there is, $v becomes its value.
func (c *checker) find(n *ast.CallNode) *ir.Expr {
	const usage = "find(@map, key, $variable)"
	if len(n.Arguments) != 3 {
		return c.fail(syntax.SpanOf(n), "find() has "+argumentCount(len(n.Arguments)), "write "+usage)
	}
	ref, isMap := n.Arguments[0].(*syntax.MapRef)
	target, isName := n.Arguments[2].(*ast.IdentifierNode)
	if !isMap || ref.Key != nil || !isName || !strings.HasPrefix(target.Value, "$") {
		return c.fail(syntax.SpanOf(n), "find() takes a map, a key and a variable", "write "+usage)
	}
	if !c.inBody() {
		return c.predicateActs(n)
	}
	key := n.Arguments[1]
	if acts(key) {
		early := c.readEarly(key)
		if early == nil {
			return nil
		}
		key = &typedNode{Node: key, e: early}
	}
	assign := c.assignment(n, func() *syntax.Assign {
		return &syntax.Assign{Target: target, Op: "=", Span: syntax.SpanOf(n)}
	})
	value := &syntax.MapRef{Name: ref.Name, Key: []ast.Node{key}}
	value.SetLocation(ref.Location())
	assign.Value = value
	has := callOf("has_key", ref, key)
	has.SetLocation(n.Location())
	found := c.keep(n, has)
	if found == nil {
		return nil
	}
	then := c.aside(func() { c.do(c.stmt(assign)) })
	c.do(&ir.IfStmt{Cond: found, Then: then, Span: syntax.SpanOf(n)})
	return found
}

// deleted types delete(@m, key) as a value: whether there was such a key. A map without keys had a value.
func (c *checker) deleted(n *ast.CallNode) *ir.Expr {
	if !c.inBody() {
		return c.predicateActs(n)
	}
	out := &ir.CallStmt{Fn: "delete", Span: syntax.SpanOf(n)}
	if !c.delete(out, n) {
		return nil
	}
	for i, e := range out.Key {
		if draws(e) { // once, for both
			out.Key[i] = c.keepValue(keyElement{n, i}, e)
		}
	}
	found := c.keepValue(n, hasKey(out.Map, out.Key, out.Span))
	c.do(out)
	return found
}

// keyElement is an element of the key in a call.
type keyElement struct {
	call ast.Node
	i    int
}

// predicateActs reports that the predicate of a clause without a body does something.
func (c *checker) predicateActs(n ast.Node) *ir.Expr {
	return c.fail(syntax.SpanOf(n), "a predicate without a body changes nothing", "give the clause a body: { print(args) }")
}

// assignment returns the assignment that an expression makes, always the same one.
func (c *checker) assignment(n ast.Node, make func() *syntax.Assign) *syntax.Assign {
	if c.assignments[n] == nil {
		c.assignments[n] = make()
	}
	return c.assignments[n]
}

// typeName returns the name of a type, "" while it is not known. ok is false after a mistake.
func (c *checker) typeName(t syntax.Type, at syntax.Span) (name string, ok bool) {
	if t.Like == nil {
		return t.Name, true
	}
	e := c.unevaluated(t.Like)
	if e == nil {
		return "", false
	}
	switch e.Type.Kind {
	case ir.Pending:
		return "", true
	case event.Bool:
		return "bool", true
	case event.String:
		return "string", true
	case event.Int:
		return fmt.Sprintf("int%d", 8*e.Type.Size), true
	case event.Uint:
		return fmt.Sprintf("uint%d", 8*e.Type.Size), true
	}
	c.fail(at, "typeof() takes a number, a bool or a string, not "+describe(e), "")
	return "", false
}

// unevaluated types an expression, and drops what it does.
func (c *checker) unevaluated(n ast.Node) (e *ir.Expr) {
	c.aside(func() { e = c.expr(n, nil) })
	return e
}

// sizeOf types sizeof(uint32), and sizeof(x): the bytes of its type. A literal has the bytes that it needs.
func (c *checker) sizeOf(n *ast.CallNode) *ir.Expr {
	const usage = "sizeof(uint32) or sizeof(x)"
	arg := c.oneArgument(n, usage)
	if arg == nil {
		return nil
	}
	if name, is := arg.(*ast.IdentifierNode); is {
		if t := syntax.TypeCalled(name.Value); t.Name == "bool" {
			return literal(uint64(ir.Boolean.Size))
		} else if bits := casts[t.Name].bits; bits > 0 {
			return literal(uint64(bits / 8))
		}
	}
	if _, is := arg.(*ast.BoolNode); is {
		return literal(uint64(8)) // bpftrace takes true and false for numbers here
	}
	e := c.unevaluated(arg)
	if e == nil {
		return nil
	}
	size, ok := sizeOfValue(e)
	if !ok {
		return c.fail(e.Span, "sizeof() takes a number, a bool, a string or a tuple of them, not "+describe(e), "write "+usage)
	}
	return literal(uint64(size))
}

// sizeOfValue returns how many bytes a value has. The numbers of a tuple are where their size allows, as in C.
func sizeOfValue(e *ir.Expr) (size int, ok bool) {
	all := e.Elems
	if e.Type.Kind != format.Tuple {
		all = []event.Type{e.Type}
	}
	widest := 1
	for _, t := range all {
		if t.Size == 0 && t.Kind != ir.Pending || t.Kind == format.Stack {
			return 0, false
		}
		align := 1
		if event.IsNumber(t) {
			align = t.Size
		}
		size, widest = rounded(size, align)+t.Size, max(widest, align)
	}
	return rounded(size, widest), true
}

// rounded returns the next multiple of a power of two.
func rounded(n, to int) int { return (n + to - 1) &^ (to - 1) }

// sorts are the functions that ask for the sort of a value.
var sorts = map[string]func(e *ir.Expr) bool{
	"is_array":            func(e *ir.Expr) bool { return e.Type.Kind == format.Array || isArray(e) },
	"is_integer":          func(e *ir.Expr) bool { return event.IsNumber(e.Type) },
	"is_literal":          func(e *ir.Expr) bool { return e.Op == ir.OpLit },
	"is_ptr":              func(*ir.Expr) bool { return false }, // there are no pointers
	"is_str":              func(e *ir.Expr) bool { return e.Type.Kind == event.String },
	"is_unsigned_integer": func(e *ir.Expr) bool { return e.Type.Kind == event.Uint && !plain(e) },
}

// isSort types is_integer(x) and its like.
func (c *checker) isSort(fn string, n *ast.CallNode) *ir.Expr {
	arg := c.oneArgument(n, fn+"(x)")
	if arg == nil {
		return nil
	}
	var e *ir.Expr
	if isList(arg) {
		e = c.list(fn, signature{}, arg)
	} else {
		e = c.unevaluated(arg)
	}
	if e == nil {
		return nil
	}
	return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: sorts[fn](e)}
}
