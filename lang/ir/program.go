package ir

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Program is a checked program, ready to run on events.
type Program struct {
	Text syntax.Text
	// Maps in the order of their first use.
	Maps    []*Map
	Clauses []*Clause
	// Cgroups are the paths in the program, with the ids that they stand for; 0 is compared by path.
	Cgroups map[string]uint64
	Raw     bool // see Options
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

	Kind   ClauseKind
	Period Period                // of onInterval
	Hz     int                   // of profile
	Named  map[*event.Probe]bool // by name, not by a pattern
	Vars   []*Variable
	Sites  map[*event.Probe]*Site // the key is nil for a moment
	Text   string
	Span   syntax.Span
	Tree   *syntax.Clause
}

// Places are what the clause is checked for: its probes, or once for a moment, where there is no probe.
func (c *Clause) Places() []*event.Probe {
	if c.Kind == OnEvent {
		return c.Probes
	}
	return []*event.Probe{nil}
}

// Selects returns nil if all that the program does is to select events: clauses without a block, of which no two have a probe in
// common. Else it is a [syntax.ErrorList] that says where it does more.
func (p *Program) Selects() error {
	errs := syntax.ErrorList{}
	seen := map[*event.Probe]bool{}
	for _, c := range p.Clauses {
		if c.Kind != OnEvent || !c.Sites[c.Probes[0]].Prints {
			errs = append(errs, p.Text.Error(c.Span, "a recording only selects events", "leave out the block: the program that reads the recording has it"))
			continue
		}
		for _, probe := range c.Probes {
			if seen[probe] {
				errs = append(errs, p.Text.Error(c.Span, fmt.Sprintf("%s is recorded by two clauses", probe), "join their predicates with ||"))
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
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if hz, seen := frequencies[probe]; seen && hz != c.Hz {
				errs = append(errs, p.Text.Error(c.Span, "samples of two frequencies are one in a recording", "record one of them"))
			}
			frequencies[probe] = c.Hz
		}
	}
	return errs.Err()
}

// AsksForCommand tells whether the program has cpid.
func (p *Program) AsksForCommand() (asks bool) {
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			b.WalkExprs(func(e *Expr) { asks = asks || e.Op == OpCommand })
		}
	}
	return asks
}

// SampleRate is how often the program samples the CPUs, a second, or 0: the one rate of a program that is [Program.Recordable].
func (p *Program) SampleRate() int {
	for _, c := range p.Clauses {
		if c.Hz != 0 {
			return c.Hz
		}
	}
	return 0
}

// MapNames are those of the maps of the program, with their @.
func (p *Program) MapNames() []string {
	var names []string
	for _, m := range p.Maps {
		names = append(names, m.Name)
	}
	return names
}

// String returns the clause as text.
func (c *Clause) String() string { return c.Text }

// Waits tells whether there is anything to wait for: events or intervals. A program that only begins and ends waits for nothing.
func (p *Program) Waits() bool {
	return slices.ContainsFunc(p.Clauses, func(c *Clause) bool { return c.Kind == OnInterval || len(c.Probes) > 0 })
}

// Prints tells whether the program may print something at an event.
func (p *Program) Prints() bool {
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if b := c.Sites[probe]; b.Prints || b.says() {
				return true
			}
		}
	}
	return false
}

// says tells whether one of the statements prints something.
func (b *Site) says() (says bool) {
	WalkStmts(b.Stmts, func(s Stmt) {
		call, ok := s.(*CallStmt)
		says = says || ok && call.Prints()
	})
	return says
}

// Printed are the probes whose events the program prints.
func (p *Program) Printed() []*event.Probe {
	var all []*event.Probe
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if c.Sites[probe].Prints && !slices.Contains(all, probe) {
				all = append(all, probe)
			}
		}
	}
	return all
}

// LeftOut is a probe that a wildcard of a clause matches and does not take.
type LeftOut struct {
	Probe *event.Probe
	Why   string
}

// CgroupPaths are those of cgroups that the program compares with, in order.
func (p *Program) CgroupPaths() []string { return slices.Sorted(maps.Keys(p.Cgroups)) }

// CgroupID returns the id that a path of the program stood for when it was compiled. If ok is false there was no such cgroup, and
// events are compared by path.
func (p *Program) CgroupID(path string) (id uint64, ok bool) {
	id = p.Cgroups[path]
	return id, id != 0
}

// KeepsCgroups tells whether the program does more with cgroups than compare their ids, and print those of each event at once: then the
// names of all cgroups should be remembered.
func (p *Program) KeepsCgroups() bool {
	keeps := false
	visit := func(e *Expr) { keeps = keeps || namesCgroup(e) }
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			visit(b.Pred)
			WalkStmts(b.Stmts, func(s Stmt) {
				for _, e := range exprsOf(s) {
					visit(e)
				}
			})
		}
	}
	return keeps
}

// namesCgroup tells whether an expression has to do with a cgroup but for comparing its id.
func namesCgroup(e *Expr) bool {
	switch {
	case e == nil:
		return false
	case e.Op == OpField:
		return IsCgroup(e)
	}
	compares := e.Op == OpEq || e.Op == OpNe || e.Op == OpIn
	return slices.ContainsFunc(e.Args, func(a *Expr) bool { return (!compares || a.Op != OpField) && namesCgroup(a) })
}

// IsCgroup returns whether the value is the id of a cgroup.
func IsCgroup(e *Expr) bool { return event.IsNumber(e.Type) && e.Type.Unit == event.Cgroup }

// ClauseKind says when a clause runs.
type ClauseKind uint8

const (
	OnEvent    ClauseKind = iota
	OnBegin               // before the probes are attached
	OnEnd                 // after the last event, before the maps are printed
	OnInterval            // every period
)

// String returns the name of the moment.
func (k ClauseKind) String() string {
	return [...]string{"event", "begin", "end", "interval"}[k]
}

// Period of an interval clause that is not given as $param.
type Period = time.Duration

// Param is a param of the program: a flag.
type Param struct {
	Name, Help string
	// Short is the letter of its short flag, or "".
	Short string
	// Type is that of the literal: Uint or Int (with Nanoseconds or Bytes as unit if written so), Bool or String.
	Type    event.Type
	Default string // as written
	// Value is the default as int64, uint64, bool or string.
	Value any
	// Span is where it is declared.
	Span syntax.Span
}

// Profiled are the maps that profiles can be made of: a key holds a stack, and the values add up.
func (p *Program) Profiled() []string {
	var names []string
	for _, m := range p.Maps {
		if m.IsProfile() {
			names = append(names, m.Name)
		}
	}
	return names
}

// IsProfile returns whether a profile can be made of the map: a key holds a stack, and the values add up.
func (m *Map) IsProfile() bool {
	return slices.ContainsFunc(m.Key, func(c Column) bool { return c.Type.Kind == format.Stack }) && m.Table(nil, MapOptions{}).Adds != result.NoAddend
}

// Prints tells whether the call is one for output.
func (s *CallStmt) Prints() bool { return s.Fn == "print" || s.Fn == "printf" || s.Fn == "time" }

// MaxStatus is the largest exit status that a process has.
const MaxStatus = 255
