package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file types variables and params.

// visible returns the variable that a name means here, or nil.
func (c *checker) visible(name string) *varUses {
	for _, scope := range slices.Backward(c.scopes) {
		if v := scope[name]; v != nil {
			return v
		}
	}
	return nil
}

// dollar types $name: a param or a variable.
func (c *checker) dollar(n *ast.IdentifierNode, want *event.Type) *ir.Expr {
	if p := c.param(n.Value); p != nil {
		return c.paramValue(p, syntax.SpanOf(n), want)
	}
	v := c.visible(n.Value)
	if v == nil {
		return c.unknownVariable(n)
	}
	e := &ir.Expr{Op: ir.OpVar, Variable: v.Variable}
	e.Type, e.Elems, e.Optional = v.typeSoFar()
	return e
}

func (c *checker) dollarContext(name string) *event.Type {
	if v := c.visible(name); v != nil && v.loop == nil {
		return v.value.single()
	}
	return nil
}

func (c *checker) unknownVariable(n *ast.IdentifierNode) *ir.Expr {
	at, name := syntax.SpanOf(n), n.Value
	if c.hidden[name] {
		return c.fail(at, fmt.Sprintf("%s ends with the block that sets it", name), fmt.Sprintf("set it before that block: %s = …", name))
	}
	var names []string
	for _, scope := range c.scopes {
		names = slices.AppendSeq(names, maps.Keys(scope))
	}
	for _, p := range c.params {
		names = append(names, "$"+p.Name)
	}
	slices.Sort(names)
	help := syntax.DidYouMean(name, names)
	if help == "" {
		help = fmt.Sprintf("set it first, %s = …, or declare a flag of that name: param %s = 10", name, name[1:])
	}
	return c.fail(at, fmt.Sprintf("%s is not set", name), help)
}

// paramValue makes the literal that a param stands for.
func (c *checker) paramValue(p *ir.Param, at syntax.Span, want *event.Type) *ir.Expr {
	switch v := p.Value.(type) {
	case string:
		if enum := event.EnumOf(want); enum != nil && want.Unit != event.Errno {
			return c.nameInParam(p, at, enum)
		}
		return c.str(at, v, want)
	case bool:
		return &ir.Expr{Op: ir.OpLit, Type: ir.Boolean, Val: v}
	default:
		e := literal(v)
		e.Type.Unit = p.Type.Unit
		return e
	}
}

// noName is a value that no enum has: enums have at most 32 bits.
const noName = uint64(1) << 63

// nameInParam types a param that holds a string and is compared with an enum: the string must be a name of the enum. An empty
// string equals no name.
func (c *checker) nameInParam(p *ir.Param, at syntax.Span, enum *event.Enum) *ir.Expr {
	name := p.Value.(string)
	value, known := enum.Value(name)
	e := literal(value)
	switch {
	case name == "":
		e = literal(noName)
	case !known:
		return c.fail(at, fmt.Sprintf("$%s is %q, which is not a name of %s", p.Name, name, enum.Name),
			cmp.Or(syntax.DidYouMean(name, enum.Names), "its names are "+syntax.Enumerate(enum.Names)))
	}
	e.Type.Enum = enum
	return e
}
