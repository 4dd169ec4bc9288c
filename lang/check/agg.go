package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/agg"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// aggregate types a call of an aggregation that is assigned to a map.
func (c *checker) aggregate(m *mapUses, n *ast.CallNode, fn string) *ir.UpdateStmt {
	args, named := arguments(n)
	how, _ := agg.Lookup(fn)
	at := syntax.SpanOf(n)
	if len(args) < how.Least || how.Most >= 0 && len(args) > how.Most {
		c.fail(at, fmt.Sprintf("%s() has %s", fn, argumentCount(len(args))), "write "+how.Usage)
		return nil
	}
	out := &ir.UpdateStmt{Map: m.info}
	shown := &ir.Expr{Type: ir.Natural64, Span: at}
	typed := true
	_, value, from, to := how.Split(len(args))
	if value >= 0 {
		out.Arg = c.aggregated(how, args[value])
		if typed = out.Arg != nil; typed {
			shown.Type = shownType(how.Traits(), out.Arg.Type)
		}
	}
	f, ok := c.parameters(how, args[from:to], named)
	if !typed || !ok || !c.kept(m, fn+"()", f, at) || !c.holds(&m.value, row{values: []*ir.Expr{shown}}, m.info.Name, at) {
		return nil
	}
	if out.Arg != nil {
		out.Arg = conform(&m.value, []*ir.Expr{out.Arg})[0]
	}
	exemplars := f.Traits().Exemplars && c.field("tid") != nil
	if exemplars || how.Traits().Timed {
		out.At = c.name(&ast.IdentifierNode{Value: "nsecs"}, nil)
	}
	if exemplars {
		out.Thread = c.name(&ast.IdentifierNode{Value: "tid"}, nil)
	}
	return out
}

// aggregated types the value that is aggregated. A boolean counts as 0 or 1.
func (c *checker) aggregated(how agg.Spec, n ast.Node) *ir.Expr {
	e, fn, traits := c.expr(n, nil), how.Name, how.Traits()
	switch {
	case e == nil:
		return nil
	case e.Type.Kind == event.Bool:
		number := ir.Operation(ir.OpCast, ir.Natural64, e)
		number.Bits, number.Span = 64, e.Span
		e = number
	case !event.IsNumber(e.Type) && e.Type.Kind != ir.Pending:
		return c.fail(e.Span, fmt.Sprintf("%s() takes a number, not %s", fn, describe(e)), aggregatedHelp(e))
	case isName(e.Type) && !traits.Picks:
		return c.fail(e.Span, fmt.Sprintf("%s() takes a number, not a name of %s", fn, e.Type.Enum.Name),
			fmt.Sprintf("to count by it, make it a key: @[%s] = count(); its number is %s", wordOf(e), asNumber(e)))
	}
	if traits.Ranks && e.Type.Kind == event.Int {
		return c.fail(e.Span, fmt.Sprintf("%s() takes numbers from 0 up, and this may be negative", fn),
			fmt.Sprintf("add a predicate that excludes negative numbers, and write (uint64)%s", wordOf(e)))
	}
	if traits.SignedArg {
		return ir.Signed(e)
	}
	return e
}

// rankedBy returns the elements that a call ranks, or nil if the aggregation does not rank.
func rankedBy(n *ast.CallNode, fn string) []ast.Node {
	args, _ := arguments(n)
	how, _ := agg.Lookup(fn)
	if !how.Traits().Ranks || len(args) == 0 {
		return nil
	}
	return elementsOf(args[:1])
}

// elementsOf returns the elements of a tuple that is written as one, or the nodes themselves.
func elementsOf(nodes []ast.Node) []ast.Node {
	if len(nodes) == 1 {
		if t, ok := nodes[0].(*syntax.Tuple); ok {
			return t.Elems
		}
	}
	return nodes
}

// ownColumns returns how many columns the elements take that are not ranked. The last elements are ranked.
func (m *mapUses) ownColumns(elements, ranked []ast.Node) int {
	own := len(elements) - len(ranked)
	if own == 0 || m.key.form == nil {
		return own
	}
	return m.key.form.From(own)
}

// ranked notes how many elements of a key are ranked: all but the first ones. It checks that all uses of the map agree.
func (c *checker) ranked(m *mapUses, all, own int, at syntax.Span) bool {
	ranked := all - own
	switch {
	case !m.key.typed() || own == all:
		return true
	case m.ranked == 0:
		m.ranked = ranked
	}
	if m.ranked == ranked {
		return true
	}
	c.fail(at, fmt.Sprintf("%s has %s here and %s elsewhere", m.info.Name, keyOf(all-ranked), keyOf(all-m.ranked)), "use two maps")
	return false
}

// shownType returns the type in which results over values of type t are printed. Only a result that is one of the values keeps
// names.
func shownType(traits agg.Traits, t event.Type) event.Type {
	if traits.Picks || t.Kind == ir.Pending {
		return t
	}
	shown := event.Type{Kind: t.Kind, Size: 8}
	if t.Unit == event.Nanoseconds || t.Unit == event.Bytes {
		shown.Unit = t.Unit
	}
	return shown
}

// parameters reads the arguments of an aggregation other than key and value.
func (c *checker) parameters(how agg.Spec, args []ast.Node, named []*syntax.NamedArg) (agg.Func, bool) {
	in := agg.Args{Named: map[string]int64{}}
	ok := true
	for i, n := range args {
		p := how.Params[min(i, len(how.Params)-1)]
		valid := false
		switch {
		case p.Fraction:
			var x float64
			x, valid = c.percentile(p, n)
			in.Fractions = append(in.Fractions, x)
		case p.Words != nil:
			in.Word, valid = c.wordArgument(p, n)
		default:
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
	if c.options.Exemplars {
		f = agg.WithExemplars(f)
	}
	return f, true
}

// wordArgument reads an argument that is one of some strings.
func (c *checker) wordArgument(p agg.Param, n ast.Node) (word string, ok bool) {
	text, isText := n.(*ast.StringNode)
	if isText && slices.Contains(p.Words, text.Value) {
		return text.Value, true
	}
	c.fail(syntax.SpanOf(n), p.What+" must be one of "+strings.Join(p.Words, ", "), fmt.Sprintf("write it in quotes: %q", p.Words[0]))
	return "", false
}

// namedHelp lists the named arguments of an aggregation.
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
				c.fail(syntax.SpanOf(n), fmt.Sprintf("%s must be at most %d", p.What, p.Hi), "")
				return 0, false
			}
			return f.Value, true
		}
	}
	i, ok := c.constant(n, p.What, p.Lo, p.Hi)
	return float64(i), ok
}

// noneNamed checks that no argument has a name.
func (c *checker) noneNamed(fn string, named []*syntax.NamedArg) bool {
	for _, arg := range named {
		c.fail(syntax.SpanOf(arg), fmt.Sprintf("%s() has no argument called %s", fn, arg.Name), "")
	}
	return len(named) == 0
}
