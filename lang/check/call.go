package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types calls that have a value. callstmt.go types calls that are statements.

// signature describes a function that has a value. Each letter of params stands for an argument: s a string, t a string or a cgroup,
// whose path it is, n a number, v any value, l a list, p a condition on #, m a value computed from #, f a time format, a anything with an
// address.
type signature struct {
	usage, params string
	least         int // how many arguments are required
	result        event.Type
	// fails reports that the value may be absent even if all arguments are present.
	fails bool
}

var signatures = map[string]signature{
	"upper":       {"upper(s)", "s", 1, ir.Text, false},
	"lower":       {"lower(s)", "s", 1, ir.Text, false},
	"trim":        {"trim(s) or trim(s, characters)", "ss", 1, ir.Text, false},
	"trimPrefix":  {"trimPrefix(s, prefix)", "ss", 2, ir.Text, false},
	"trimSuffix":  {"trimSuffix(s, suffix)", "ss", 2, ir.Text, false},
	"replace":     {"replace(s, old, new)", "sss", 3, ir.Text, true},
	"repeat":      {"repeat(s, n)", "sn", 2, ir.Text, true},
	"indexOf":     {"indexOf(s, part)", "ss", 2, ir.Integer64, false},
	"lastIndexOf": {"lastIndexOf(s, part)", "ss", 2, ir.Integer64, false},
	"hasPrefix":   {"hasPrefix(s, prefix)", "ss", 2, ir.Boolean, false},
	"hasSuffix":   {"hasSuffix(s, suffix)", "ss", 2, ir.Boolean, false},
	"split":       {"split(s, separator) or split(s, separator, n)", "ssn", 2, event.Type{Kind: format.Array}, false},
	"join":        {"join(list) or join(list, separator)", "ls", 1, ir.Text, true},
	"int":         {`int("12")`, "s", 1, ir.Integer64, true},
	"string":      {"string(x)", "v", 1, ir.Text, false},
	"strftime":    {`strftime("%H:%M:%S", nsecs)`, "fn", 2, ir.Text, false},
	"ntop":        {"ntop(address)", "aa", 1, ir.Text, true},
	"macaddr":     {"macaddr(x)", "n", 1, ir.Text, false},
	"memcmp":      {"memcmp(a, b, n)", "ssn", 3, ir.Integer64, false},
	"buf":         {"buf(s) or buf(s, n)", "sn", 1, ir.Text, false},
	"strerror":    {"strerror(errno)", "n", 1, ir.Text, false},
	"signal_name": {"signal_name(n)", "n", 1, ir.Text, false},
	"any":         {"any(list, # > 1)", "lp", 2, ir.Boolean, false},
	"all":         {"all(list, # > 1)", "lp", 2, ir.Boolean, false},
	"none":        {"none(list, # > 1)", "lp", 2, ir.Boolean, false},
	"one":         {"one(list, # > 1)", "lp", 2, ir.Boolean, false},
	"filter":      {"filter(list, # > 1)", "lp", 2, event.Type{Kind: format.Array}, false},
	"map":         {"map(list, # * 2)", "lm", 2, event.Type{Kind: format.Array}, false},
	"first":       {"first(list)", "l", 1, event.Type{}, true},
	"last":        {"last(list)", "l", 1, event.Type{}, true},
}

// call types a function call in an expression.
func (c *checker) call(n *ast.CallNode) *ir.Expr {
	fn, at := callee(n), syntax.SpanOf(n)
	if e, is := c.specialCall(fn, n); is {
		return e
	}
	switch {
	case isStack(fn):
		return c.stackCall(fn, at, n.Arguments)
	case aggregationUsage(fn) != "":
		return c.fail(at, fn+"() is an aggregation, not a value", fmt.Sprintf("assign it to a map: @x = %s", aggregationUsage(fn)))
	case slices.Contains(statements, fn):
		return c.fail(at, fn+"() is a statement and has no value", "")
	}
	if c.isWord(fn) && len(n.Arguments) == 0 {
		word := &ast.IdentifierNode{Value: fn} // bpftrace has both forms
		word.SetLocation(n.Location())
		return c.name(word, nil)
	}
	if foreignCalls[fn].means != nil {
		return c.foreignCall(fn, n)
	}
	s, ok := signatures[fn]
	if !ok {
		return c.unknownFunction(n, fn)
	}
	if len(n.Arguments) < s.least || len(n.Arguments) > len(s.params) {
		return c.fail(at, fmt.Sprintf("%s() has %s", fn, argumentCount(len(n.Arguments))), "write "+s.usage)
	}
	var args []*ir.Expr
	element := c.element
	for i, arg := range c.inOrder(n.Arguments) {
		e := c.argument(fn, s, s.params[i], arg)
		if e == nil {
			c.element = element
			return nil
		}
		args = append(args, e)
		if s.params[i] == 'l' {
			c.element = &e.Elems[0]
		}
	}
	c.element = element
	return c.result(fn, s, args)
}

// isWord reports whether fn is the word of a value that bpftrace also reads by a call without arguments.
func (c *checker) isWord(fn string) bool {
	f := c.namedField(fn)
	return f != nil && f.Common || slices.Contains(builtins, fn) || c.probe == nil && selfTypes[fn].Size != 0 || fn == "nsecs"
}

// argument types an argument of a function. Arguments after a list may refer to its elements as #.
func (c *checker) argument(fn string, s signature, param byte, n ast.Node) *ir.Expr {
	switch param {
	case 'l':
		return c.list(fn, s, n)
	case 'p':
		return c.condition(n)
	case 'f':
		return c.timeFormat(n)
	}
	var want *event.Type
	if param == 't' {
		want = &ir.Text
	}
	e := c.expr(n, want)
	if e == nil {
		return nil
	}
	kind := e.Type.Kind
	ok, sort := true, ""
	switch param {
	case 't':
		e = pathOf(e)
		kind = e.Type.Kind
		ok, sort = kind == event.String, "a string"
	case 's':
		ok, sort = kind == event.String, "a string"
	case 'n':
		ok, sort = event.IsNumber(e.Type), "a number"
	case 'a':
		if isArray(e) {
			e = c.numberOf(e)
		}
		kind = e.Type.Kind
		ok, sort = event.IsNumber(e.Type) || kind == event.GID, "an address"
	default:
		ok, sort = kind != format.Tuple && kind != format.Array && kind != format.Stack, "a single value"
	}
	if !ok && kind != ir.Pending {
		return c.fail(e.Span, fmt.Sprintf("%s() takes %s here, not %s", fn, sort, describe(e)), "write "+s.usage)
	}
	return e
}

// result makes the node of a call.
func (c *checker) result(fn string, s signature, args []*ir.Expr) *ir.Expr {
	e := ir.Operation(ir.OpCall, s.result, args...)
	e.Fn = fn
	e.Optional = e.Optional || s.fails
	computed := event.Type{Kind: event.String, Size: max(computedSize, args[0].Type.Size)}
	if e.Type.Kind == event.String {
		e.Type = computed
		e.Type.Unit = ir.TextUnits[fn]
	}
	switch fn {
	case "split":
		e.Elems = []event.Type{computed}
	case "filter":
		e.Elems, e.Optional = args[0].Elems, args[0].Optional
	case "map":
		e.Elems = []event.Type{args[1].Type}
	case "any", "all", "none", "one":
		e.Optional = args[0].Optional
	case "first", "last":
		e.Type = args[0].Elems[0]
	}
	return e
}

// list types a list: [a, b], or a function that returns one.
func (c *checker) list(fn string, s signature, n ast.Node) *ir.Expr {
	literal, ok := n.(*ast.ArrayNode)
	if !ok {
		e := c.expr(n, nil)
		if e != nil && e.Type.Kind != format.Array {
			return c.fail(e.Span, fmt.Sprintf("%s() takes a list here, not %s", fn, describe(e)), "write "+s.usage)
		}
		return e
	}
	at := syntax.SpanOf(n)
	if len(literal.Nodes) == 0 {
		return c.fail(at, "the list is empty", "")
	}
	want := c.context(n)
	elems, ok := c.exprs(literal.Nodes, func(int) *event.Type { return want })
	if !ok {
		return nil
	}
	all := shape{known: true, columns: make([]bound, 1)}
	for _, e := range elems {
		if !c.scalar(e, "an element of a list") {
			return nil
		}
		if found := all.join(row{values: []*ir.Expr{e}}, e.Span); found != nil {
			return c.fail(e.Span, fmt.Sprintf("the list has %s here and %s before", found.here, found.there), "all elements of a list must have the same type")
		}
	}
	for i := range elems {
		elems[i] = conform(&all, elems[i:i+1])[0]
	}
	e := ir.Operation(ir.OpList, event.Type{Kind: format.Array}, elems...)
	e.Elems, e.Span = all.types(), at
	return e
}

// currentElement types #.
func (c *checker) currentElement(n ast.Node) *ir.Expr {
	if c.element == nil {
		return c.fail(syntax.SpanOf(n), "# works only in functions on lists, like any([1, 2], # > x)", "")
	}
	return &ir.Expr{Op: ir.OpElement, Type: *c.element}
}

// length types len() of a map, a list, a string or a stack.
func (c *checker) length(n *ast.CallNode) *ir.Expr {
	at := syntax.SpanOf(n)
	if len(n.Arguments) != 1 {
		return c.fail(at, "len() has "+argumentCount(len(n.Arguments)), "write len(@map), len(string), len(list) or len(kstack)")
	}
	if ref, ok := n.Arguments[0].(*syntax.MapRef); ok && ref.Key == nil {
		return &ir.Expr{Op: ir.OpLen, Type: ir.Natural64, Map: c.mapOf(ref.Name).info}
	}
	var e *ir.Expr
	if isList(n.Arguments[0]) {
		e = c.list("len", signature{}, n.Arguments[0])
	} else {
		e = c.expr(n.Arguments[0], nil)
	}
	switch {
	case e == nil:
		return nil
	case e.Type.Kind != event.String && e.Type.Kind != format.Array && e.Type.Kind != format.Stack && e.Type.Kind != ir.Pending:
		return c.fail(e.Span, fmt.Sprintf("len() takes a map, a string, a list or a stack, not %s", describe(e)), "")
	}
	length := ir.Operation(ir.OpCall, ir.Natural64, e)
	length.Fn = "len"
	return length
}

func isList(n ast.Node) bool {
	_, ok := n.(*ast.ArrayNode)
	return ok
}

// casts gives the bits and the kind of the type of each cast.
var casts = map[string]struct {
	bits int
	kind event.Kind
}{
	"int8": {8, event.Int}, "int16": {16, event.Int}, "int32": {32, event.Int}, "int64": {64, event.Int},
	"uint8": {8, event.Uint}, "uint16": {16, event.Uint}, "uint32": {32, event.Uint}, "uint64": {64, event.Uint},
}

// cast types (uint8)x.
func (c *checker) cast(n *syntax.Cast) *ir.Expr {
	to, ok := c.typeName(n.To, syntax.SpanOf(n))
	x := c.expr(n.Of, nil)
	switch {
	case x == nil || !ok || to == "":
		return x
	case n.To.Array != 0:
		return c.arrayOf(n, x)
	case isArray(x):
		x = c.numberOf(x)
	}
	return c.castTo(to, x, syntax.SpanOf(n))
}

// castTo converts a value to the type of a cast.
func (c *checker) castTo(word string, x *ir.Expr, at syntax.Span) *ir.Expr {
	numeric := event.IsNumber(x.Type) || x.Type.Kind == event.Bool || x.Type.Kind == ir.Pending
	switch {
	case word == "string" && x.Type.Kind == event.String:
		return x
	case word == "string":
		return c.result("string", signatures["string"], []*ir.Expr{x})
	case word == "bool" && x.Type.Kind == event.String:
		return simplify(ir.Operation(ir.OpNe, ir.Boolean, x, c.str(at, "", nil)))
	case !numeric:
		return c.fail(at, fmt.Sprintf("%s cannot be cast to a number", describe(x)), castHelp(x))
	case word == "bool" && x.Type.Kind == event.Bool:
		return x
	case word == "bool":
		return ir.Operation(ir.OpTruth, ir.Boolean, x)
	}
	to := casts[word]
	e := ir.Operation(ir.OpCast, event.Type{Kind: to.kind, Size: to.bits / 8}, x)
	e.Bits = to.bits
	return e
}

func castHelp(e *ir.Expr) string {
	if e.Type.Kind == event.String {
		return `int("12") reads a number`
	}
	return ""
}

// timeFormat types the format of a time, which must be a literal.
func (c *checker) timeFormat(n ast.Node) *ir.Expr {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return c.fail(syntax.SpanOf(n), "the format of a time must be a literal string", `write "%H:%M:%S"`)
	}
	_, err := format.NewTimePattern(s.Value)
	if !c.formatted([]ast.Node{n}, err) {
		return nil
	}
	return c.expr(n, nil)
}

// unknownFunction reports a function that does not exist.
func (c *checker) unknownFunction(n *ast.CallNode, fn string) *ir.Expr {
	names := slices.Concat(aggregationNames(), statements, special, slices.Sorted(maps.Keys(signatures)))
	help := foreignFunctions[fn]
	switch {
	case help != "":
	case c.having(fn) != nil:
		help = fmt.Sprintf("%s is a field: write it without brackets", fn)
	default:
		help = syntax.DidYouMean(fn, names)
	}
	if help == "" {
		help = "functions are " + strings.Join(names, " ")
	}
	return c.fail(syntax.SpanOf(n.Callee), fmt.Sprintf("there is no function %s", fn), help)
}

// stackModes maps bpftrace's names to how frames are written.
var stackModes = map[string]event.Unit{"bpftrace": 0, "perf": format.PerfFrames, "raw": format.RawFrames}

// stackCall types kstack and ustack, and their calls with a mode, a number of frames, or both.
func (c *checker) stackCall(word string, at syntax.Span, args []ast.Node) *ir.Expr {
	help := fmt.Sprintf("write %s, %[1]s(5) for five frames, or %[1]s(perf, 5) or %[1]s(raw) for addresses", word)
	if c.probe == nil {
		return c.fail(at, fmt.Sprintf("%s has no event, so there is no %s", c.clause.Kind, word), "capture stacks in clauses that name probes")
	}
	if c.probe.Period != 0 {
		c.unknown = append(c.unknown, unknown{name: word, span: at})
		return nil
	}
	if word == "ustack" && c.probe.StackOf != nil {
		return c.fail(at, fmt.Sprintf("the kernel does not show the stack of user space of the task of %v, as it is not the current one", c.probe),
			"kstack is known; sched:switch has both of a task that leaves its CPU")
	}
	how := c.stackMode
	rest := args
	if len(rest) > 0 {
		if name, ok := rest[0].(*ast.IdentifierNode); ok && name.Value[0] != '$' {
			mode, known := stackModes[name.Value]
			if !known {
				return c.fail(syntax.SpanOf(name), fmt.Sprintf("%s() has no mode %s", word, name.Value), help)
			}
			how, rest = mode, rest[1:]
		}
	}
	frames := int64(event.MaxFrames)
	switch len(rest) {
	case 0:
	case 1:
		var ok bool
		if frames, ok = c.constant(rest[0], "the number of frames of "+word+"()", 1, event.MaxFrames); !ok {
			return nil
		}
	default:
		return c.fail(at, fmt.Sprintf("%s() has %s", word, argumentCount(len(args))), help)
	}
	e := ir.StackOf(word, int(frames))
	e.Type.Unit, e.Span = how, at
	return e
}

// isArray reports whether an expression is an array: the parts of a number, a tuple with a form of its own.
func isArray(e *ir.Expr) bool { return e.Form.IsArray() }

// arrayOf types (uint8[4])x and (uint8[])x: the parts of a number as they are in memory, the lowest first.
func (c *checker) arrayOf(n *syntax.Cast, x *ir.Expr) *ir.Expr {
	at, to := syntax.SpanOf(n), casts[n.To.Name]
	switch {
	case n.To.Name == "bool":
		to.bits = 8
	case to.bits == 0:
		return c.fail(at, "the elements of an array are numbers or booleans", "write (uint8[4])x")
	}
	switch {
	case isArray(x):
		x = c.numberOf(x)
	case !event.IsNumber(x.Type) && x.Type.Kind != ir.Pending:
		return c.fail(at, fmt.Sprintf("%s cannot be cast to an array", describe(x)), "numbers can")
	}
	count := n.To.Array
	bits := 8 * x.Type.Size
	switch {
	case count == syntax.OfValue && (x.Type.Kind == ir.Pending || c.first && x.Op != ir.OpLit): // what the program sets later may be wider
		c.changed = c.changed || c.first
		return &ir.Expr{Op: ir.OpCast, Type: event.Type{Kind: ir.Pending}, Args: []*ir.Expr{x}, Bits: to.bits}
	case count == syntax.OfValue:
		count = max(1, bits/to.bits)
	}
	switch {
	case count*to.bits > 64:
		return c.fail(at, fmt.Sprintf("%s is larger than a number, which has 8 bytes", n.To), "")
	case count*to.bits < bits && x.Type.Kind != ir.Pending:
		return c.fail(at, fmt.Sprintf("%s has no room for a number of %d bits", n.To, bits), "write a longer array, or cut the number first: (uint16)x")
	case !c.inBody() && draws(x):
		return c.fail(at, "each element would have a random number of its own", "write the array in the body, of a variable: $x = rand")
	}
	if c.inBody() && x.Op != ir.OpLit && x.Op != ir.OpField && x.Op != ir.OpVar {
		if x = c.keepValue(n, x); x == nil {
			return nil
		}
	}
	whole := row{tuple: true, form: format.ArrayForm(count)}
	for i := range count {
		part := literal(uint64(0)) // beyond the number
		if i*to.bits < bits || x.Type.Kind == ir.Pending {
			part = ir.Operation(ir.OpShr, event.Type{Kind: x.Type.Kind, Size: 8}, x, literal(uint64(i*to.bits)))
		}
		part.Span = at
		if n.To.Name == "bool" {
			part = c.castTo("uint8", part, at)
			part.Span = at
		}
		part = c.castTo(n.To.Name, part, at)
		part.Span = at
		whole.values = append(whole.values, part)
	}
	return tupleOf(whole, at)
}

// draws reports whether a value is another one each time.
func draws(e *ir.Expr) (found bool) {
	ir.WalkExpr(e, func(e *ir.Expr) { found = found || e.Op == ir.OpSelf && e.Fn == "rand" })
	return found
}

// numberOf returns the number whose parts an array has.
func (c *checker) numberOf(array *ir.Expr) *ir.Expr {
	at := func(e *ir.Expr) *ir.Expr {
		e.Span = array.Span
		return e
	}
	whole := literal(uint64(0))
	bits := 0
	for _, part := range c.membersOf(array) {
		size := 8 * max(1, part.Type.Size) // a boolean has no size
		low := at(ir.Operation(ir.OpCast, ir.Natural64, part))
		low.Bits = size
		moved := at(ir.Operation(ir.OpShl, ir.Natural64, low, literal(uint64(bits))))
		whole = at(ir.Operation(ir.OpBitOr, ir.Natural64, whole, moved))
		bits += size
	}
	whole.Type.Size = bits / 8
	return whole
}
