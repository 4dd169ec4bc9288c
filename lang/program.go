package lang

import (
	"fmt"

	"trace/lang/syntax"
	"trace/probes"
)

// Program is a checked program, ready to run on events.
type Program struct {
	clauses []*Clause
}

// Clause is one filter over the events of some probes. An event that passes it is printed.
type Clause struct {
	// Probes that the clause attaches, in the order of the catalog.
	Probes []*probes.Probe
	// Inferred says that a bare expression did not name the probes: its fields chose them.
	Inferred bool

	named   map[*probes.Probe]bool // by name, not by a pattern
	text    string
	filters map[*probes.Probe]*filter
}

// Compile parses src and checks it against the probes of the catalog. Errors are a [syntax.ErrorList] that names src by name.
func Compile(name, src string, cat []*probes.Probe) (*Program, error) {
	tree, err := syntax.Parse(name, src)
	if err != nil {
		return nil, err
	}
	r := &resolver{source: tree.Source, catalog: cat}
	prog := &Program{}
	if tree.Expr != nil {
		prog.clauses = append(prog.clauses, r.bare(tree.Expr))
	}
	for _, c := range tree.Clauses {
		prog.clauses = append(prog.clauses, r.clause(c))
	}
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	return prog, nil
}

// Clauses in the order of the program.
func (p *Program) Clauses() []*Clause { return p.clauses }

// Requests names what has to be captured: each probe once, with the fields that the program reads. That is every field,
// as a program prints whole events. A probe that no clause calls by its name may be left out where there is none.
func (p *Program) Requests() []probes.Request {
	var reqs []probes.Request
	index := map[*probes.Probe]int{}
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			i, seen := index[probe]
			if !seen {
				i = len(reqs)
				index[probe] = i
				reqs = append(reqs, probes.Request{Probe: probe, Fields: probe.Fields, IfAvailable: true})
			}
			if c.named[probe] {
				reqs[i].IfAvailable = false
			}
		}
	}
	return reqs
}

// Eval calls emit for each clause that e passes, in order. One goroutine at a time may call it.
func (p *Program) Eval(e *probes.Event, emit func(*Clause)) error {
	for _, c := range p.clauses {
		ok, err := c.Match(e)
		if err != nil {
			return err
		}
		if ok {
			emit(c)
		}
	}
	return nil
}

// Match tells whether e is an event of the clause's probes and passes its predicate. One goroutine at a time may call it.
func (c *Clause) Match(e *probes.Event) (bool, error) {
	return c.match(e.Probe, e)
}

func (c *Clause) match(p *probes.Probe, e event) (bool, error) {
	f, ok := c.filters[p]
	if !ok {
		return false, nil
	}
	pass, err := f.pass(e)
	if err != nil {
		return false, fmt.Errorf("%s: %s: %w", p, c.text, err)
	}
	return pass, nil
}

// String returns the clause as text.
func (c *Clause) String() string { return c.text }
