package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file holds what the checkers of all clauses share, and what each knows of its own.

// Options of a compilation.
type Options struct {
	// Params are values for params of the program, by their names, as the command line has them.
	Params map[string]string
	// Words are what the command line takes in place of a program: names of scripts and commands. A program of one word that is no
	// field may be one of them, misspelt.
	Words []string
	// Filter stands before the predicates of all clauses on events.
	Filter Filter
	// Command says that a command is started, whose process is cpid.
	Command bool
	// Raw strings are printed as they are, control characters included.
	Raw bool
	// Known returns the probes of which a recording may lack some, and is nil on a host. A pattern for these is left out of a clause that
	// has others, as one that is not available is on a host. It is called only for that, and for advice: what knows all probes takes time.
	Known func() []*event.Probe
	// Rates are those at which the samples of a recording were taken, a second; none if it does not tell.
	Rates []int
}

func (o Options) recorded() bool { return o.Known != nil }

// known are all probes that trace knows, on a recording.
func (r *resolver) known() []*event.Probe {
	if !r.options.recorded() {
		return nil
	}
	return r.options.Known()
}

// resolver finds the probes of clauses, and reports words that are none of their fields.
type resolver struct {
	text    syntax.Text
	catalog []*event.Probe
	options Options
	params  []ir.Param
	errs    syntax.ErrorList
}

func (r *resolver) fail(at syntax.Span, msg, help string) {
	r.errs = append(r.errs, r.text.Error(at, msg, help))
}

func (r *resolver) match(ref syntax.ProbeRef) []*event.Probe { return matching(r.catalog, ref) }

func (r *resolver) having(field string) []*event.Probe {
	var with []*event.Probe
	for _, p := range r.catalog {
		if p.Field(field) != nil {
			with = append(with, p)
		}
	}
	return with
}

// param returns the one that is read as word, with its dollar, or nil.
func (r *resolver) param(word string) *ir.Param {
	for i := range r.params {
		if word == "$"+r.params[i].Name {
			return &r.params[i]
		}
	}
	return nil
}

// analysis checks the clauses of a program, or of what might be one.
type analysis struct {
	*resolver
	maps   []*mapUses // in the order of the text
	byName map[string]*mapUses
	vars   map[declaration]*varUses
	// changed says that this pass has found a new fact, final that there are no new ones.
	changed, final bool
	// cgroups are the ids of the paths that were asked for, 0 if there is no such cgroup.
	cgroups map[string]uint64
}

// declaration is where a variable of a clause begins.
type declaration struct {
	clause *ir.Clause
	stmt   syntax.Stmt
}

// mapOf returns the map called name, or nil.
func (a *analysis) mapOf(name string) *mapUses { return a.byName[name] }

// varOf returns what is known of a variable.
func (a *analysis) varOf(v *ir.Variable) *varUses {
	for _, known := range a.vars {
		if known.Variable == v {
			return known
		}
	}
	return nil
}

// note joins values to what is known.
func (a *analysis) note(s *shape, values []*ir.Expr, isTuple bool, at syntax.Span) *clash {
	before := *s
	before.columns = slices.Clone(s.columns)
	found := s.join(values, isTuple, at)
	a.changed = a.changed || !s.equal(before)
	return found
}

// place is the line and column of a span, for a message about another.
func (a *analysis) place(at syntax.Span) string {
	e := a.text.Error(at, "", "")
	return fmt.Sprintf("at %d:%d", e.Line, e.Col)
}

// earlier says where the earlier use is: a field may be of another type in another probe.
func (a *analysis) earlier(found *clash) string {
	if found.span == found.at {
		return "for another probe of the clause"
	}
	return a.place(found.at)
}

func (a *analysis) writtenMaps(name string) string {
	var names []string
	for _, m := range a.maps {
		if m.written {
			names = append(names, m.info.Name)
		}
	}
	if help := syntax.DidYouMean(name, names); help != "" {
		return help
	}
	return fmt.Sprintf("set it in some clause: %s = count()", name)
}

// checker gives a clause its meaning for the events of one probe, or at its moment.
type checker struct {
	*analysis
	clause *ir.Clause
	probe  *event.Probe // nil in begin, end and interval clauses
	// body is of use only if there are no errors and no unknown words.
	site    *ir.Site
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

func (a *analysis) checker(c *ir.Clause, p *event.Probe) *checker {
	return &checker{
		analysis: a, clause: c, probe: p, site: &ir.Site{Probe: p}, contexts: map[ast.Node]*event.Type{}, hidden: map[string]bool{},
	}
}

func (c *checker) fail(at syntax.Span, msg, help string) *ir.Expr {
	if c.final {
		c.errs = append(c.errs, c.text.Error(at, msg, help))
	}
	return nil
}

// unknown is a word that is no field of the probe and no name of a value that fits its place.
type unknown struct {
	name string
	span syntax.Span
	// want is the type of the other operand, or nil.
	want *event.Type
}

// field returns the field of the event that is called name, or nil.
func (c *checker) field(name string) *event.Field {
	if c.probe == nil {
		return nil
	}
	return c.probe.Field(name)
}

// isPattern tells whether a name of a probe, or a part of it, stands for several.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// matching are those of the probes that ref names.
func matching(all []*event.Probe, ref syntax.ProbeRef) []*event.Probe {
	var matches []*event.Probe
	for _, p := range all {
		// The lexer lets no malformed pattern through, so there is no error.
		group, _ := path.Match(ref.Group, p.Group)
		name, _ := path.Match(ref.Name, p.Name)
		if group && name {
			matches = append(matches, p)
		}
	}
	return matches
}

// variable returns the one that stmt declares.
func (a *analysis) variable(c *ir.Clause, stmt syntax.Stmt, name string) *varUses {
	at := declaration{c, stmt}
	if a.vars[at] == nil {
		v := &ir.Variable{Name: name, Index: len(c.Vars)}
		c.Vars = append(c.Vars, v)
		a.vars[at] = &varUses{Variable: v}
	}
	return a.vars[at]
}
