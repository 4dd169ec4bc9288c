package ir

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// Cgroups maps the cgroup paths in the program to their ids. Events are compared by path if the id is 0.
	Cgroups map[string]uint64
	Raw     bool // see check.Options
	// Warnings are about what the program does not mean, although it can run.
	Warnings syntax.ErrorList
	// of the block config
	MapKeys uint32  // how many keys a map has room for; 0: the default
	Silent  bool    // maps are not printed at the end
	Missing Missing // what to do about named probes that the host lacks
	// StackMode is how frames are written: 0, or as package format has it.
	StackMode event.Unit
}

// Missing is what to do about a probe that is named and not available.
type Missing uint8

const (
	MissingFails Missing = iota
	MissingWarns
	MissingIgnored
	// MissingUnlessAll goes on if another probe is left. No program can choose it: it is for those that choose nothing, see check.Options.
	MissingUnlessAll
)

// Clause is a clause of the program: what to do at the events of some probes, or at a moment.
type Clause struct {
	// Probes are the probes that the clause attaches, in the order of the catalog; none for a moment. A probe is left out if params
	// make its predicate false for every event.
	Probes []*event.Probe
	// LeftOut are probes that match wildcards of the clause but lack something that it reads.
	LeftOut []LeftOut
	// Inferred reports that the probes were chosen by the fields of a bare expression.
	Inferred bool

	Kind   ClauseKind
	Name   string                // what the word probe is for a timer or a test, as bpftrace has it: interval:s:1
	Period Period                // of OnInterval, or of readings, where 0 is their usual one
	Hz     int                   // rate of profile in Hz
	Named  map[*event.Probe]bool // named in full, not by a pattern
	Vars   []*Variable
	Sites  map[*event.Probe]*Site // the key is nil for a moment
	Text   string
	Span   syntax.Span
	Tree   *syntax.Clause
}

// Places returns the keys of Sites: the probes, or nil alone for a moment.
func (c *Clause) Places() []*event.Probe {
	if c.Kind == OnEvent {
		return c.Probes
	}
	return []*event.Probe{nil}
}

// Selects returns nil if the program only selects events: no clause has a body, and no two clauses share a probe. Otherwise it
// returns a [syntax.ErrorList] of the places that do more.
func (p *Program) Selects() error {
	errs := syntax.ErrorList{}
	seen := map[*event.Probe]bool{}
	for _, c := range p.Clauses {
		if c.Kind != OnEvent || len(c.Probes) > 0 && !c.Sites[c.Probes[0]].Prints { // a predicate that is always false leaves no probe
			errs = append(errs, p.Text.Error(c.Span, "a recording can only select events", "remove the body: put it into the program that reads the recording"))
			continue
		}
		for _, probe := range c.Probes {
			if seen[probe] {
				errs = append(errs, p.Text.Error(c.Span, fmt.Sprintf("two clauses record %s", probe), "join their predicates with ||"))
				break
			}
			seen[probe] = true
		}
	}
	return errs.Err()
}

// Recordable returns nil if the events of each clause can be told apart in a recording, and otherwise a [syntax.ErrorList].
// Recorded samples do not have their rate, and readings not the period that the program gives.
func (p *Program) Recordable() error {
	errs := syntax.ErrorList{}
	frequencies, periods := map[*event.Probe]int{}, map[*event.Probe]Period{}
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if hz, seen := frequencies[probe]; seen && hz != c.Hz {
				errs = append(errs, p.Text.Error(c.Span, "a recording cannot keep samples of two rates apart", "record only one of them"))
			}
			if period, seen := periods[probe]; seen && period != c.periodOf(probe) {
				errs = append(errs, p.Text.Error(c.Span, "a recording cannot keep readings of two periods apart", "record only one of them"))
			}
			frequencies[probe], periods[probe] = c.Hz, c.periodOf(probe)
		}
	}
	return errs.Err()
}

// periodOf returns the period of the readings of a probe, 0 if it makes none.
func (c *Clause) periodOf(p *event.Probe) Period {
	if p.Period == 0 {
		return 0
	}
	return cmp.Or(c.Period, p.Period)
}

// Periods returns the periods of the readings, by probe. A program that is [Program.Recordable] has at most one for each.
func (p *Program) Periods() map[string]Period {
	periods := map[string]Period{}
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if period := c.periodOf(probe); period != 0 {
				periods[probe.String()] = period
			}
		}
	}
	return periods
}

// AsksForCommand reports whether the program uses cpid.
func (p *Program) AsksForCommand() (asks bool) {
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			b.WalkExprs(func(e *Expr) { asks = asks || e.Op == OpCommand })
		}
	}
	return asks
}

// SampleRate returns the rate in Hz at which the program samples the CPUs, or 0. A program that is [Program.Recordable] has at most
// one.
func (p *Program) SampleRate() int {
	for _, c := range p.Clauses {
		if c.Hz != 0 {
			return c.Hz
		}
	}
	return 0
}

// MapNames returns the names of the maps of the program, with their @.
func (p *Program) MapNames() []string {
	var names []string
	for _, m := range p.Maps {
		names = append(names, m.Name)
	}
	return names
}

// MapNamed returns the map of a name, with its @.
func (p *Program) MapNamed(name string) (*Map, error) {
	names := p.MapNames()
	switch i := slices.Index(names, name); {
	case i >= 0:
		return p.Maps[i], nil
	case len(names) == 0:
		return nil, fmt.Errorf("there is no map %s: the program has none", name)
	}
	return nil, fmt.Errorf("there is no map %s: the maps are %s", name, strings.Join(names, ", "))
}

// String returns the clause as text.
func (c *Clause) String() string { return c.Text }

// Heading returns what stands before the body of the clause.
func (c *Clause) Heading() string {
	before, _, _ := strings.Cut(c.Text, "{")
	return strings.Join(strings.Fields(before), " ")
}

// Recurs reports whether the clause may run between events, more than once.
func (k ClauseKind) Recurs() bool { return k == OnInterval || k == OnSignal }

// Waits reports whether the program waits for events, intervals or signals. A program of only begin and end clauses does not.
func (p *Program) Waits() bool {
	return slices.ContainsFunc(p.Clauses, func(c *Clause) bool { return c.Kind.Recurs() || len(c.Probes) > 0 })
}

// Prints reports whether the program may print something at an event.
func (p *Program) Prints() bool {
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			if b := c.Sites[probe]; b.Prints || b.prints() {
				return true
			}
		}
	}
	return false
}

// prints reports whether one of the statements prints something.
func (b *Site) prints() (prints bool) {
	WalkStmts(b.Stmts, func(s Stmt) {
		call, ok := s.(*CallStmt)
		prints = prints || ok && call.Prints()
	})
	return prints
}

// Printed returns the probes whose events the program prints.
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

// LeftOut is a probe that matches a wildcard of a clause but is not used.
type LeftOut struct {
	Probe *event.Probe
	Why   string
}

// CgroupPaths returns the paths of cgroups that the program compares with, sorted.
func (p *Program) CgroupPaths() []string { return slices.Sorted(maps.Keys(p.Cgroups)) }

// CgroupID returns the id that a path had when the program was compiled. ok is false if the cgroup did not exist; events are then
// compared by path.
func (p *Program) CgroupID(path string) (id uint64, ok bool) {
	id = p.Cgroups[path]
	return id, id != 0
}

// KeepsCgroups reports whether the names of all cgroups should be remembered: whether the program uses cgroups for more than
// comparing ids and printing each event's cgroup at once.
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

// namesCgroup reports whether an expression uses a cgroup other than by comparing its id.
func namesCgroup(e *Expr) bool {
	switch {
	case e == nil:
		return false
	case e.Op == OpField:
		return IsCgroup(e) || e.Field.Of != nil
	}
	compares := e.Op == OpEq || e.Op == OpNe || e.Op == OpIn
	return slices.ContainsFunc(e.Args, func(a *Expr) bool { return (!compares || a.Op != OpField || a.Field.Of != nil) && namesCgroup(a) })
}

// IsCgroup reports whether the value is the id of a cgroup.
func IsCgroup(e *Expr) bool { return event.IsNumber(e.Type) && e.Type.Unit == event.Cgroup }

// ClauseKind is when a clause runs.
type ClauseKind uint8

const (
	OnEvent    ClauseKind = iota
	OnBegin               // before the probes are attached
	OnEnd                 // after the last event, before the maps are printed
	OnInterval            // every period
	OnSignal              // when SIGUSR1 comes
	OnTest                // with --test
	OnBench               // with --bench, many times
)

// String returns the name of the kind.
func (k ClauseKind) String() string {
	return [...]string{"event", "begin", "end", "interval", "self:signal:SIGUSR1", "test", "benchmark"}[k]
}

// Period is the period of an interval clause, or of readings.
type Period = time.Duration

// Param is a param of the program: a flag.
type Param struct {
	Name, Help string
	// Short is the letter of its short flag, or "".
	Short string
	// Type is the type of the literal: Uint or Int (with the unit Nanoseconds or Bytes if written so), Bool or String.
	Type    event.Type
	Default string // as written
	// Value is the default as int64, uint64, bool or string.
	Value any
	// Text of an argument of the program, as it is given.
	Text string
	// Span is where In declares it.
	Span syntax.Span
	In   syntax.Text
}

// Profiled returns the maps that profiles can be made of.
func (p *Program) Profiled() []string {
	var names []string
	for _, m := range p.Maps {
		if m.IsProfile() {
			names = append(names, m.Name)
		}
	}
	return names
}

// IsProfile reports whether a profile can be made of the map: a key holds a stack, and the values add up.
func (m *Map) IsProfile() bool {
	return slices.ContainsFunc(m.Key, func(c Column) bool { return c.Type.Kind == format.Stack }) && m.Table(nil, MapOptions{}).Adds != result.NoAddend
}

// Calls reports whether the program calls a function that has a value.
func (p *Program) Calls(fn string) (found bool) {
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			b.WalkExprs(func(e *Expr) { found = found || e.Op == OpCall && e.Fn == fn })
		}
	}
	return found
}

// Prints reports whether the call writes output.
func (s *CallStmt) Prints() bool {
	switch s.Fn {
	case "print", "printf", "time", "cat", "system":
		return true
	}
	return false
}

// The functions that send signals: to the process of the event, or to its thread alone.
const (
	ToProcess = "signal"
	ToThread  = "signal_thread"
)

// MaxStatus is the largest exit status of a process.
const MaxStatus = 255
