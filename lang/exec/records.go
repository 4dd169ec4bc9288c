package exec

import (
	"fmt"
	"slices"

	"trace/lang/ir"
	"trace/probes/event"
)

// Event runs what is left of a site for a record, or for all records of an event with the last one. It reports whether anything was printed.
func (r *Run) Event(e *event.Event) (printed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.parts[e.Layout().ID]
	if s.shadow {
		return false, r.follow(s, e)
	}
	if s.recorded {
		return false, r.record(e)
	}
	if part := r.plan.Parts[e.Layout().ID]; part.Piece != nil {
		return r.left(r.pieces.add(part, e)...)
	}
	return r.left(e)
}

// left runs what is left of sites for records.
func (r *Run) left(records ...*event.Event) (printed bool, err error) {
	r.machine.printed = false
	for _, e := range records {
		s := r.parts[e.Layout().ID]
		if r.machine.past || err != nil {
			break
		}
		var passed bool
		if passed, err = s.run(r.machine, e, s.stacks); !passed && err == nil {
			r.rejected[e.Probe]++
		}
	}
	if r.machine.printed {
		r.machine.showed()
	}
	return r.machine.printed, err
}

// State is what the run wants of the events that come.
type State struct {
	// Past means that it wants none: they come after exit().
	Past bool
	// Enough means that it prints no more of them, but counts them.
	Enough bool
}

// State returns what the run wants of the events that come.
func (r *Run) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return State{r.machine.past, r.machine.enough}
}

// Mute prints nothing more at events: nobody takes it.
func (r *Run) Mute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.machines() {
		m.enough = true
	}
}

// Busy reports whether a clause runs, or maps are printed. clause is what stands before the body, if no event triggers it.
func (r *Run) Busy() (clause string, busy bool) {
	if c := r.busy.Load(); c != nil {
		return c.Heading(), true
	}
	if r.mu.TryLock() {
		r.mu.Unlock()
		return "", false
	}
	return "", true
}

// Cut returns the clauses that were cut short, without those at events whose error [Run.Event] has returned.
func (r *Run) Cut() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.cut)
}

// Replay runs the program on an event of a recording. It calls printed after each clause that printed something.
func (r *Run) Replay(e *event.Event, printed func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := false
	defer func() {
		if !wanted {
			r.rejected[e.Probe]++
		}
	}()
	for _, s := range r.sites[e.Probe] {
		if r.machine.stopped {
			break
		}
		r.machine.printed = false
		passed, err := s.run(r.machine, e, r.plan.Recorded)
		if err != nil {
			return r.unlessCut(e.Probe.String(), err)
		}
		wanted = wanted || passed
		if !r.machine.printed {
			continue
		}
		r.machine.showed()
		if err := printed(); err != nil {
			return err
		}
	}
	return nil
}

// follow runs the whole program on an event in the second machine.
func (r *Run) follow(part *siteRun, e *event.Event) error {
	for _, s := range r.sites[e.Probe] {
		if r.shadow.past {
			break
		}
		r.shadow.printed = false
		if _, err := s.run(r.shadow, e, part.stacks); err != nil {
			return fmt.Errorf("second run: %w", err)
		}
		if r.shadow.printed {
			r.shadow.showed()
		}
	}
	return nil
}

func (s *siteRun) run(m *machine, e *event.Event, stacks map[ir.StackUse]int) (bool, error) {
	sc := &s.scope
	sc.setting, sc.event, sc.machine, sc.stacks = m.atEvent(), e, m, stacks
	if s.pred != nil {
		v, err := s.pred.eval(sc)
		if err != nil || v != true {
			return false, err
		}
	}
	return true, m.run(s.block, sc)
}
