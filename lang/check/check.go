package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// expr types n. After a mistake it notes the error and returns nil. want is the type of the other operand; it gives names and
// addresses their meaning and may be nil.
func (c *checker) expr(n ast.Node, want *event.Type) *ir.Expr {
	if !c.typesMore(syntax.SpanOf(n)) {
		return nil
	}
	e := c.typed(n, want)
	if e == nil {
		return nil
	}
	if simple := simplify(e); simple != e {
		copied := *simple // the operand keeps its place
		e = &copied
	}
	if e.Span = syntax.SpanOf(n); !c.fits(e) {
		return nil
	}
	return e
}

func (c *checker) typed(n ast.Node, want *event.Type) *ir.Expr {
	switch n := n.(type) {
	case *ast.ConstantNode:
		return c.number(n)
	case *ast.BoolNode:
		return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: n.Value}
	case *ast.StringNode:
		return c.str(syntax.SpanOf(n), n.Value, want)
	case *ast.NilNode:
		return c.fail(syntax.SpanOf(n), "nil is not a value",
			"to test whether a field is absent, write field == nil or field != nil")
	case *ast.IdentifierNode:
		return c.name(n, want)
	case *ast.UnaryNode:
		return c.unary(n, want)
	case *ast.BinaryNode:
		return c.binary(n, want)
	case *ast.ConditionalNode:
		cond := c.condition(n.Cond)
		var yes, no *ir.Expr
		then := c.aside(func() { c.branch(cond, true, func() { yes = c.expr(n.Exp1, either(c.context(n.Exp2), want)) }) })
		els := c.aside(func() { c.branch(cond, false, func() { no = c.expr(n.Exp2, either(c.context(n.Exp1), want)) }) })
		if cond != nil && len(then)+len(els) > 0 {
			cond = c.keepValue(n, cond)
			c.do(&ir.IfStmt{Cond: cond, Then: then, Else: els, Span: syntax.SpanOf(n)})
		}
		if cond == nil || yes == nil || no == nil {
			return nil
		}
		return c.choice(n, ir.OpCond, yes, no, cond)
	case *ast.ArrayNode:
		return c.fail(syntax.SpanOf(n), "a list is allowed only after in and in functions on lists", "write x in [a, b]")
	case *ast.CallNode:
		return c.call(n)
	case *ast.PointerNode:
		return c.currentElement(n)
	case *syntax.MapRef:
		return c.lookup(n)
	case *syntax.Tuple:
		return c.tuple(n)
	case *syntax.Member:
		return c.member(n)
	case *syntax.Cast:
		return c.cast(n)
	case *syntax.Step:
		return c.step(n)
	case *syntax.BlockExpr:
		return c.blockValue(n, want)
	case *typedNode:
		return n.e
	case *syntax.NamedArg:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("there is no argument %s here", n.Name), "to compare, write ==")
	}
	panic(fmt.Sprintf("lang: the parser does not make a %T", n))
}

// condition types n as a condition. A number is true if it is not 0.
func (c *checker) condition(n ast.Node) *ir.Expr {
	e := c.expr(n, nil)
	switch {
	case e == nil || e.Type.Kind == event.Bool || e.Type.Kind == ir.Pending:
		return e
	case event.IsNumber(e.Type):
		truth := ir.Operation(ir.OpTruth, ir.Boolean, e)
		truth.Span = e.Span
		return simplify(truth)
	}
	help := `compare it: x == "…"`
	if isRecord(e) {
		help = "to compare, write =="
	}
	return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is not a condition", describe(e)), help)
}

// number types a number literal. A duration or a size has a unit.
func (c *checker) number(n *ast.ConstantNode) *ir.Expr {
	if f, ok := n.Value.(syntax.Float); ok {
		return c.fail(syntax.SpanOf(n), f.Text+" has a fraction but no unit", "numbers are integers, like 1500 or 1.5ms; only quantile takes fractions")
	}
	i := n.Value.(syntax.Int)
	e := literal(i.Value)
	e.Type.Unit = unitOf(i.Text)
	return e
}

// str types a string literal. Compared with an address, it is an address.
func (c *checker) str(at syntax.Span, value string, want *event.Type) *ir.Expr {
	if want != nil && want.Kind == event.GID {
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" {
			help := `a GID is like "fe80::1", "::ffff:10.0.0.1" or "10.0.0.1"`
			if isNetwork(value) {
				help = networkHelp
			}
			return c.fail(at, fmt.Sprintf("%q is not an address", value), help)
		}
		raw := addr.As16()
		return &ir.Expr{Op: ir.OpLit, Type: event.Type{Kind: event.GID, Size: 16}, Val: string(raw[:])}
	}
	if want != nil && want.Unit == event.Cgroup {
		return c.cgroup(at, value, want)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return c.fail(at, "the string has a NUL byte, but strings in events end before the first NUL", "")
	}
	return &ir.Expr{Op: ir.OpLit, Type: event.Type{Kind: event.String, Size: len(value) + 1}, Val: value}
}

// name types a word: a field, or a name from the enum of the other operand. If a word is both, event.word means the field and
// enum.word the name; both forms are always accepted.
func (c *checker) name(n *ast.IdentifierNode, want *event.Type) *ir.Expr {
	if n.Value[0] == '$' {
		return c.dollar(n, want)
	}
	field, enum := c.namedField(n.Value), event.EnumOf(want)
	var value int64
	isValue := false
	if enum != nil {
		value, isValue = enum.Value(n.Value)
	}
	prefix, word, _ := strings.Cut(n.Value, ".")
	switch {
	case field != nil && isValue:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is a field and a name of %s", n.Value, enum.Name),
			fmt.Sprintf("write event.%s for the field or %s.%s for the name", n.Value, enum.Name, n.Value))
	case field == nil && prefix == "event":
		field = c.field(word)
	case field == nil && !isValue:
		if enum = c.enum(prefix); enum != nil {
			value, isValue = enum.Value(word)
		}
	}
	switch {
	case field != nil:
		if !field.Common {
			c.fields = append(c.fields, field.Name)
		}
		e := &ir.Expr{Op: ir.OpField, Type: field.Type, Field: field, Optional: field.Optional}
		if field.Common && field.Name == "nsecs" {
			e.Type.Unit = ir.Instant
		}
		return e
	case isValue && value > 0 && want != nil && want.Unit == event.Errno:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is %d, but a failure is a negative number here", n.Value, value), "write -"+n.Value)
	case isValue:
		e := literal(value)
		e.Type.Enum = enum
		return e
	}
	if isStack(n.Value) {
		return c.stackCall(n.Value, syntax.SpanOf(n), nil)
	}
	if n.Value == "cpid" {
		return c.command(syntax.SpanOf(n))
	}
	if e := c.builtin(n.Value); e != nil {
		return e
	}
	c.unknown = append(c.unknown, unknown{fieldWord(n.Value), syntax.SpanOf(n), want})
	return nil
}

// namedField returns the field that a word means: its name, args. and its name as in bpftrace, or retval. It returns nil if there is
// none.
func (c *checker) namedField(word string) *event.Field {
	if f := c.field(word); f != nil {
		return f
	}
	return c.field(fieldWord(word))
}

// fieldWord returns the name of the field that a word of bpftrace means.
func fieldWord(word string) string {
	if word == "retval" {
		return "ret"
	}
	return strings.TrimPrefix(word, "args.")
}

// builtin types words that are values but not fields.
func (c *checker) builtin(word string) *ir.Expr {
	switch {
	case word == "probe":
		return c.str(c.clause.Tree.Span, c.placeName(), nil)
	case word == "elapsed":
		return &ir.Expr{Op: ir.OpElapsed, Type: ir.Durations, Field: c.field("nsecs")}
	case word == "probetype":
		return c.str(c.clause.Tree.Span, c.placeType(), nil)
	case word == "has_cpid":
		return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: c.options.Command}
	case word == "recorded":
		return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: c.options.recorded()}
	case word == "ncpus" && c.options.CPUs > 0:
		return literal(uint64(c.options.CPUs))
	case word == "cgroup" && c.probe == nil:
		return c.ownCgroup()
	case word == "usermode":
		return c.userMode()
	case word == "username" && c.probe != nil:
		return c.userName()
	case word == "leader_comm" && c.probe != nil:
		return c.leaderName()
	case word == "rand", c.readAtEvent(word), c.probe == nil && selfTypes[word].Size != 0:
		return &ir.Expr{Op: ir.OpSelf, Fn: word, Type: selfTypes[word], Optional: mayLack[word] && c.probe == nil}
	case word == "nsecs" && c.probe == nil:
		return &ir.Expr{Op: ir.OpNow, Type: event.Type{Kind: event.Uint, Size: 8, Unit: ir.Instant}}
	}
	return nil
}

var (
	natural32 = event.Type{Kind: event.Uint, Size: 4}
	commType  = event.Type{Kind: event.String, Size: 16}
)

// selfTypes are the types of words about the process that runs a clause without an event, and of rand, numaid, jiffies and gid.
var selfTypes = map[string]event.Type{
	"rand": natural32, "pid": natural32, "tid": natural32, "ppid": natural32, "uid": natural32, "gid": natural32, "cpu": natural32,
	"comm": commType, "pcomm": commType, "leader_comm": commType, "username": {Kind: event.String, Size: computedSize},
	"numaid": natural32, "jiffies": ir.Natural64,
}

// mayLack are the words of these that may be absent in a clause without an event.
var mayLack = map[string]bool{
	"cpu": true, "comm": true, "pcomm": true, "leader_comm": true, "username": true, "numaid": true, "jiffies": true,
}

// readAtEvent reports whether a word is a property of the CPU or of the task at an event, which the kernel reads there. Where an event is of
// another task, its uid may be absent, and its gid is not known. An expression that names no probe means the field of ib:get_gid.
func (c *checker) readAtEvent(word string) bool {
	if c.probe == nil || c.options.recorded() {
		return false
	}
	if word == "gid" {
		uid := c.field("uid")
		return len(c.clause.Tree.Probes) > 0 && !c.probe.Elsewhere && uid != nil && !uid.Optional
	}
	return word == "numaid" || word == "jiffies"
}

// userMode types usermode where it is not a field: trace itself is a process, and all events but samples come from the kernel.
func (c *checker) userMode() *ir.Expr {
	switch {
	case c.probe == nil:
		return literal(uint64(1))
	case c.probe.Sampled: // of a recording from before it was a field
		return nil
	}
	return literal(uint64(0))
}

// userName types username at an event: the name that the users of this machine have for its uid.
func (c *checker) userName() *ir.Expr {
	uid := c.name(&ast.IdentifierNode{Value: "uid"}, nil)
	if uid == nil || c.options.recorded() {
		return nil
	}
	return c.result("username", signature{result: ir.Text, fails: true}, []*ir.Expr{uid})
}

// leaderName types leader_comm at an event: the name of the process, which is the name of its first thread.
func (c *checker) leaderName() *ir.Expr {
	pid := c.name(&ast.IdentifierNode{Value: "pid"}, nil)
	if pid == nil || c.options.recorded() {
		return nil
	}
	return c.result("comm", signature{result: ir.Text, fails: true}, []*ir.Expr{pid})
}

// command types cpid, the process that -c starts.
func (c *checker) command(at syntax.Span) *ir.Expr {
	switch {
	case c.options.Known != nil:
		return c.fail(at, "cpid is the process of the command of -c, and a recording has none", "compare pid with its number, or comm with its name")
	case !c.options.Command && c.dead > 0:
		return literal(uint64(0))
	case !c.options.Command:
		return c.fail(at, "cpid is the process of the command of -c, and there is no -c", "start one with -c COMMAND, or select a running process with -p PID")
	}
	return &ir.Expr{Op: ir.OpCommand, Type: ir.Natural64}
}

// placeName returns the name of the probe, or of the moment.
func (c *checker) placeName() string {
	switch {
	case c.clause.Name != "":
		return c.clause.Name
	case c.probe != nil:
		return c.probe.String()
	}
	return c.clause.Kind.String()
}

// placeType returns the group of the probe, or bpftrace's name for the moment.
func (c *checker) placeType() string {
	switch {
	case c.probe != nil:
		return c.probe.Group
	case c.clause.Kind == ir.OnBegin, c.clause.Kind == ir.OnEnd:
		return "special"
	case c.clause.Kind.Tried():
		return c.clause.Kind.String()
	}
	kind, _, _ := strings.Cut(c.placeName(), ":")
	return kind
}

// enum returns the enum called name, or nil. It looks among the fields of the probe, and in a clause without events among all
// fields.
func (c *checker) enum(name string) *event.Enum {
	in := c.catalog
	if c.probe != nil {
		in = []*event.Probe{c.probe}
	}
	for _, p := range in {
		for _, f := range p.Fields {
			if e := event.EnumOf(&f.Type); e != nil && e.Name == name {
				return e
			}
		}
	}
	return nil
}

// context returns the type that n gives to names and addresses beside it: the type of the field whose value n has, or nil.
func (c *checker) context(n ast.Node) *event.Type {
	t, known := c.contexts[n]
	if !known {
		t = c.findContext(n)
		c.contexts[n] = t
	}
	return t
}

func (c *checker) findContext(n ast.Node) *event.Type {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		if n.Value[0] == '$' {
			return c.dollarContext(n.Value)
		}
		if f := c.namedField(strings.TrimPrefix(n.Value, "event.")); f != nil {
			return &f.Type
		}
	case *syntax.MapRef:
		return c.mapContext(n)
	case *syntax.Member:
		return c.memberContext(n)
	case *typedNode:
		return &n.e.Type
	case *ast.PointerNode:
		return c.element
	case *ast.UnaryNode:
		switch n.Operator {
		case "-":
			return negated(c.context(n.Node))
		case "~":
			return c.context(n.Node)
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "??", "|", "&", "^", "..":
			return either(c.context(n.Left), c.context(n.Right))
		}
	case *ast.ConditionalNode:
		return either(c.context(n.Exp1), c.context(n.Exp2))
	case *ast.ArrayNode:
		for _, e := range n.Nodes {
			if t := c.context(e); t != nil {
				return t
			}
		}
	}
	return nil
}

func either(a, b *event.Type) *event.Type {
	if a != nil {
		return a
	}
	return b
}

// ownCgroup types cgroup in a clause without an event: the cgroup of trace itself.
func (c *checker) ownCgroup() *ir.Expr {
	return &ir.Expr{Op: ir.OpSelf, Fn: "cgroup", Type: *c.cgroupType(), Optional: true}
}
