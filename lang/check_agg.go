package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/syntax"
	"trace/probes/event"
)

// aggregationCall returns n and its name if it is the call of an aggregation.
func aggregationCall(n ast.Node) (call *ast.CallNode, fn string) {
	call, ok := n.(*ast.CallNode)
	if !ok {
		return nil, ""
	}
	fn = callee(call)
	if _, ok := agg.Lookup(fn); !ok {
		return nil, ""
	}
	return call, fn
}

// aggregate types the call of an aggregation for a map.
func (c *checker) aggregate(m *mapUses, n *ast.CallNode, fn string) *updateStmt {
	args, named := arguments(n)
	how, _ := agg.Lookup(fn)
	at := syntax.SpanOf(n)
	if len(args) < how.Least || how.Most >= 0 && len(args) > how.Most {
		c.fail(at, fmt.Sprintf("%s() has %s", fn, argumentCount(len(args))), "write "+how.Usage)
		return nil
	}
	out := &updateStmt{m: m.info}
	shown := &expr{typ: natural64, span: at}
	typed := true
	if len(args) > 0 {
		out.arg = c.aggregated(how, args[0])
		if typed = out.arg != nil; typed {
			shown.typ = shownType(how.Traits(), out.arg.typ)
		}
	}
	f, ok := c.parameters(how, args, named)
	if !typed || !ok || !c.kept(m, fn+"()", f, at) || !c.holds(&m.value, []*expr{shown}, false, m.info.name, at) {
		return nil
	}
	if out.arg != nil {
		out.arg = conform(&m.value, []*expr{out.arg})[0]
	}
	return out
}

func argumentCount(n int) string {
	switch n {
	case 0:
		return "no argument here"
	case 1:
		return "1 argument here"
	}
	return fmt.Sprintf("%d arguments here", n)
}

// aggregated types the value that is aggregated. A boolean counts as 0 or 1.
func (c *checker) aggregated(how agg.Spec, n ast.Node) *expr {
	e, fn, traits := c.expr(n, nil), how.Name, how.Traits()
	switch {
	case e == nil:
		return nil
	case e.typ.Kind == event.Bool:
		number := operation(opCast, natural64, e)
		number.index, number.span = 64, e.span
		e = number
	case !event.IsNumber(e.typ) && e.typ.Kind != pending:
		return c.fail(e.span, fmt.Sprintf("%s() wants a number, and this is %s", fn, describe(e)), aggregatedHelp(e))
	case isName(e.typ) && !traits.Picks:
		return c.fail(e.span, fmt.Sprintf("%s() wants a number, and this is a name of %s", fn, e.typ.Enum.Name),
			fmt.Sprintf("to count by it, make it a key: @[%s] = count(); its number is %s", e.word(), e.asNumber()))
	}
	if traits.SignedArg {
		return signed(e)
	}
	return e
}

func aggregatedHelp(e *expr) string {
	if e.typ.Kind == event.String || e.typ.Kind == event.GID {
		return "to count by it, make it a key: @[x] = count()"
	}
	return ""
}

// isName tells whether values of a type are names, which have no order and no sum. Error numbers and flags are numbers.
func isName(t event.Type) bool {
	return event.IsNumber(t) && t.Enum != nil && !t.Enum.Flags && t.Unit != event.Errno && t.Unit != event.Cgroup
}

// word is an expression in advice.
func (e *expr) word() string {
	switch e.op {
	case opField:
		return e.field.Name
	case opVar:
		return e.variable.name
	}
	return "x"
}

// asNumber is the number of a name in advice.
func (e *expr) asNumber() string {
	if e.typ.Kind == event.Int {
		return "(int64)" + e.word()
	}
	return "(uint64)" + e.word()
}

// shownType is the type of what is printed of values of type t. Only a value that is one of them keeps its name.
func shownType(traits agg.Traits, t event.Type) event.Type {
	if traits.Picks || t.Kind == pending {
		return t
	}
	shown := event.Type{Kind: t.Kind, Size: 8}
	if t.Unit == event.Nanoseconds || t.Unit == event.Bytes {
		shown.Unit = t.Unit
	}
	return shown
}

// arguments parts those that have names from the others.
func arguments(n *ast.CallNode) (args []ast.Node, named []*syntax.NamedArg) {
	for _, arg := range n.Arguments {
		if a, ok := arg.(*syntax.NamedArg); ok {
			named = append(named, a)
		} else {
			args = append(args, arg)
		}
	}
	return args, named
}

// parameters reads what an aggregation is given besides the value.
func (c *checker) parameters(how agg.Spec, args []ast.Node, named []*syntax.NamedArg) (agg.Func, bool) {
	in := agg.Args{Named: map[string]int64{}}
	ok := true
	args = args[min(1, len(args)):]
	for i, n := range args {
		p := how.Params[min(i, len(how.Params)-1)]
		valid := false
		if p.Fraction {
			var x float64
			x, valid = c.percentile(p, n)
			in.Fractions = append(in.Fractions, x)
		} else {
			var x int64
			x, valid = c.constant(n, p.What, p.Lo, p.Hi)
			in.Numbers = append(in.Numbers, x)
		}
		ok = ok && valid
	}
	for _, arg := range named {
		i := slices.IndexFunc(how.Named, func(p agg.Param) bool { return p.Name == arg.Name })
		if i < 0 {
			c.fail(syntax.SpanOf(arg), fmt.Sprintf("%s() has no argument called %s", how.Name, arg.Name), namedHelp(how))
			ok = false
			continue
		}
		p := how.Named[i]
		x, valid := c.constant(arg.Value, p.What, p.Lo, p.Hi)
		in.Named[p.Name], ok = x, ok && valid
	}
	if !ok {
		return nil, false
	}
	f, mistake := how.New(in)
	if mistake != nil {
		c.fail(syntax.SpanOf(args[mistake.Arg]), mistake.Msg, mistake.Help)
		return nil, false
	}
	return f, true
}

// namedHelp names the arguments that have names.
func namedHelp(how agg.Spec) string {
	var names []string
	for _, p := range how.Named {
		names = append(names, p.Name)
	}
	if names == nil {
		return ""
	}
	return "it has " + strings.Join(names, " and ")
}

func (c *checker) percentile(p agg.Param, n ast.Node) (x float64, ok bool) {
	if k, isConstant := n.(*ast.ConstantNode); isConstant {
		if f, isFloat := k.Value.(syntax.Float); isFloat {
			if f.Value > float64(p.Hi) {
				c.fail(syntax.SpanOf(n), fmt.Sprintf("%s is at most %d", p.What, p.Hi), "")
				return 0, false
			}
			return f.Value, true
		}
	}
	i, ok := c.constant(n, p.What, p.Lo, p.Hi)
	return float64(i), ok
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)

// constant types an argument that has to be a literal number in a range.
func (c *checker) constant(n ast.Node, what string, lo, hi int64) (v int64, ok bool) {
	e := c.expr(n, nil)
	switch {
	case e == nil:
		return 0, false
	case e.op != opLit || !event.IsNumber(e.typ):
		c.fail(e.span, what+" has to be a literal number", "")
		return 0, false
	case event.Compare(e.val, lo) < 0 || event.Compare(e.val, hi) > 0:
		msg := fmt.Sprintf("%s is between %d and %d", what, lo, hi)
		if lo == minInt64 {
			msg = what + " does not fit 64 bits with a sign"
		}
		c.fail(e.span, msg, "")
		return 0, false
	}
	return event.To[int64](e.val), true
}

// aggregationNames are in the order of the alphabet.
func aggregationNames() []string {
	var names []string
	for _, how := range agg.All() {
		names = append(names, how.Name)
	}
	return names
}

// aggregationUsage is how an aggregation is written, "" if there is none of that name.
func aggregationUsage(name string) string {
	how, _ := agg.Lookup(name)
	return how.Usage
}

// noneNamed makes sure that no argument has a name.
func (c *checker) noneNamed(fn string, named []*syntax.NamedArg) bool {
	for _, arg := range named {
		c.fail(syntax.SpanOf(arg), fmt.Sprintf("%s() has no argument called %s", fn, arg.Name), "")
	}
	return len(named) == 0
}
