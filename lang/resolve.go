package lang

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/syntax"
	"trace/probes"
)

// resolver finds the probes of clauses and has their predicates checked and compiled.
type resolver struct {
	source  syntax.Source
	catalog []*probes.Probe
	errs    syntax.ErrorList
}

func (r *resolver) fail(at syntax.Span, msg, help string) {
	r.errs = append(r.errs, r.source.Error(at, msg, help))
}

// driverGroup tells whether the events of a group belong to one driver: such a group has to be asked for by name.
func driverGroup(group string) bool { return group == "mlx5" }

// clause resolves a clause that names its probes.
func (r *resolver) clause(c *syntax.Clause) *Clause {
	found, named := map[*probes.Probe]bool{}, map[*probes.Probe]bool{}
	for _, ref := range c.Probes {
		matches := r.match(ref)
		if matches == nil {
			r.unknownProbe(ref)
		}
		for _, p := range matches {
			found[p] = true
			named[p] = named[p] || ref.String() == p.String()
		}
	}
	var in []*probes.Probe
	for _, p := range r.catalog {
		if found[p] {
			in = append(in, p)
		}
	}
	out := &Clause{Probes: in, named: named, text: c.String(), filters: map[*probes.Probe]*filter{}}
	if c.Pred == nil {
		for _, p := range in {
			out.filters[p] = everything
		}
		return out
	}
	checks := make([]*checker, len(in))
	for i, p := range in {
		checks[i] = check(r.source, p, c.Pred)
	}
	r.compile(out, checks)
	return out
}

func (r *resolver) match(ref syntax.ProbeRef) []*probes.Probe {
	var matches []*probes.Probe
	for _, p := range r.catalog {
		// The lexer lets no malformed pattern through, so there is no error.
		group, _ := path.Match(ref.Group, p.Group)
		name, _ := path.Match(ref.Name, p.Name)
		if group && name {
			matches = append(matches, p)
		}
	}
	return matches
}

func (r *resolver) unknownProbe(ref syntax.ProbeRef) {
	var names []string
	for _, p := range r.catalog {
		names = append(names, p.String())
	}
	help := didYouMean(ref.String(), names)
	if help == "" {
		if inGroup := r.match(syntax.ProbeRef{Group: ref.Group, Name: "*"}); inGroup != nil {
			help = fmt.Sprintf("%s has %s", ref.Group, list(inGroup))
		} else {
			help = "the groups are " + list(groups(r.catalog))
		}
	}
	r.fail(ref.Span, fmt.Sprintf("no probe is called %s", ref), help)
}

// compile makes the filters of c from the trees that passed their checks, and collects the errors of those that did not.
func (r *resolver) compile(c *Clause, checks []*checker) {
	r.unknownNames(checks)
	for _, ch := range checks {
		r.errs = append(r.errs, ch.errs...)
		if len(r.errs) > 0 {
			continue
		}
		f, err := newFilter(ch.tree)
		if err != nil {
			r.fail(ch.tree.span, err.Error(), "this is a bug in trace: please report it with the program")
			return
		}
		c.filters[ch.probe] = f
	}
}

// unknownNames reports each word of a predicate that is not a field of all the probes at hand.
func (r *resolver) unknownNames(checks []*checker) {
	var words []unknown // as the first probe without it sees it
	lacking := map[syntax.Span][]*probes.Probe{}
	for _, ch := range checks {
		for _, u := range r.misplaced(ch.unknown) {
			if lacking[u.span] == nil {
				words = append(words, u)
			}
			lacking[u.span] = append(lacking[u.span], ch.probe)
		}
	}
	var all []*probes.Probe
	for _, ch := range checks {
		all = append(all, ch.probe)
	}
	for _, u := range words {
		r.unknownName(u, lacking[u.span], all)
	}
}

// unknownName reports a word that is no field of the probes without, which are among the probes all.
func (r *resolver) unknownName(u unknown, without, all []*probes.Probe) {
	var with []*probes.Probe
	for _, p := range all {
		if !slices.Contains(without, p) {
			with = append(with, p)
		}
	}
	msg := fmt.Sprintf("no field %s in %s", u.name, list(without))
	fields := fieldNames(all)
	switch enum := enumOf(u.want); {
	case len(with) > 0:
		r.fail(u.span, msg, "name only probes that have it: "+list(with))
	case enum != nil:
		r.fail(u.span, fmt.Sprintf("%s is neither a name of %s nor a field of %s", u.name, enum.Name, list(without)),
			cmp.Or(didYouMean(u.name, enum.Names), didYouMean(u.name, fields), "its names are "+list(enum.Names)))
	case u.want != nil && u.want.Kind == probes.String:
		r.fail(u.span, msg, fmt.Sprintf("a string stands in quotes: %q", u.name))
	default:
		r.fail(u.span, msg, cmp.Or(r.whoNames(u), didYouMean(u.name, fields), r.whoHas(u.name)))
	}
}

// misplaced leaves out the names of values if there are other words to blame: in qp.stat == RTR only qp.stat is wrong.
func (r *resolver) misplaced(words []unknown) []unknown {
	isName := func(u unknown) bool { return r.whoNames(u) != "" }
	if others := slices.DeleteFunc(slices.Clone(words), isName); len(others) > 0 {
		return others
	}
	return words
}

// whoNames says of which field a word is a value, if it stands where it could not be known as one.
func (r *resolver) whoNames(u unknown) string {
	if u.want != nil || r.having(u.name) != nil {
		return ""
	}
	for _, p := range r.catalog {
		for _, f := range p.Fields {
			if enum := enumOf(&f.Type); enum != nil && slices.Contains(enum.Names, u.name) {
				return fmt.Sprintf("%s is a name of %s: compare a field like %s with it", u.name, enum.Name, f.Name)
			}
		}
	}
	return ""
}

func fieldNames(in []*probes.Probe) []string {
	var names []string
	for _, p := range in {
		for _, f := range p.Fields {
			names = append(names, f.Name)
		}
	}
	return names
}

// whoHas says which probes have a field, or nothing.
func (r *resolver) whoHas(field string) string {
	if with := r.having(field); with != nil {
		return fmt.Sprintf("%s is a field of %s", field, list(with))
	}
	return ""
}

func (r *resolver) having(field string) []*probes.Probe {
	var with []*probes.Probe
	for _, p := range r.catalog {
		if p.Field(field) != nil {
			with = append(with, p)
		}
	}
	return with
}

// bare resolves an expression that names no probe: it means the probes whose events have all its fields.
func (r *resolver) bare(n ast.Node) *Clause {
	c := &Clause{Inferred: true, text: syntax.Print(n), filters: map[*probes.Probe]*filter{}}
	var fit, all []*checker
	var drivers []*probes.Probe
	for _, p := range r.catalog {
		ch := check(r.source, p, n)
		all = append(all, ch)
		switch {
		case slices.ContainsFunc(ch.unknown, r.needsOtherProbe):
		case driverGroup(p.Group):
			drivers = append(drivers, p)
		default:
			fit = append(fit, ch)
			c.Probes = append(c.Probes, p)
		}
	}
	at := syntax.SpanOf(n)
	switch {
	case len(fit) == 0 && len(drivers) > 0:
		r.fail(at, "only probes of a driver have these fields, and such probes have to be named", c.qualified(drivers))
	case len(fit) == 0:
		r.noProbe(n, all)
	case !slices.ContainsFunc(fit, func(ch *checker) bool { return len(ch.fields) > 0 }):
		r.fail(at, "every event has these fields, so they choose no probe", c.qualified(c.Probes))
	case len(groups(c.Probes)) > 1:
		r.fail(at, "several groups of probes have these fields: "+list(groups(c.Probes)), c.qualified(c.Probes))
	default:
		r.compile(c, fit)
	}
	return c
}

// needsOtherProbe tells whether an unknown word rules the probe out. A misspelt name of a value does not.
func (r *resolver) needsOtherProbe(u unknown) bool {
	return enumOf(u.want) == nil || r.having(u.name) != nil
}

// qualified says how to name the probes of a bare expression.
func (c *Clause) qualified(candidates []*probes.Probe) string {
	help := fmt.Sprintf("name the probe: %s / %s /", candidates[0], c.text)
	if len(candidates) > 1 {
		help += "; candidates are " + list(candidates)
	}
	return help
}

// noProbe reports why no probe has all the fields of a bare expression: the first word that no probe knows, else which
// probe has which.
func (r *resolver) noProbe(n ast.Node, checks []*checker) {
	best := slices.MinFunc(checks, func(a, b *checker) int { return len(a.unknown) - len(b.unknown) })
	var all []*probes.Probe
	for _, ch := range checks {
		all = append(all, ch.probe)
	}
	wrong := r.misplaced(best.unknown)
	for _, u := range wrong {
		if r.having(u.name) == nil {
			r.fail(u.span, fmt.Sprintf("no probe has a field %s", u.name), cmp.Or(r.whoNames(u), didYouMean(u.name, fieldNames(all))))
			return
		}
	}
	names := best.fields
	for _, u := range wrong {
		names = append(names, u.name)
	}
	slices.Sort(names)
	var where []string
	for _, name := range slices.Compact(names) {
		where = append(where, r.whoHas(name))
	}
	r.fail(syntax.SpanOf(n), "no probe has all these fields", strings.Join(where, "; "))
}

// groups of the probes, each once.
func groups(in []*probes.Probe) []string {
	var names []string
	for _, p := range in {
		names = append(names, p.Group)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
