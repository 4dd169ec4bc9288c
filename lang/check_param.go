package lang

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/syntax"
	"trace/probes/event"
)

// Params returns the params of a program: its flags.
func Params(name, src string) ([]Param, error) {
	tree, err := syntax.Parse(name, src)
	if err != nil {
		return nil, err
	}
	r := &resolver{source: tree.Source}
	r.declare(tree.Params)
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	return r.params, nil
}

// declare notes the params of the program with their defaults.
func (r *resolver) declare(params []*syntax.Param) {
	for _, p := range params {
		if r.param("$"+p.Name) != nil {
			r.fail(p.Span, fmt.Sprintf("there are two params called %s", p.Name), "")
			continue
		}
		if p.Short != "" && slices.ContainsFunc(r.params, func(other Param) bool { return other.Short == p.Short }) {
			r.fail(p.Span, fmt.Sprintf("there are two params with the flag -%s", p.Short), "")
			continue
		}
		value, unit, ok := literalValue(p.Default)
		if !ok {
			r.fail(syntax.SpanOf(p.Default), syntax.Print(p.Default)+" does not fit 64 bits", "")
			continue
		}
		r.params = append(r.params, Param{
			Name: p.Name, Short: p.Short, Help: p.Help, Default: syntax.Print(p.Default), Value: value, Type: typeOfParam(value, unit),
			Span: p.Span,
		})
	}
}

// param returns the one that is read as word, with its dollar, or nil.
func (r *resolver) param(word string) *Param {
	for i := range r.params {
		if word == "$"+r.params[i].Name {
			return &r.params[i]
		}
	}
	return nil
}

func typeOfParam(value any, unit event.Unit) event.Type {
	switch value := value.(type) {
	case bool:
		return boolean
	case string:
		return event.Type{Kind: event.String, Size: len(value)}
	default:
		t := literal(value).typ
		t.Unit = unit
		return t
	}
}

// literalValue returns the value of a literal, perhaps with a minus sign: int64, uint64, bool or string.
func literalValue(n ast.Node) (value any, unit event.Unit, ok bool) {
	switch n := n.(type) {
	case *ast.BoolNode:
		return n.Value, event.None, true
	case *ast.StringNode:
		return n.Value, event.None, true
	case *ast.ConstantNode:
		if i, ok := n.Value.(syntax.Int); ok {
			return i.Value, unitOf(i.Text), true
		}
	case *ast.UnaryNode:
		v, unit, ok := literalValue(n.Node)
		if u, isNumber := v.(uint64); ok && isNumber && n.Operator == "-" && u <= 1<<63 {
			return literal(-int64(u)).val, unit, true
		}
	}
	return nil, event.None, false
}

// assign gives params the values of the command line.
func (r *resolver) assign(values map[string]string) error {
	for name, text := range values {
		p := r.param("$" + name)
		if p == nil {
			var names []string
			for _, p := range r.params {
				names = append(names, p.Name)
			}
			help := "it has no params"
			if len(names) > 0 {
				help = "it has " + enumerate(names)
			}
			return fmt.Errorf("the program has no param called %s: %s", name, help)
		}
		value, ok := p.parse(text)
		if !ok {
			return fmt.Errorf("--%s=%s: want %s", name, text, p.wants())
		}
		p.Value = value
	}
	return nil
}

// parse reads a value for p as the command line has it: strings stand without quotes.
func (p *Param) parse(text string) (value any, ok bool) {
	switch p.Type.Kind {
	case event.String:
		return text, strings.IndexByte(text, 0) < 0
	case event.Bool:
		b, err := strconv.ParseBool(text)
		return b, err == nil
	}
	tree, err := syntax.Parse("", text)
	if err != nil || tree.Expr == nil || tree.Body != nil || len(tree.Comments) > 0 {
		return nil, false
	}
	value, unit, ok := literalValue(tree.Expr)
	if n, negative := value.(int64); negative && n < 0 && p.Type.Unit != event.None && p.Type.Kind != event.Int {
		return nil, false // no size is negative, and a duration only of a param whose default is
	}
	// A duration without a unit would be nanoseconds, which nobody means.
	if unit != p.Type.Unit && !(unit == event.None && (value == uint64(0) || p.Type.Unit == event.Bytes)) {
		return nil, false
	}
	return value, ok
}

// wants says which values p takes.
func (p *Param) wants() string {
	switch {
	case p.Type.Kind == event.Bool:
		return "true or false"
	case p.Type.Kind == event.String:
		return "a string without NUL bytes"
	case p.Type.Unit == event.Nanoseconds:
		return "a duration like 10ms"
	case p.Type.Unit == event.Bytes:
		return "a size like 4KiB"
	}
	return "a whole number"
}

// paramValue makes the literal that a param stands for.
func (c *checker) paramValue(p *Param, at syntax.Span, want *event.Type) *expr {
	switch v := p.Value.(type) {
	case string:
		if enum := enumOf(want); enum != nil && want.Unit != event.Errno {
			return c.nameInParam(p, at, enum)
		}
		return c.str(at, v, want)
	case bool:
		return &expr{op: opLit, typ: boolean, val: v}
	default:
		e := literal(v)
		e.typ.Unit = p.Type.Unit
		return e
	}
}

// noName is a value that no enum has: they are of 32 bits at most.
const noName = uint64(1) << 63

// nameInParam types a param that holds a string, beside an enum: it is one of its names. An empty one is no name, and equals none.
func (c *checker) nameInParam(p *Param, at syntax.Span, enum *event.Enum) *expr {
	name := p.Value.(string)
	value, known := enum.Value(name)
	e := literal(value)
	switch {
	case name == "":
		e = literal(noName)
	case !known:
		return c.fail(at, fmt.Sprintf("$%s is %q, which is no name of %s", p.Name, name, enum.Name),
			cmp.Or(didYouMean(name, enum.Names), "its names are "+enumerate(enum.Names)))
	}
	e.typ.Enum = enum
	return e
}
