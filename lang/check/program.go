package check

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Program checks a program against the probes of the catalog and gives each name in it its meaning. Mistakes are returned as a
// [syntax.ErrorList].
func Program(tree *syntax.Program, cat []*event.Probe, o Options) (*ir.Program, error) {
	tree, err := syntax.Expand(tree)
	if err != nil {
		return nil, err
	}
	r := &resolver{text: tree.Text, catalog: cat, options: o, patterns: map[string]*regexp.Regexp{}}
	if r.declare(tree); len(r.errs) == 0 {
		if err := r.assign(o.Params); err != nil {
			return nil, err
		}
	}
	prog := &ir.Program{Text: tree.Text, Raw: o.Raw, Missing: o.Missing}
	r.configure(prog, tree.Config)
	if err := o.environment(prog); err != nil {
		return nil, err
	}
	r.missing, r.stackMode = prog.Missing, prog.StackMode
	if tree.Expr != nil {
		if c := r.bare(tree.Expr, tree.Body); c != nil {
			prog.Clauses = append(prog.Clauses, c)
		}
	}
	for _, c := range tree.Clauses {
		prog.Clauses = append(prog.Clauses, r.clauses(c.Conditioned(acts))...)
	}
	r.answered(prog.Clauses)
	r.check(prog, tree.Lets)
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	prog.Warnings, _ = r.warnings.Err().(syntax.ErrorList)
	if err := o.Filter.lacks(prog.Clauses); err != nil {
		return nil, err
	}
	return prog, nil
}

// Groups returns the groups of the probes that a program names. It returns nil if any group may be meant: the program names no
// probe, uses a pattern for the group, or imports files that are not read.
func Groups(tree *syntax.Program) []string {
	if tree.Expr != nil || len(tree.Imports) > 0 {
		return nil
	}
	var groups []string
	for _, c := range tree.Clauses {
		for _, ref := range c.Probes {
			if isPattern(ref.Group) {
				return nil
			}
			groups = append(groups, ref.Group)
		}
	}
	return groups
}

// check types the clauses. It stores the result in prog, or notes the mistakes.
func (r *resolver) check(prog *ir.Program, lets []*syntax.Let) {
	a, checkers := r.fitted(prog.Clauses)
	for _, c := range prog.Clauses {
		c.Span, c.Sites = c.Tree.Span, map[*event.Probe]*ir.Site{}
		n := len(c.Places())
		r.unknownNames(checkers[:n])
		for _, ch := range checkers[:n] {
			r.errs = append(r.errs, ch.errs...)
			c.Sites[ch.probe] = ch.site
		}
		c.Probes = slices.DeleteFunc(c.Probes, func(p *event.Probe) bool { return decided(c.Sites[p].Pred, false) })
		checkers = checkers[n:]
	}
	a.complete()
	for _, c := range prog.Clauses {
		c.Split()
	}
	prog.Cgroups = a.cgroups
	for _, let := range lets {
		a.keep(let)
	}
	for _, m := range a.maps {
		prog.Maps = append(prog.Maps, m.info)
	}
}

// mapKinds are bpftrace's names of kinds. Whether each CPU has its own values, the aggregation determines.
var mapKinds = map[string]string{"lruhash": "lru", "percpuhash": "hash", "percpulruhash": "lru"}

// keep notes what a let declares about a map.
func (a *analysis) keep(let *syntax.Let) {
	m := a.mapOf(let.Map)
	if m == nil {
		a.resolver.warn(let.Span, "Unused map: "+let.Map, "")
		return
	}
	kind := let.Kind
	if plain := mapKinds[kind]; plain != "" {
		kind = plain
	}
	n := let.MaxKeys.(*ast.ConstantNode).Value.(syntax.Int)
	switch {
	case kind != "lru" && kind != "hash":
		a.resolver.fail(let.Span, fmt.Sprintf("there is no map kind %s", let.Kind), "write hash(10000), or lru(10000) to drop the oldest keys when it is full")
	case n.Value < 1 || n.Value > maxKeys:
		a.resolver.fail(syntax.SpanOf(let.MaxKeys), fmt.Sprintf("a map must have room for 1 to %d keys", maxKeys), "")
	case kind == "lru" && m.ranks():
		a.resolver.fail(let.Span, fmt.Sprintf("%s drops the keys with the least values, not the oldest", m.how), fmt.Sprintf("write let %s = hash(%d)", let.Map, n.Value))
	case m.info.MaxKeys != 0:
		a.resolver.fail(let.Span, fmt.Sprintf("%s is declared twice", let.Map), "")
	}
	m.info.Lru, m.info.MaxKeys = kind == "lru", uint32(n.Value)
}
