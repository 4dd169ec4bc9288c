package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Params returns the params that a program declares: its flags.
func Params(tree *syntax.Program) ([]ir.Param, error) {
	r := &resolver{text: tree.Text}
	r.declare(tree)
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	return slices.Concat(r.params, r.named), nil
}

// declare notes the params of the program with their defaults.
func (r *resolver) declare(tree *syntax.Program) {
	for _, p := range tree.Params {
		if r.param("$"+p.Name) != nil {
			r.fail(p.Span, fmt.Sprintf("param %s is declared twice", p.Name), "")
			continue
		}
		if p.Short != "" && slices.ContainsFunc(r.params, func(other ir.Param) bool { return other.Short == p.Short }) {
			r.fail(p.Span, fmt.Sprintf("there are two params with the flag -%s", p.Short), "")
			continue
		}
		value, unit, ok := literalValue(p.Default)
		if !ok {
			r.fail(syntax.SpanOf(p.Default), syntax.Print(p.Default)+" does not fit in 64 bits", "")
			continue
		}
		r.params = append(r.params, ir.Param{
			Name: p.Name, Short: p.Short, Help: p.Help, Default: syntax.Print(p.Default), Value: value, Type: typeOfParam(value, unit),
			Span: p.Span, In: r.text,
		})
	}
	r.declareOptions(tree)
}

// assign gives params the values from the command line.
func (r *resolver) assign(values map[string]string) error {
	for name, text := range values {
		p := cmp.Or(r.param("$"+name), r.option(name))
		if p == nil {
			var names []string
			for _, p := range slices.Concat(r.params, r.named) {
				names = append(names, p.Name)
			}
			help := "it has no params"
			if len(names) > 0 {
				help = "it has " + syntax.Enumerate(names)
			}
			return fmt.Errorf("the program has no param %s: %s", name, help)
		}
		value, ok := parseParam(p, text)
		if !ok {
			return fmt.Errorf("--%s=%s: expected %s", name, text, wantedBy(p))
		}
		p.Value = value
	}
	return nil
}

// parseParam parses a value for p from the command line, where strings have no quotes.
func parseParam(p *ir.Param, text string) (value any, ok bool) {
	switch p.Type.Kind {
	case event.String:
		return text, strings.IndexByte(text, 0) < 0
	case event.Bool:
		b, err := strconv.ParseBool(text)
		return b, err == nil
	}
	value, unit, ok := literalText(text)
	if p.Type.Unit == event.Nanoseconds {
		d, err := syntax.ParseDuration(text)
		value, unit, ok = literal(d.Nanoseconds()).Val, event.Nanoseconds, err == nil
	}
	if n, negative := value.(int64); negative && n < 0 && p.Type.Unit != event.None && p.Type.Kind != event.Int {
		return nil, false // sizes are never negative, and a duration only if the default is
	}
	return value, ok && (unit == p.Type.Unit || unit == event.None && p.Type.Unit == event.Bytes)
}

// wantedBy describes the values that p takes.
func wantedBy(p *ir.Param) string {
	switch {
	case p.Type.Kind == event.Bool:
		return "true or false"
	case p.Type.Kind == event.String:
		return "a string without NUL bytes"
	case p.Type.Unit == event.Nanoseconds:
		return "a duration like 10ms, or a number of seconds"
	case p.Type.Unit == event.Bytes:
		return "a size like 4KiB"
	}
	return "a whole number"
}

// stringLiteral returns the value of n if n is a string literal or a param that holds a string.
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
