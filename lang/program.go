package lang

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"trace/lang/syntax"
	"trace/probes/event"
)

// Program is a checked program, ready to run on events.
type Program struct {
	source syntax.Source
	// maps in the order of their first use.
	maps    []*mapInfo
	clauses []*Clause
	// cgroups are the paths in the program, with the ids that they stand for; 0 is compared by path.
	cgroups map[string]uint64
	raw     bool // see Options
}

// Clause says what happens to the events of some probes, or at a moment.
type Clause struct {
	// Probes that the clause attaches, in the order of the catalog; none for a moment. Those for whose events the predicate is false
	// whatever they hold, as params can make it, are left out.
	Probes []*event.Probe
	// LeftOut are the probes that wildcards of the clause match, but that lack what it reads.
	LeftOut []LeftOut
	// Inferred says that a bare expression did not name the probes: its fields chose them.
	Inferred bool

	kind   clauseKind
	period period                // of onInterval
	hz     int                   // of profile
	named  map[*event.Probe]bool // by name, not by a pattern
	vars   []*variable
	bodies map[*event.Probe]*body // the key is nil for a moment
	text   string
	span   syntax.Span
	tree   *syntax.Clause
}

// Options of a compilation.
type Options struct {
	// Params are values for params of the program, by their names, as the command line has them.
	Params map[string]string
	// Words are what the command line takes in place of a program: names of scripts and commands. A program of one word that is no
	// field may be one of them, misspelt.
	Words []string
	// PID restricts the clauses on events to those of one process, if it is not 0.
	PID int
	// Command says that a command is started, whose process is cpid.
	Command bool
	// Raw strings are printed as they are, control characters included.
	Raw bool
	// Known are probes of which a recording may lack some, and nil on a host: a pattern for these is left out of a clause that has
	// others, as one that is not available is on a host.
	Known []*event.Probe
	// Rates are those at which the samples of a recording were taken, a second; none if it does not tell.
	Rates []int
}

func (o Options) recorded() bool { return o.Known != nil }

// Compile parses src and checks it against the probes of the catalog. Errors in the program are a [syntax.ErrorList] that names src
// by name.
func Compile(name, src string, cat []*event.Probe, o Options) (*Program, error) {
	tree, err := syntax.Parse(name, src)
	if err != nil {
		return nil, nameProbes(err, cat)
	}
	r := &resolver{source: tree.Source, catalog: cat, options: o}
	if r.declare(tree.Params); len(r.errs) == 0 {
		if err := r.assign(o.Params); err != nil {
			return nil, err
		}
	}
	prog := &Program{source: tree.Source, raw: o.Raw}
	if tree.Expr != nil {
		if c := r.bare(tree.Expr, tree.Body); c != nil {
			prog.clauses = append(prog.clauses, c)
		}
	}
	for _, c := range tree.Clauses {
		prog.clauses = append(prog.clauses, r.clauses(c)...)
	}
	r.check(prog, tree.Lets)
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	return prog, nil
}

// Groups returns the groups of the probes that a program names, or nil if any may be meant: it has none, a pattern for them, or mistakes.
func Groups(src string) []string {
	tree, err := syntax.Parse("", src)
	if err != nil || tree.Expr != nil {
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

// check types the clauses and keeps what comes of it, or the mistakes.
func (r *resolver) check(prog *Program, lets []*syntax.Let) {
	a, checkers := r.fitted(prog.clauses)
	for _, c := range prog.clauses {
		c.span, c.bodies = c.tree.Span, map[*event.Probe]*body{}
		n := len(c.places())
		r.unknownNames(checkers[:n])
		for _, ch := range checkers[:n] {
			r.errs = append(r.errs, ch.errs...)
			c.bodies[ch.probe] = ch.body
		}
		c.Probes = slices.DeleteFunc(c.Probes, func(p *event.Probe) bool { return decided(c.bodies[p].pred, false) })
		checkers = checkers[n:]
	}
	a.complete()
	prog.cgroups = a.cgroups
	for _, let := range lets {
		a.keep(let)
	}
	for _, m := range a.maps {
		prog.maps = append(prog.maps, m.info)
	}
}

// places are what the clause is checked for: its probes, or once for a moment, where there is no probe.
func (c *Clause) places() []*event.Probe {
	if c.kind == onEvent {
		return c.Probes
	}
	return []*event.Probe{nil}
}

// maxEntries of a map, as many as the kernel counts.
const maxEntries = 1 << 31

// keep notes how a map is kept.
func (a *analysis) keep(let *syntax.Let) {
	m := a.mapOf(let.Map)
	if m == nil {
		a.resolver.fail(let.Span, fmt.Sprintf("%s is never used", let.Map), a.writtenMaps(let.Map))
		return
	}
	n := let.Entries.(*ast.ConstantNode).Value.(syntax.Int)
	switch {
	case let.Kind != "lru" && let.Kind != "hash":
		a.resolver.fail(let.Span, fmt.Sprintf("no map is a %s", let.Kind), "write lru(10000), where the oldest keys give way, or hash(10000)")
	case n.Value < 1 || n.Value > maxEntries:
		a.resolver.fail(syntax.SpanOf(let.Entries), fmt.Sprintf("a map has between 1 and %d entries", maxEntries), "")
	case m.info.entries != 0:
		a.resolver.fail(let.Span, fmt.Sprintf("%s is declared twice", let.Map), "")
	}
	m.info.lru, m.info.entries = let.Kind == "lru", uint32(n.Value)
}

// Selects returns nil if all that the program does is to select events: clauses without a block, of which no two have a probe in
// common. Else it is a [syntax.ErrorList] that says where it does more.
func (p *Program) Selects() error {
	errs := syntax.ErrorList{}
	seen := map[*event.Probe]bool{}
	for _, c := range p.clauses {
		if c.kind != onEvent || !c.bodies[c.Probes[0]].prints {
			errs = append(errs, p.source.Error(c.span, "a recording only selects events", "leave out the block: the program that reads the recording has it"))
			continue
		}
		for _, probe := range c.Probes {
			if seen[probe] {
				errs = append(errs, p.source.Error(c.span, fmt.Sprintf("%s is recorded by two clauses", probe), "join their predicates with ||"))
				break
			}
			seen[probe] = true
		}
	}
	return errs.Err()
}

// Recordable returns nil if a recording can tell the events apart that the clauses of the program are for: samples do not say how frequent
// they are. Else it is a [syntax.ErrorList].
func (p *Program) Recordable() error {
	errs := syntax.ErrorList{}
	frequencies := map[*event.Probe]int{}
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			if hz, seen := frequencies[probe]; seen && hz != c.hz {
				errs = append(errs, p.source.Error(c.span, "samples of two frequencies are one in a recording", "record one of them"))
			}
			frequencies[probe] = c.hz
		}
	}
	return errs.Err()
}

// AsksForCommand tells whether the program has cpid.
func (p *Program) AsksForCommand() (asks bool) {
	for _, c := range p.clauses {
		for _, b := range c.bodies {
			b.walkExprs(func(e *expr) { asks = asks || e.op == opCommand })
		}
	}
	return asks
}

// SampleRate is how often the program samples the CPUs, a second, or 0: the one rate of a program that is [Program.Recordable].
func (p *Program) SampleRate() int {
	for _, c := range p.clauses {
		if c.hz != 0 {
			return c.hz
		}
	}
	return 0
}

// Maps of the program, with their @.
func (p *Program) Maps() []string {
	var names []string
	for _, m := range p.maps {
		names = append(names, m.name)
	}
	return names
}

// Clauses in the order of the program.
func (p *Program) Clauses() []*Clause { return p.clauses }

// String returns the clause as text.
func (c *Clause) String() string { return c.text }
