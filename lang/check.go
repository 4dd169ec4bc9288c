package lang

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/syntax"
	"trace/probes"
)

// expr is a node of the typed tree: names are resolved, types agree, and the sign of each operation is settled.
type expr struct {
	// op is an operator of the language, or one of the below.
	op   string
	args []*expr
	// typ of the value. Enum and Unit are those of a field whose value it is.
	typ   probes.Type
	field *probes.Field // of opField
	val   any           // of opLit: int64, uint64, bool, string or *regexp.Regexp
	span  syntax.Span
}

const (
	opLit     = "literal"
	opField   = "field"
	opAbsent  = "absent"  // x == nil
	opTruth   = "truth"   // a number as a condition
	opSigned  = "signed"  // the same 64 bits as a signed number
	opNegate  = "negate"  // unary minus
	opBetween = "between" // a range, as an element of in
	opCond    = "?:"
)

// Types of values that come from no field.
var (
	boolean = probes.Type{Kind: probes.Bool, Size: 1}
	text    = probes.Type{Kind: probes.String}
)

// checker gives a predicate its meaning for the events of one probe.
type checker struct {
	source syntax.Source
	probe  *probes.Probe
	// tree is nil if there are errors or unknown words.
	tree    *expr
	errs    syntax.ErrorList
	unknown []unknown
	// fields that are not common to all events, in the order of their use.
	fields []string
	// contexts keeps what context has found: it is asked again at every level of the tree.
	contexts map[ast.Node]*probes.Type
}

// unknown is a word that is no field of the probe and no name of a value that fits its place.
type unknown struct {
	name string
	span syntax.Span
	// want is the type of the other operand, or nil.
	want *probes.Type
}

func newChecker(source syntax.Source, p *probes.Probe) *checker {
	return &checker{source: source, probe: p, contexts: map[ast.Node]*probes.Type{}}
}

// check types a predicate for the events of p.
func check(source syntax.Source, p *probes.Probe, n ast.Node) *checker {
	c := newChecker(source, p)
	c.tree = c.condition(n)
	return c
}

func (c *checker) fail(at syntax.Span, msg, help string) *expr {
	c.errs = append(c.errs, c.source.Error(at, msg, help))
	return nil
}

// expr types n. It returns nil after a mistake, which is noted. The type want of the other operand says what names and
// addresses mean; it may be nil.
func (c *checker) expr(n ast.Node, want *probes.Type) *expr {
	e := c.typed(n, want)
	if e != nil {
		e.span = syntax.SpanOf(n)
	}
	return e
}

func (c *checker) typed(n ast.Node, want *probes.Type) *expr {
	switch n := n.(type) {
	case *ast.ConstantNode:
		return literal(n.Value.(syntax.Int).Value)
	case *ast.BoolNode:
		return &expr{op: opLit, typ: boolean, val: n.Value}
	case *ast.StringNode:
		return c.str(n, want)
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
		return c.fail(syntax.SpanOf(n), "a list stands only after in", "write x in [a, b]")
	}
	panic(fmt.Sprintf("lang: the parser does not make a %T", n))
}

// condition types n in a boolean position, where a number means that it is not 0.
func (c *checker) condition(n ast.Node) *expr {
	e := c.expr(n, nil)
	switch {
	case e == nil || e.typ.Kind == probes.Bool:
		return e
	case isNumber(e.typ):
		return &expr{op: opTruth, args: []*expr{e}, typ: boolean, span: e.span}
	}
	return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is no condition", describe(e)), `compare it: x == "…"`)
}

// literal makes a node of a number. One that is not negative is unsigned, which gives way to a signed operand.
func literal(v any) *expr {
	e := &expr{op: opLit, typ: probes.Type{Kind: probes.Uint, Size: 8}, val: v}
	if i, ok := v.(int64); ok {
		if i < 0 {
			e.typ.Kind = probes.Int
		} else {
			e.val = uint64(i)
		}
	}
	return e
}

// str types a string literal: beside an address it is one.
func (c *checker) str(n *ast.StringNode, want *probes.Type) *expr {
	if want != nil && want.Kind == probes.GID {
		addr, err := netip.ParseAddr(n.Value)
		if err != nil || addr.Zone() != "" {
			return c.fail(syntax.SpanOf(n), fmt.Sprintf("%q is no address", n.Value),
				`a GID is like "fe80::1", "::ffff:10.0.0.1" or "10.0.0.1"`)
		}
		raw := addr.As16()
		return &expr{op: opLit, typ: probes.Type{Kind: probes.GID, Size: 16}, val: string(raw[:])}
	}
	if strings.IndexByte(n.Value, 0) >= 0 {
		return c.fail(syntax.SpanOf(n), "the string holds a NUL byte, and strings of events end before it", "")
	}
	return &expr{op: opLit, typ: text, val: n.Value}
}

// name types a word: a field, or the name of a value of the other operand's enum. Where a word is both, event.word is the
// field and enum.word the value; both are always understood.
func (c *checker) name(n *ast.IdentifierNode, want *probes.Type) *expr {
	field, enum := c.probe.Field(n.Value), enumOf(want)
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
		field = c.probe.Field(word)
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
		return &expr{op: opField, typ: field.Type, field: field}
	case isValue && value > 0 && want != nil && want.Unit == probes.Errno:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is %d, but a failure is a negative number here", n.Value, value), "write -"+n.Value)
	case isValue:
		e := literal(value)
		e.typ.Enum = enum
		return e
	}
	c.unknown = append(c.unknown, unknown{n.Value, syntax.SpanOf(n), want})
	return nil
}

// enum returns the enum of the probe's fields that is called name, or nil.
func (c *checker) enum(name string) *probes.Enum {
	for _, f := range c.probe.Fields {
		if e := enumOf(&f.Type); e != nil && e.Name == name {
			return e
		}
	}
	return nil
}

// context returns the type that n gives to names and addresses beside it, or nil: that of a field whose value n has.
func (c *checker) context(n ast.Node) *probes.Type {
	t, known := c.contexts[n]
	if !known {
		t = c.findContext(n)
		c.contexts[n] = t
	}
	return t
}

func (c *checker) findContext(n ast.Node) *probes.Type {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		if f := c.probe.Field(strings.TrimPrefix(n.Value, "event.")); f != nil {
			return &f.Type
		}
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

func either(a, b *probes.Type) *probes.Type {
	if a != nil {
		return a
	}
	return b
}

// negated is the type of -x. That of an error number, -ret, still knows the names, and they are positive there.
func negated(t *probes.Type) *probes.Type {
	if t == nil || t.Unit != probes.Errno {
		return t
	}
	return &probes.Type{Kind: t.Kind, Size: t.Size, Enum: errnoNames()}
}

func (c *checker) unary(n *ast.UnaryNode, want *probes.Type) *expr {
	switch n.Operator {
	case "!":
		e := c.condition(n.Node)
		if e == nil {
			return nil
		}
		return &expr{op: "!", args: []*expr{e}, typ: boolean}
	case "-":
		return c.arithmetic(n, opNegate, c.expr(n.Node, negated(want)))
	default:
		return c.arithmetic(n, n.Operator, c.expr(n.Node, want))
	}
}

func (c *checker) binary(n *ast.BinaryNode, want *probes.Type) *expr {
	switch n.Operator {
	case "&&", "||":
		l, r := c.condition(n.Left), c.condition(n.Right)
		if l == nil || r == nil {
			return nil
		}
		return &expr{op: n.Operator, args: []*expr{l, r}, typ: boolean}
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
	typ := probes.Type{Kind: probes.Uint, Size: 8}
	constant := true
	for _, a := range args {
		if a == nil {
			return nil
		}
		if !isNumber(a.typ) {
			return c.fail(a.span, fmt.Sprintf("arithmetic wants numbers, and this is %s", describe(a)), "")
		}
		if a.typ.Kind == probes.Int {
			typ.Kind = probes.Int
		}
		constant = constant && a.op == opLit
	}
	e := &expr{op: op, args: args, typ: typ}
	if constant {
		return c.fold(n, e)
	}
	return e
}

// fold computes an operation on literals. Negation is exact, and a difference may be negative: 5 - 10 is -5 for everybody.
func (c *checker) fold(n ast.Node, e *expr) *expr {
	a := to[uint64](e.args[0].val)
	switch {
	case e.op == opNegate && e.typ.Kind == probes.Int:
		e.typ.Kind = probes.Uint
	case e.op == opNegate && a > 1<<63:
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("-%d does not fit 64 bits", a), "")
	case e.op == opNegate, e.op == "-" && e.typ.Kind == probes.Uint && a < to[uint64](e.args[1].val):
		e.typ.Kind = probes.Int
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
			e = &expr{op: opAbsent, args: []*expr{e}, typ: boolean}
			if n.Operator == "!=" {
				e = &expr{op: "!", args: []*expr{e}, typ: boolean}
			}
			return e
		}
	}
	l, r := c.expr(n.Left, c.context(n.Right)), c.expr(n.Right, c.context(n.Left))
	if l == nil || r == nil || !c.comparable(n, l, r) {
		return nil
	}
	ordered := n.Operator != "==" && n.Operator != "!="
	if ordered && (l.typ.Kind == probes.Bool || l.typ.Kind == probes.GID) {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("%s has no order", describe(l)), "only == and != compare it")
	}
	return &expr{op: n.Operator, args: []*expr{l, r}, typ: boolean}
}

// comparable tells whether a and b are of one sort.
func (c *checker) comparable(n ast.Node, a, b *expr) bool {
	if describe(a) == describe(b) {
		return true
	}
	help := ""
	for _, pair := range [][2]*expr{{a, b}, {b, a}} {
		word, quoted := pair[0].val.(string)
		switch enum := enumOf(&pair[1].typ); {
		case quoted && enum != nil:
			if name := nearest(word, enum.Names); name != "" {
				help = "write the name without quotes: " + name
			}
		case pair[0].typ.Kind != probes.Bool:
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
		return c.fail(syntax.SpanOf(n.Right), "in wants a list or a range", "write x in [a, b] or x in a..b")
	}
	x := c.expr(n.Left, c.context(n.Right))
	want := c.context(n.Left)
	e := &expr{op: "in", args: []*expr{x}, typ: boolean}
	ok := x != nil
	for _, element := range elements {
		var arg *expr
		if isRange(element) {
			arg = c.between(element.(*ast.BinaryNode), want)
		} else {
			arg = c.expr(element, want)
		}
		e.args = append(e.args, arg)
		ok = ok && arg != nil && c.comparable(element, x, arg)
	}
	if !ok {
		return nil
	}
	return e
}

func isRange(n ast.Node) bool {
	b, ok := n.(*ast.BinaryNode)
	return ok && b.Operator == ".."
}

func (c *checker) between(n *ast.BinaryNode, want *probes.Type) *expr {
	lo, hi := c.expr(n.Left, want), c.expr(n.Right, want)
	if lo == nil || hi == nil {
		return nil
	}
	for _, bound := range []*expr{lo, hi} {
		if !isNumber(bound.typ) {
			return c.fail(bound.span, fmt.Sprintf("a range goes from number to number, and this is %s", describe(bound)), "")
		}
	}
	if lo.op == opLit && hi.op == opLit && compare(lo.val, hi.val) > 0 {
		return c.fail(syntax.SpanOf(n), "the range is empty", "the lower bound comes first")
	}
	return &expr{op: opBetween, args: []*expr{lo, hi}, typ: probes.Type{Kind: probes.Uint}, span: syntax.SpanOf(n)}
}

// stringOperator types an operator on strings with the right operand r.
func (c *checker) stringOperator(n *ast.BinaryNode, r *expr) *expr {
	l := c.expr(n.Left, &text)
	if l == nil || r == nil {
		return nil
	}
	for _, side := range []*expr{l, r} {
		if side.typ.Kind != probes.String {
			return c.fail(side.span, fmt.Sprintf("%s wants strings, and this is %s", n.Operator, describe(side)), "")
		}
	}
	return &expr{op: n.Operator, args: []*expr{l, r}, typ: boolean}
}

// pattern types the right operand of matches. It is a literal, so that a mistake in it is found now.
func (c *checker) pattern(n ast.Node) *expr {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return c.fail(syntax.SpanOf(n), "the pattern of matches has to be a literal string", `write x matches "…"`)
	}
	re, err := regexp.Compile(s.Value)
	if err != nil {
		return c.fail(syntax.SpanOf(n), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "the syntax is that of Go's package regexp")
	}
	return &expr{op: opLit, typ: text, val: re, span: syntax.SpanOf(n)}
}

// choice types an operation that yields a or b, made to be of one type; first are the operands before them.
func (c *checker) choice(n ast.Node, op string, a, b *expr, first ...*expr) *expr {
	if describe(a) != describe(b) {
		return c.fail(syntax.SpanOf(n), fmt.Sprintf("this is either %s or %s", describe(a), describe(b)),
			"both have to be of one type")
	}
	typ := a.typ
	if a.op == opLit {
		typ = b.typ
	}
	if a.typ.Kind != b.typ.Kind { // as in arithmetic: one signed operand makes it signed
		typ.Kind = probes.Int
		a, b = signed(a), signed(b)
	}
	return &expr{op: op, args: append(first, a, b), typ: typ}
}

func signed(e *expr) *expr {
	if e.typ.Kind == probes.Int {
		return e
	}
	return &expr{op: opSigned, args: []*expr{e}, typ: probes.Type{Kind: probes.Int, Size: 8}, span: e.span}
}

func isNumber(t probes.Type) bool { return t.Kind == probes.Int || t.Kind == probes.Uint }

// describe names the sort of a value: values of one sort compare.
func describe(e *expr) string {
	switch e.typ.Kind {
	case probes.Bool:
		return "a boolean"
	case probes.String:
		return "a string"
	case probes.GID:
		return "an address"
	}
	return "a number"
}
