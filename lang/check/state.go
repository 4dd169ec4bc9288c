package check

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file holds the state that the checkers of all clauses share, and the state of each checker.

// Options are the options of a compilation.
type Options struct {
	// Params are values of params by name, as written on the command line.
	Params map[string]string
	// Arguments are what $1, $2 … are.
	Arguments []string
	// Meant returns advice about a program that is a single unknown word, which may have been meant for something else than a field: exact
	// about what has that name, near about names that are similar. nil: nothing else can be meant.
	Meant func(word string) (exact, near string)
	// Filter comes before the predicates of all clauses on events.
	Filter Filter
	// WithoutSelf leaves out the events of trace itself where they echo, [event.Probe.Echoes]. Of the process of -c, whose threads are called
	// Waiting before it executes the command, it then leaves out all but the execve.
	WithoutSelf bool
	Waiting     string
	// Command reports that -c starts a command. Its process is cpid.
	Command bool
	// CPUs is how many CPUs the machine may have, the value of ncpus; 0 for a recording, which does not have it.
	CPUs int
	// Clocks are how far the clocks of nsecs(mode) are ahead of nsecs, in ns. It is nil for a recording, which does not have them.
	Clocks map[string]int64
	// Environ is the environment, each variable as NAME=VALUE. It has settings of the program.
	Environ []string
	// Raw prints strings as they are, including control characters.
	Raw bool
	// Unsafe allows the program to act, and not just to observe.
	Unsafe bool
	// Exemplars makes histograms keep which events their largest values came from.
	Exemplars bool
	// Missing is what to do about named probes that are not available, if the program does not choose.
	Missing ir.Missing
	// Known returns all probes that trace knows. It is set for a recording, which may lack some of them, and nil on a host. A
	// pattern without recorded probes is dropped from a clause that has others, as an unavailable probe is on a host. Known is
	// slow, so it is called only for such patterns and for advice.
	Known func() []*event.Probe
	// Untraced is why a recording has no events of probes that the recorded program asked for, by their names.
	Untraced map[string]string
	// Rates are the rates of a recording's samples in Hz; empty if the recording does not have them.
	Rates []int
	// Periods are the periods of a recording's readings, by probe.
	Periods map[string][]time.Duration
}

func (o Options) recorded() bool { return o.Known != nil }

// known returns all probes that trace knows, for a recording.
func (r *resolver) known() []*event.Probe {
	if !r.options.recorded() {
		return nil
	}
	return r.options.Known()
}

// resolver finds the probes of clauses and reports words that are not their fields.
type resolver struct {
	text    syntax.Text
	catalog []*event.Probe
	options Options
	params  []ir.Param
	// missing is what the program has chosen for probes that are not there.
	missing ir.Missing
	// stackMode is how frames are written unless a stack names its own way.
	stackMode event.Unit
	// trials are where the tests and the benchmarks are, by their names.
	trials map[string]syntax.Span
	// named are the flags that getopt() declares.
	named []ir.Param
	errs  syntax.ErrorList
	// patterns are the patterns of matches, by their text, and states how many states they have. exceeded reports that a clause is too large.
	patterns map[string]*regexp.Regexp
	states   int
	exceeded bool
	// typedInAll is how many expressions were typed.
	typedInAll int
	// warnings are about what the program does not mean, although it can run.
	warnings syntax.ErrorList
}

func (r *resolver) fail(at syntax.Span, msg, help string) {
	r.errs = append(r.errs, r.text.Error(at, msg, help))
}

// warn notes what the program does not mean, although it can run.
func (r *resolver) warn(at syntax.Span, msg, help string) {
	found := r.text.Error(at, "WARNING: "+msg, help)
	if !slices.ContainsFunc(r.warnings, func(known *syntax.Error) bool { return *known == *found }) { // once for all probes of a clause
		r.warnings = append(r.warnings, found)
	}
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

// param returns the param that is read as word, which includes the dollar, or nil.
func (r *resolver) param(word string) *ir.Param {
	if syntax.IsArgument(word) {
		return r.numbered(word)
	}
	for i := range r.params {
		if word == "$"+r.params[i].Name {
			return &r.params[i]
		}
	}
	return nil
}

// analysis checks the clauses of a program, or of a candidate for one.
type analysis struct {
	*resolver
	maps   []*mapUses // in the order of the program
	byName map[string]*mapUses
	vars   map[declaration]*varUses
	// uses are the same by their variables.
	uses map[*ir.Variable]*varUses
	// assignments maps each x++ and find() to the assignment that it makes.
	assignments map[ast.Node]*syntax.Assign
	// changed reports that this pass has learned something; first and final that it is the first or the last one.
	changed, first, final bool
	// cgroups maps paths that were looked up to ids, or to 0 if there is no such cgroup.
	cgroups map[string]uint64
}

// declaration is where a variable of a clause is declared.
type declaration struct {
	clause *ir.Clause
	at     any // a statement, or an expression that needs a variable
}

// mapOf returns the map called name, or nil.
func (a *analysis) mapOf(name string) *mapUses { return a.byName[name] }

// varOf returns what is known about a variable.
func (a *analysis) varOf(v *ir.Variable) *varUses { return a.uses[v] }

// note joins a row to the shape.
func (a *analysis) note(s *shape, r row, at syntax.Span) *clash {
	before := *s
	before.columns = slices.Clone(s.columns)
	found := s.join(r, at)
	a.changed = a.changed || !s.equal(before)
	return found
}

// place returns the line and the column of a span, for a message about another span.
func (r *resolver) place(at syntax.Span) string {
	e := r.text.Error(at, "", "")
	return fmt.Sprintf("at %d:%d", e.Line, e.Col)
}

// earlier describes where the earlier use is. It may be the same place, checked for another probe.
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
	return fmt.Sprintf("set it in a clause: %s = count()", name)
}

// checker gives a clause its meaning for the events of one probe, or at its moment.
type checker struct {
	*analysis
	clause *ir.Clause
	probe  *event.Probe // nil in clauses that no event triggers
	// site is valid only if there are no errors and no unknown words.
	site    *ir.Site
	errs    syntax.ErrorList
	unknown []unknown
	// fields are the fields that are not common to all events, in the order of their use.
	fields []string
	// contexts caches the results of context, which is called at every level of the tree.
	contexts map[ast.Node]*event.Type
	// paired are the types of the elements of a tuple, which the tuple beside it gives them.
	paired map[ast.Node]*event.Type
	// scopes are the variables of the enclosing blocks, innermost last; hidden holds variables of blocks that have ended.
	scopes []map[string]*varUses
	hidden map[string]bool
	// before are statements that come before the one at hand (see effect.go), and loops counts the loops around it.
	before []ir.Stmt
	loops  int
	// dead counts the parts around the one at hand that never run.
	dead int
	// element is the type of # in the predicate of a function on lists; nil elsewhere.
	element *event.Type
	// counted are the operations of each expression, and typedSoFar how many were typed (see bounds.go).
	counted    map[*ir.Expr]int
	typedSoFar int
}

func (a *analysis) checker(c *ir.Clause, p *event.Probe) *checker {
	return &checker{
		analysis: a, clause: c, probe: p, site: &ir.Site{Probe: p}, contexts: map[ast.Node]*event.Type{}, paired: map[ast.Node]*event.Type{}, hidden: map[string]bool{}, counted: map[*ir.Expr]int{},
	}
}

func (c *checker) fail(at syntax.Span, msg, help string) *ir.Expr {
	if c.final {
		c.errs = append(c.errs, c.text.Error(at, msg, cmp.Or(help, c.givenTexts(c.text.Content[at.From:at.To]))))
	}
	return nil
}

// unknown is a word that is neither a field of the probe nor a name of a value that fits its place.
type unknown struct {
	name string
	span syntax.Span
	// want is the type of the other operand, or nil.
	want *event.Type
}

// field returns the field of the event called name, or nil.
func (c *checker) field(name string) *event.Field {
	if c.probe == nil {
		return nil
	}
	return c.probe.Field(name)
}

// isPattern reports whether the name of a probe, or a part of it, is a pattern.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// matching returns the probes that ref names.
func matching(all []*event.Probe, ref syntax.ProbeRef) []*event.Probe {
	var matches []*event.Probe
	for _, p := range all {
		// The lexer rejects malformed patterns, so there is no error.
		group, _ := path.Match(ref.Group, p.Group)
		name, _ := path.Match(ref.Name, p.Name)
		if group && name {
			matches = append(matches, p)
		}
	}
	return matches
}

// variable returns the variable that stmt declares.
func (a *analysis) variable(c *ir.Clause, stmt syntax.Stmt, name string) *varUses {
	return a.variableAt(declaration{c, stmt}, name, stmt.Pos())
}

// variableAt returns the variable that is declared there.
func (a *analysis) variableAt(at declaration, name string, span syntax.Span) *varUses {
	if a.vars[at] == nil {
		v := &ir.Variable{Name: name, Index: len(at.clause.Vars)}
		at.clause.Vars = append(at.clause.Vars, v)
		a.vars[at] = &varUses{Variable: v, span: span}
		a.uses[v] = a.vars[at]
	}
	return a.vars[at]
}
