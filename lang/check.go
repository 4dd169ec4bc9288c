package lang

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Types of values that come from no field.
var (
	boolean   = event.Type{Kind: event.Bool, Size: 1}
	text      = event.Type{Kind: event.String}
	integer64 = event.Type{Kind: event.Int, Size: 8}
	natural64 = event.Type{Kind: event.Uint, Size: 8}
	durations = event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}
)

// checker gives a clause its meaning for the events of one probe, or at its moment.
type checker struct {
	*analysis
	clause *Clause
	probe  *event.Probe // nil in begin, end and interval clauses
	// body is of use only if there are no errors and no unknown words.
	body    *body
	errs    syntax.ErrorList
	unknown []unknown
	// fields that are not common to all events, in the order of their use.
	fields []string
	// contexts keeps what context has found: it is asked again at every level of the tree.
	contexts map[ast.Node]*event.Type
	// scopes are the variables of the blocks around, the innermost last; hidden are those of blocks that have ended.
	scopes []map[string]*varUses
	hidden map[string]bool
	// element is what # means in the predicate of a function on lists; nil elsewhere.
	element *event.Type
}

// unknown is a word that is no field of the probe and no name of a value that fits its place.
type unknown struct {
	name string
	span syntax.Span
	// want is the type of the other operand, or nil.
	want *event.Type
}

func (a *analysis) checker(c *Clause, p *event.Probe) *checker {
	return &checker{
		analysis: a, clause: c, probe: p, body: &body{probe: p}, contexts: map[ast.Node]*event.Type{}, hidden: map[string]bool{},
	}
}

func (c *checker) fail(at syntax.Span, msg, help string) *expr {
	if c.final {
		c.errs = append(c.errs, c.source.Error(at, msg, help))
	}
	return nil
}

// operation makes a node. It is absent if an operand is, but for the operators that deal with that. So is a comparison of tuples if
// one of their elements is.
func operation(op string, typ event.Type, args ...*expr) *expr {
	e := &expr{op: op, typ: typ, args: args}
	switch op {
	case opAbsent, opTuple, opLookup, opHasKey, opLen:
	case "??":
		e.optional = args[0].optional && args[1].optional
	case opCond:
		e.optional = args[1].optional || args[2].optional
	default:
		e.optional = slices.ContainsFunc(args, func(a *expr) bool { return a.optional || a.typ.Kind == format.Tuple && op != opMember })
	}
	return e
}

// expr types n. It returns nil after a mistake, which is noted. The type want of the other operand says what names and
// addresses mean; it may be nil.
func (c *checker) expr(n ast.Node, want *event.Type) *expr {
	e := c.typed(n, want)
	if e == nil {
		return nil
	}
	if simple := simplify(e); simple != e {
		copied := *simple // the operand keeps its place
		e = &copied
	}
	e.span = syntax.SpanOf(n)
	return e
}

func (c *checker) typed(n ast.Node, want *event.Type) *expr {
	switch n := n.(type) {
	case *ast.ConstantNode:
		return c.number(n)
	case *ast.BoolNode:
		return &expr{op: opLit, typ: boolean, val: n.Value}
	case *ast.StringNode:
		return c.str(syntax.SpanOf(n), n.Value, want)
	case *ast.NilNode:
		return c.fail(syntax.SpanOf(n), "nil is no value",
			"to test whether a field is absent write field == nil or field != nil")
	case *ast.IdentifierNode:
		return c.name(n, want)
	case *ast.UnaryNode:
		return c.unary(n, want)
	case *ast.BinaryNode:
		return c.binary(n, want)
	case *ast.ConditionalNode:
		cond := c.condition(n.Cond)
		yes := c.expr(n.Exp1, either(c.context(n.Exp2), want))
		no := c.expr(n.Exp2, either(c.context(n.Exp1), want))
		if cond == nil || yes == nil || no == nil {
			return nil
		}
		return c.choice(n, opCond, yes, no, cond)
	case *ast.ArrayNode:
		return c.fail(syntax.SpanOf(n), "a list stands only after in and in functions on lists", "write x in [a, b]")
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
	case *syntax.NamedArg:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("there is no argument called %s here", n.Name), "to compare write ==")
	}
	panic(fmt.Sprintf("lang: the parser does not make a %T", n))
}

// condition types n in a boolean position, where a number means that it is not 0.
func (c *checker) condition(n ast.Node) *expr {
	e := c.expr(n, nil)
	switch {
	case e == nil || e.typ.Kind == event.Bool || e.typ.Kind == pending:
		return e
	case event.IsNumber(e.typ):
		truth := operation(opTruth, boolean, e)
		truth.span = e.span
		return simplify(truth)
	}
	return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is no condition", describe(e)), `compare it: x == "…"`)
}

// number types a number literal. A duration or a size has its unit.
func (c *checker) number(n *ast.ConstantNode) *expr {
	if f, ok := n.Value.(syntax.Float); ok {
		return c.fail(syntax.SpanOf(n), f.Text+" has a fraction but no unit", "numbers are integers; 1.5ms is one; quantile alone takes 99.9")
	}
	i := n.Value.(syntax.Int)
	e := literal(i.Value)
	e.typ.Unit = unitOf(i.Text)
	return e
}

// unitOf returns the unit that the text of a number literal has.
func unitOf(text string) event.Unit {
	if len(text) > 1 && text[0] == '0' && strings.IndexByte("xXob", text[1]) >= 0 {
		return event.None
	}
	switch text[len(text)-1] {
	case 's', 'm', 'h':
		return event.Nanoseconds
	case 'B':
		return event.Bytes
	}
	return event.None
}

// literal makes a node of a number. One that is not negative is unsigned, which gives way to a signed operand.
func literal(v any) *expr {
	e := &expr{op: opLit, typ: event.Type{Kind: event.Uint, Size: 8}, val: v}
	if i, ok := v.(int64); ok {
		if i < 0 {
			e.typ.Kind = event.Int
		} else {
			e.val = uint64(i)
		}
	}
	return e
}

const networkHelp = `one of a network is found by its text: string(dgid) startsWith "::ffff:10.9."`

func isNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}

// str types a string literal: beside an address it is one.
func (c *checker) str(at syntax.Span, value string, want *event.Type) *expr {
	if want != nil && want.Kind == event.GID {
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" {
			help := `a GID is like "fe80::1", "::ffff:10.0.0.1" or "10.0.0.1"`
			if isNetwork(value) {
				help = networkHelp
			}
			return c.fail(at, fmt.Sprintf("%q is no address", value), help)
		}
		raw := addr.As16()
		return &expr{op: opLit, typ: event.Type{Kind: event.GID, Size: 16}, val: string(raw[:])}
	}
	if want != nil && want.Unit == event.Cgroup {
		return c.cgroup(at, value, want)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return c.fail(at, "the string holds a NUL byte, and strings of events end before it", "")
	}
	return &expr{op: opLit, typ: event.Type{Kind: event.String, Size: len(value)}, val: value}
}

// name types a word: a field, or the name of a value of the other operand's enum. Where a word is both, event.word is the
// field and enum.word the value; both are always understood.
func (c *checker) name(n *ast.IdentifierNode, want *event.Type) *expr {
	if n.Value[0] == '$' {
		return c.dollar(n, want)
	}
	field, enum := c.field(n.Value), enumOf(want)
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
		e := &expr{op: opField, typ: field.Type, field: field, optional: field.Optional}
		if field.Common && field.Name == "nsecs" {
			e.typ.Unit = instant
		}
		return e
	case isValue && value > 0 && want != nil && want.Unit == event.Errno:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is %d, but a failure is a negative number here", n.Value, value), "write -"+n.Value)
	case isValue:
		e := literal(value)
		e.typ.Enum = enum
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
	c.unknown = append(c.unknown, unknown{n.Value, syntax.SpanOf(n), want})
	return nil
}

// field returns the field of the event that is called name, or nil.
func (c *checker) field(name string) *event.Field {
	if c.probe == nil {
		return nil
	}
	return c.probe.Field(name)
}

// builtin types the words that are values without being fields.
func (c *checker) builtin(word string) *expr {
	switch {
	case word == "probe":
		return c.str(c.clause.tree.Span, c.placeName(), nil)
	case word == "elapsed":
		return &expr{op: opElapsed, typ: durations, field: c.field("nsecs")}
	case word == "nsecs" && c.probe == nil:
		return &expr{op: opNow, typ: event.Type{Kind: event.Uint, Size: 8, Unit: instant}}
	}
	return nil
}

// command is cpid, the process of the command.
func (c *checker) command(at syntax.Span) *expr {
	switch {
	case c.options.Known != nil:
		return c.fail(at, "cpid is the process of the command that -c starts, and a recording has none", "compare pid with its number, or comm with its name")
	case !c.options.Command:
		return c.fail(at, "cpid is the process of the command that -c starts, and there is none", "give one, with -c COMMAND, or take -p PID for a process that runs already")
	}
	return &expr{op: opCommand, typ: natural64}
}

// placeName is the name of the probe, or of the moment.
func (c *checker) placeName() string {
	switch {
	case c.probe != nil:
		return c.probe.String()
	case c.clause.kind == onInterval:
		return "interval:" + periodText(c.clause.period)
	}
	return c.clause.kind.String()
}

// enum returns the enum that is called name, of the probe's fields or, where there is no event, of any, or nil.
func (c *checker) enum(name string) *event.Enum {
	in := c.catalog
	if c.probe != nil {
		in = []*event.Probe{c.probe}
	}
	for _, p := range in {
		for _, f := range p.Fields {
			if e := enumOf(&f.Type); e != nil && e.Name == name {
				return e
			}
		}
	}
	return nil
}

// context returns the type that n gives to names and addresses beside it, or nil: that of a field whose value n has.
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
		if f := c.field(strings.TrimPrefix(n.Value, "event.")); f != nil {
			return &f.Type
		}
	case *syntax.MapRef:
		return c.mapContext(n)
	case *syntax.Member:
		return c.memberContext(n)
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

// negated is the type of -x. That of an error number, -ret, still knows the names, and they are positive there.
func negated(t *event.Type) *event.Type {
	if t == nil || t.Unit != event.Errno {
		return t
	}
	return &event.Type{Kind: t.Kind, Size: t.Size, Enum: event.ErrnoNames()}
}

func (c *checker) unary(n *ast.UnaryNode, want *event.Type) *expr {
	switch n.Operator {
	case "!":
		e := c.condition(n.Node)
		if e == nil {
			return nil
		}
		return operation("!", boolean, e)
	case "-":
		return c.arithmetic(n, opNegate, c.expr(n.Node, negated(want)))
	default:
		return c.arithmetic(n, n.Operator, c.expr(n.Node, want))
	}
}

func (c *checker) binary(n *ast.BinaryNode, want *event.Type) *expr {
	switch n.Operator {
	case "&&", "||":
		l, r := c.condition(n.Left), c.condition(n.Right)
		if l == nil || r == nil {
			return nil
		}
		return operation(n.Operator, boolean, l, r)
	case "==", "!=", "<", "<=", ">", ">=":
		return c.comparison(n)
	case "in":
		return c.in(n)
	case "contains", "startsWith", "endsWith":
		return c.stringOperator(n, c.expr(n.Right, &text))
	case "matches":
		return c.stringOperator(n, c.pattern(n.Right))
	case "..":
		return c.fail(syntax.SpanOf(n), "a range stands only after in", "write x in a..b")
	}
	switch n.Operator {
	case "??", "|", "&", "^": // these keep what a value means
		l := c.expr(n.Left, either(c.context(n.Right), want))
		r := c.expr(n.Right, either(c.context(n.Left), want))
		if n.Operator != "??" {
			return c.arithmetic(n, n.Operator, l, r)
		}
		if l == nil || r == nil {
			return nil
		}
		return c.choice(n, "??", l, r)
	}
	return c.arithmetic(n, n.Operator, c.expr(n.Left, nil), c.expr(n.Right, nil))
}

// arithmetic types an operation on numbers. It is unsigned only if all operands are. Literals are computed at once.
func (c *checker) arithmetic(n ast.Node, op string, args ...*expr) *expr {
	typ := event.Type{Kind: event.Uint, Size: 8}
	constant := true
	for _, a := range args {
		if a == nil {
			return nil
		}
		if !event.IsNumber(a.typ) && a.typ.Kind != pending {
			return c.fail(a.span, fmt.Sprintf("arithmetic wants numbers, and this is %s", describe(a)), "")
		}
		if a.typ.Kind == event.Int {
			typ.Kind = event.Int
		}
		constant = constant && a.op == opLit
	}
	e := operation(op, typ, args...)
	if constant {
		e = c.fold(n, e)
	}
	if e != nil {
		e.typ.Unit, e.typ.Enum = resultUnit(op, args), resultFlags(op, args)
	}
	return e
}

// resultFlags is the enum of the flags that a bit operation on flags makes, or nil.
func resultFlags(op string, args []*expr) *event.Enum {
	if !slices.Contains([]string{"&", "|", "^", "~"}, op) {
		return nil
	}
	var flags *event.Enum
	for _, a := range args {
		switch enum := a.typ.Enum; {
		case plain(a):
		case enum == nil || !enum.Flags || flags != nil && flags != enum:
			return nil
		default:
			flags = enum
		}
	}
	return flags
}

// instant is the unit of nsecs: a plain number, but the difference of two is a duration.
const instant event.Unit = 100

// resultUnit is the unit of a number that arithmetic makes: that of all operands, but for literals without one, where the operator
// keeps it.
func resultUnit(op string, args []*expr) event.Unit {
	if op == "-" && args[0].typ.Unit == instant && args[1].typ.Unit == instant {
		return event.Nanoseconds
	}
	unit, ok := event.None, false
	for _, a := range args {
		switch {
		case plain(a):
		case ok && a.typ.Unit != unit:
			return event.None
		default:
			unit, ok = a.typ.Unit, true
		}
	}
	switch {
	case (unit == event.Nanoseconds || unit == event.Bytes) && (op == "+" || op == "-" || op == opNegate),
		unit == event.Hex && (op == "&" || op == "|" || op == "^" || op == "~"):
		return unit
	}
	return event.None
}

// fold computes an operation on literals. Negation is exact, and a difference may be negative: 5 - 10 is -5 for everybody.
func (c *checker) fold(n ast.Node, e *expr) *expr {
	a := event.To[uint64](e.args[0].val)
	switch {
	case e.op == opNegate && e.typ.Kind == event.Int:
		e.typ.Kind = event.Uint
	case e.op == opNegate && a > 1<<63:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("-%d does not fit 64 bits", a), "")
	case e.op == opNegate, e.op == "-" && e.typ.Kind == event.Uint && a < event.To[uint64](e.args[1].val):
		e.typ.Kind = event.Int
	}
	var operands []any
	for _, arg := range e.args {
		operands = append(operands, arg.val)
	}
	return literal(function(e)(operands))
}

func (c *checker) comparison(n *ast.BinaryNode) *expr {
	for _, side := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		if _, isNil := side[1].(*ast.NilNode); isNil && (n.Operator == "==" || n.Operator == "!=") {
			e := c.expr(side[0], nil)
			if e == nil {
				return nil
			}
			e = operation(opAbsent, boolean, e)
			if n.Operator == "!=" {
				e = operation("!", boolean, e)
			}
			return e
		}
	}
	wantLeft, wantRight := c.context(n.Right), c.context(n.Left)
	ordered := n.Operator != "==" && n.Operator != "!="
	if ordered && (c.isPath(wantLeft, n.Left) || c.isPath(wantRight, n.Right)) {
		return c.fail(syntax.SpanOf(n), "paths of cgroups have no order", "only == and != compare them, and startsWith")
	}
	byPath := c.unseenPath(wantLeft, n.Left) || c.unseenPath(wantRight, n.Right)
	if byPath {
		wantLeft, wantRight = &text, &text
	}
	l, r := c.expr(n.Left, wantLeft), c.expr(n.Right, wantRight)
	if byPath {
		l, r = pathOf(l), pathOf(r)
	}
	if l == nil || r == nil || !c.comparable(n, l, r) {
		return nil
	}
	if ordered && (l.typ.Kind == event.Bool || l.typ.Kind == event.GID || l.typ.Kind == format.Tuple || l.typ.Kind == format.Stack) {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s has no order", describe(l)), "only == and != compare it")
	}
	if name := nameOf(l, r); ordered && name != nil {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("names of %s have no order", name.typ.Enum.Name),
			fmt.Sprintf("compare by ==, != and in, or the number: %s", name.asNumber()))
	}
	return operation(n.Operator, boolean, l, r)
}

// nameOf returns the operand whose values are names, or nil. A literal may be a name because the other one is.
func nameOf(l, r *expr) *expr {
	for _, e := range []*expr{l, r} {
		if isName(e.typ) && e.op != opLit {
			return e
		}
	}
	return nil
}

// comparable tells whether a and b are of one sort.
func (c *checker) comparable(n ast.Node, a, b *expr) bool {
	switch {
	case a.typ.Kind == pending || b.typ.Kind == pending:
		return true
	case a.typ.Kind == format.Array || isEntry(a) || isEntry(b):
		c.fail(syntax.SpanOf(n), fmt.Sprintf("%s does not compare", describe(a)), "compare its elements")
		return false
	case a.typ.Kind == format.Tuple && b.typ.Kind == format.Tuple:
		return c.comparableTuples(n, a, b)
	case describe(a) == describe(b):
		return true
	}
	help := ""
	for _, pair := range [][2]*expr{{a, b}, {b, a}} {
		word, quoted := pair[0].val.(string)
		switch enum := enumOf(&pair[1].typ); {
		case quoted && enum != nil:
			if name := Nearest(word, enum.Names); name != "" {
				help = "write the name without quotes: " + name
			}
		case quoted && event.IsNumber(pair[1].typ):
			help = besideNumber(word, pair[1])
		case pair[0].typ.Kind != event.Bool:
		case pair[0].op == "!":
			help = "! binds tighter than a comparison: write !(…)"
		case pair[0].op == opField:
			help = fmt.Sprintf("a boolean is a condition: write %s or !%[1]s", pair[0].field.Name)
		default:
			help = "the result of a comparison is a boolean: join comparisons with &&"
		}
	}
	c.fail(syntax.SpanOf(n), fmt.Sprintf("%s and %s do not compare", describe(a), describe(b)), help)
	return false
}

// in types `x in [a, b..c]` and `x in a..b`: it means x == a || x >= b && x <= c.
func (c *checker) in(n *ast.BinaryNode) *expr {
	elements := []ast.Node{n.Right}
	if array, ok := n.Right.(*ast.ArrayNode); ok {
		elements = array.Nodes
	} else if !isRange(n.Right) {
		help := "write x in [a, b] or x in a..b"
		if s, ok := n.Right.(*ast.StringNode); ok && isNetwork(s.Value) {
			help = networkHelp
		}
		return c.fail(syntax.SpanOf(n.Right), "in wants a list or a range", help)
	}
	x := c.expr(n.Left, c.context(n.Right))
	want := c.context(n.Left)
	if c.unseenPath(want, elements...) {
		x, want = pathOf(x), &text
	}
	args := []*expr{x}
	ok := x != nil
	for _, element := range elements {
		var arg *expr
		if isRange(element) {
			arg = c.between(element.(*ast.BinaryNode), want)
		} else {
			arg = c.expr(element, want)
		}
		args = append(args, arg)
		ok = ok && arg != nil && c.comparable(element, x, arg)
	}
	if !ok {
		return nil
	}
	return operation("in", boolean, args...)
}

func isRange(n ast.Node) bool {
	b, ok := n.(*ast.BinaryNode)
	return ok && b.Operator == ".."
}

func (c *checker) between(n *ast.BinaryNode, want *event.Type) *expr {
	lo, hi := c.expr(n.Left, want), c.expr(n.Right, want)
	if lo == nil || hi == nil {
		return nil
	}
	for _, bound := range []*expr{lo, hi} {
		if !event.IsNumber(bound.typ) && bound.typ.Kind != pending {
			return c.fail(bound.span, fmt.Sprintf("a range goes from number to number, and this is %s", describe(bound)), "")
		}
	}
	if lo.op == opLit && hi.op == opLit && event.Compare(lo.val, hi.val) > 0 {
		return c.fail(syntax.SpanOf(n), "the range is empty", "the lower bound comes first")
	}
	e := operation(opBetween, event.Type{Kind: event.Uint}, lo, hi)
	e.span = syntax.SpanOf(n)
	return e
}

// stringOperator types an operator on strings with the right operand r.
func (c *checker) stringOperator(n *ast.BinaryNode, r *expr) *expr {
	l := pathOf(c.expr(n.Left, &text))
	if l == nil || r == nil {
		return nil
	}
	for _, side := range []*expr{l, r} {
		if side.typ.Kind != event.String && side.typ.Kind != pending {
			return c.fail(side.span, fmt.Sprintf("%s wants strings, and this is %s", n.Operator, named(side)), asText(side))
		}
	}
	return operation(n.Operator, boolean, l, r)
}

// pattern types the right operand of matches. It is a literal, so that a mistake in it is found now.
func (c *checker) pattern(n ast.Node) *expr {
	s, ok := c.stringLiteral(n)
	if !ok {
		return c.fail(syntax.SpanOf(n), "the pattern of matches has to be a literal string", `write x matches "…"`)
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return c.fail(syntax.SpanOf(n), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "the syntax is that of Go's package regexp")
	}
	return &expr{op: opLit, typ: text, val: re, span: syntax.SpanOf(n)}
}

// stringLiteral returns the value of n if that is a string literal, or a param that holds one.
func (c *checker) stringLiteral(n ast.Node) (s string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IdentifierNode:
		if p := c.param(n.Value); p != nil {
			s, ok = p.Value.(string)
			return s, ok
		}
	}
	return "", false
}

// choice types an operation that yields a or b, made to be of one type; first are the operands before them.
func (c *checker) choice(n ast.Node, op string, a, b *expr, first ...*expr) *expr {
	for _, x := range []*expr{a, b} {
		if x.typ.Kind == format.Tuple || x.typ.Kind == format.Array {
			return c.fail(x.span, fmt.Sprintf("%s cannot be chosen", describe(x)), "choose each of its elements")
		}
	}
	var typ event.Type
	switch {
	case a.typ.Kind == pending:
		typ = b.typ
	case b.typ.Kind == pending:
		typ = a.typ
	case describe(a) != describe(b):
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("this is either %s or %s", describe(a), describe(b)),
			"both have to be of one type")
	default:
		typ = common(a.typ, b.typ, plain(a), plain(b))
	}
	if a.typ.Kind != b.typ.Kind && typ.Kind == event.Int { // as in arithmetic: one signed operand makes it signed
		a, b = signed(a), signed(b)
	}
	return operation(op, typ, append(first, a, b)...)
}

// signed makes e signed, bit by bit.
func signed(e *expr) *expr {
	switch {
	case e.typ.Kind != event.Uint:
		return e
	case e.op == opLit:
		literal := *e
		literal.typ.Kind, literal.val = event.Int, event.To[int64](e.val)
		return &literal
	}
	return &expr{op: opSigned, args: []*expr{e}, typ: event.Type{Kind: event.Int, Size: 8}, optional: e.optional, span: e.span}
}

// describe names the sort of a value: values of one sort compare.
func describe(e *expr) string { return sortOf(e.typ) }

func sortOf(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "a boolean"
	case event.String:
		return "a string"
	case event.GID:
		return "an address"
	case format.Tuple:
		return "a tuple"
	case format.Array:
		return "a list"
	case format.Stack:
		return "a stack"
	}
	return "a number"
}
