package lang

import (
	"fmt"
	"net/netip"
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
