package exec

import (
	"cmp"
	"context"
	"errors"

	"trace/lang/ir"
	"trace/lang/result"
	"trace/probes/event"
)

// scope is where the expressions of a clause are evaluated.
type scope struct {
	setting
	event   event.Source // nil in clauses that no event triggers
	vars    []any        // by Variable.Index; nil means absent
	machine *machine
	// stacks maps a stack to the value of the record that is its number.
	stacks map[ir.StackUse]int
	// text is the last line of a printf. Its memory is used again.
	text []byte
	// returned is the value of the return of a test.
	returned any
}

// setting is where a clause prints and when it runs.
type setting struct {
	sink Sink
	// nsecs is the time of a clause that no event triggers. It is fixed for the whole clause.
	nsecs uint64
	// ctx cuts loops short, and with them their clause.
	ctx context.Context
	// warn takes what the program reports to the user.
	warn func(warning bool, text string)
	// muted means that the clause prints nothing, but does everything else.
	muted bool
}

func (sc *scope) field(f *event.Field) any {
	v, ok := sc.event.Get(f)
	if !ok {
		return nil
	}
	return v
}

func (sc *scope) stack(use ir.StackUse) any {
	v, ok := sc.event.(valuer).Value(sc.stacks[use])
	if !ok {
		return nil
	}
	if s := sc.machine.stacks; s != nil && s.recorded != nil {
		return s.shorten(v.(uint64), use.Frames)
	}
	return v
}

// now returns the time of a clause that no event triggers, or the current time.
func (sc *scope) now() uint64 {
	if sc.event == nil {
		return sc.nsecs
	}
	return sc.machine.now()
}

// elapsed returns the time since the program began: until the event, whose nsecs is f, or until the clause.
func (sc *scope) elapsed(f *event.Field) uint64 {
	if f == nil {
		return sc.now() - sc.machine.started
	}
	return event.To[uint64](sc.field(f)) - sc.machine.started
}

// Nsecs returns the time of what the clause prints: the event's time, if its record has it. A scope is the result.Moment of its output.
func (sc *scope) Nsecs() uint64 {
	if e, ok := sc.event.(*event.Event); ok {
		if nsecs, ok := e.Get(e.Probe.Field("nsecs")); ok {
			return event.To[uint64](nsecs)
		}
	}
	return sc.now()
}

// machine runs clauses in user space.
type machine struct {
	stacks  *stackStore // nil if the program captures no stacks
	search  searching   // for the names of stacks
	symbols *symbolTables
	stores  map[*ir.Map]mapStore
	sink    Sink
	// keep, if not nil, takes the events of clauses without a body in place of the sink.
	keep func(*event.Event) error
	// clock returns the time on the clock of nsecs. started is when the program began, and ended when it ended, 0 before.
	clock          func() uint64
	share          func(from, to uint64) (share float64, ok bool) // Options.Share
	started, ended uint64
	command        int // the process of cpid
	// cleared are the maps that a clause has cleared. The end does not show them if nothing was added since.
	cleared map[*ir.Map]bool
	// zeroed are the maps that a clause has zeroed. What has no value since is 0, and not absent.
	zeroed map[*ir.Map]bool
	// since is when a map with rates was last printed or emptied. Without a value, it began to count at started.
	since map[*ir.Map]uint64
	// ctx cuts loops short, and with them their clause.
	ctx context.Context
	// warn takes what the program reports to the user.
	warn func(warning bool, text string)
	acts Acts
	// printed reports that the current event was printed, or something at it. shown counts such events up to most, unless that is 0; enough
	// means that no more are printed.
	printed     bool
	shown, most uint64
	enough      bool
	// stopped is set by exit(), and status by exit(n): the last one counts. past means that an event or a begin clause has called it: no
	// event that comes later counts.
	stopped, past bool
	status        *int
}

// now returns the time. It stands still once the program has ended.
func (m *machine) now() uint64 {
	if m.ended != 0 {
		return m.ended
	}
	return m.clock()
}

// setting returns the setting of clauses at nsecs.
func (m *machine) setting(nsecs uint64) setting { return setting{m.sink, nsecs, m.ctx, m.warn, false} }

// atEvent returns the setting of clauses at an event.
func (m *machine) atEvent() setting {
	s := m.setting(0)
	if m.enough {
		s.mute()
	}
	return s
}

// mute lets a clause print nothing.
func (s *setting) mute() { s.sink, s.warn, s.muted = mute{s.sink}, func(bool, string) {}, true }

// showed counts an event at which something was printed.
func (m *machine) showed() {
	if m.shown++; m.shown == m.most {
		m.enough = true
	}
}

// deliver prints or keeps the event of a clause without a body.
func (sc *scope) deliver(p *event.Probe) error {
	if sc.muted {
		return nil
	}
	sc.machine.printed = true
	if sc.machine.keep != nil {
		return sc.machine.keep(sc.event.(*event.Event))
	}
	return sc.sink.Event(sc, p, sc.event)
}

// block is a site compiled for user space. Only one goroutine at a time may run it.
type block struct {
	pred *evaluator // nil: always
	run  step
	// zeros are the initial values of the variables.
	zeros []any
}

// step runs a statement.
type step func(sc *scope) (flow, error)

// flow is where a clause goes on after a statement.
type flow uint8

const (
	goesOn    flow = iota
	ends           // the clause: return, and exit()
	breaks         // the innermost loop
	continues      // with the next turn of the innermost loop
)

// compileBody compiles the predicate and the body of a site.
func compileBody(b *ir.Site) (*block, error) {
	c := &bodyCompiler{}
	out := &block{run: c.steps(b.Stmts)}
	if b.Prints {
		out.run = func(sc *scope) (flow, error) { return goesOn, sc.deliver(b.Probe) }
	}
	if b.Pred != nil {
		out.pred = c.expr(b.Pred)
	}
	out.zeros = c.zeros
	return out, c.err
}

// run runs b in a scope if its predicate holds. It prepares the variables of the scope. An absent predicate does not hold.
func (m *machine) run(b *block, sc *scope) error {
	sc.machine, sc.vars, sc.returned = m, append(sc.vars[:0], b.zeros...), uint64(0)
	if b.pred != nil {
		v, err := b.pred.eval(sc)
		if v != true || err != nil {
			return err
		}
	}
	_, err := b.run(sc)
	return err
}

// ErrCut means that a clause was not run to its end, because [Options.Cut] has ended.
var ErrCut = errors.New("the run was cut short")

// cut returns ErrCut when loops are cut short.
func (sc *scope) cut() error {
	if sc.ctx != nil && sc.ctx.Err() != nil {
		return ErrCut
	}
	return nil
}

// bodyCompiler turns statements into steps. It keeps the first error.
type bodyCompiler struct {
	zeros []any
	err   error
}

func (c *bodyCompiler) expr(e *ir.Expr) *evaluator {
	v, err := newEvaluator(e)
	if c.err == nil {
		c.err = err
	}
	return v
}

// row is a list of expressions: a key, the columns of a value, or arguments. Its values are valid until it is evaluated again.
type row struct {
	evaluators []*evaluator
	values     []any
}

func (c *bodyCompiler) row(in []*ir.Expr) *row {
	r := &row{values: make([]any, len(in))}
	for _, e := range in {
		r.evaluators = append(r.evaluators, c.expr(e))
	}
	return r
}

func (r *row) eval(sc *scope) ([]any, error) {
	for i, v := range r.evaluators {
		var err error
		if r.values[i], err = v.eval(sc); err != nil {
			return nil, err
		}
	}
	return r.values, nil
}

func (c *bodyCompiler) steps(in []ir.Stmt) step {
	steps := make([]step, len(in))
	for i, s := range in {
		steps[i] = c.stmt(s)
	}
	return func(sc *scope) (flow, error) {
		for _, run := range steps {
			if to, err := run(sc); to != goesOn || err != nil {
				return to, err
			}
		}
		return goesOn, nil
	}
}

func (c *bodyCompiler) stmt(s ir.Stmt) step {
	switch s := s.(type) {
	case *ir.SetStmt:
		return c.set(s)
	case *ir.UpdateStmt:
		return c.update(s)
	case *ir.LetStmt:
		c.declare(s.V)
		value := c.expr(s.Value)
		return func(sc *scope) (flow, error) {
			v, err := value.eval(sc)
			sc.vars[s.V.Index] = ir.As(s.V.Type.Kind, v)
			return goesOn, err
		}
	case *ir.IfStmt:
		cond, then, els := c.expr(s.Cond), c.steps(s.Then), c.steps(s.Else)
		return func(sc *scope) (flow, error) {
			v, err := cond.eval(sc)
			switch {
			case err != nil:
				return goesOn, err
			case v == true:
				return then(sc)
			}
			return els(sc)
		}
	case *ir.ForStmt:
		c.declare(s.V)
		if s.Map == nil {
			return c.forRange(s)
		}
		return c.forMap(s)
	case *ir.WhileStmt:
		return c.while(s)
	case *ir.JumpStmt:
		to := breaks
		if s.Continue {
			to = continues
		}
		return func(*scope) (flow, error) { return to, nil }
	case *ir.CallStmt:
		return c.call(s)
	case *ir.ReturnStmt:
		if s.Value != nil {
			return c.returnValue(s)
		}
	}
	return func(*scope) (flow, error) { return ends, nil } // return
}

// returnValue ends a test with a value. An absent one is no success.
func (c *bodyCompiler) returnValue(s *ir.ReturnStmt) step {
	value := c.expr(s.Value)
	return func(sc *scope) (flow, error) {
		v, err := value.eval(sc)
		if sc.returned = v; v == nil {
			sc.returned = uint64(1)
		}
		return ends, err
	}
}

// declare makes room for a variable, which is 0 or "" until it is assigned.
func (c *bodyCompiler) declare(v *ir.Variable) {
	for len(c.zeros) <= v.Index {
		c.zeros = append(c.zeros, nil)
	}
	c.zeros[v.Index] = ir.ZeroOf(v.Type, v.Elems)
}

func (c *bodyCompiler) set(s *ir.SetStmt) step {
	key, value := c.row(s.Key), c.row(s.Value)
	return func(sc *scope) (flow, error) {
		k, err := key.eval(sc)
		if err != nil {
			return goesOn, err
		}
		v, err := value.eval(sc)
		if err != nil {
			return goesOn, err
		}
		store := sc.machine.stores[s.Map]
		switch {
		case !s.Adds:
			return goesOn, store.set(k, v)
		case v[0] == nil:
			return goesOn, store.update(k, 0, true)
		}
		return goesOn, store.add(k, event.To[uint64](v[0]))
	}
}

func (c *bodyCompiler) forRange(s *ir.ForStmt) step {
	lo, hi, body := c.expr(s.Lo), c.expr(s.Hi), c.steps(s.Body)
	return func(sc *scope) (flow, error) {
		from, err := lo.eval(sc)
		if err != nil {
			return goesOn, err
		}
		until, err := hi.eval(sc)
		if err != nil {
			return goesOn, err
		}
		if from == nil || until == nil {
			return goesOn, nil
		}
		for i := ir.As(s.V.Type.Kind, from); event.Compare(i, until) < 0; i = successor(i) {
			sc.vars[s.V.Index] = i
			if to, err := sc.turn(body); to != goesOn || err != nil {
				return to.after(), err
			}
		}
		return goesOn, nil
	}
}

func successor(n any) any {
	if i, ok := n.(int64); ok {
		return i + 1
	}
	return n.(uint64) + 1
}

// forMap loops over what the map holds when the loop begins, in the order of the keys or of the values.
func (c *bodyCompiler) forMap(s *ir.ForStmt) step {
	body := c.steps(s.Body)
	return func(sc *scope) (flow, error) {
		elements, err := sc.machine.stores[s.Map].elements()
		if err != nil {
			return goesOn, err
		}
		for _, e := range s.Map.Sorted(elements, cmp.Or(result.Order(s.By), result.ByKey)) {
			var key any = e.Key
			if len(e.Key) == 1 {
				key = e.Key[0]
			}
			sc.vars[s.V.Index] = []any{key, s.Map.ValueOf(e)}
			if to, err := sc.turn(body); to != goesOn || err != nil {
				return to.after(), err
			}
		}
		return goesOn, nil
	}
}

func (c *bodyCompiler) while(s *ir.WhileStmt) step {
	before, cond, body := c.steps(s.Before), c.expr(s.Cond), c.steps(s.Body)
	return func(sc *scope) (flow, error) {
		for {
			if to, err := sc.turn(before); to != goesOn || err != nil {
				return to.after(), err
			}
			if v, err := cond.eval(sc); v != true || err != nil {
				return goesOn, err
			}
			if to, err := body(sc); to == breaks || to == ends || err != nil {
				return to.after(), err
			}
		}
	}
}

// turn runs the body of a loop once, unless loops are cut short. A turn that continues goes on with the next one.
func (sc *scope) turn(body step) (flow, error) {
	if err := sc.cut(); err != nil {
		return ends, err
	}
	to, err := body(sc)
	if to == continues {
		to = goesOn
	}
	return to, err
}

// after returns where a clause goes on after a loop that a statement of its body has ended.
func (f flow) after() flow {
	if f == breaks {
		return goesOn
	}
	return f
}

// find returns the element of a key, without the key.
func (m *machine) find(info *ir.Map, key []any) (found ir.Element, ok bool, err error) {
	if info.Agg != nil {
		found.State, ok, err = m.stores[info].state(key)
	} else {
		found.Value, ok, err = m.stores[info].lookup(key)
	}
	return found, ok, err
}

// lookup returns the value of a key as e reads it: zero if there is no such key.
func (m *machine) lookup(e *ir.Expr, key []any) (any, error) {
	found, ok, err := m.find(e.Map, key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return ir.ZeroOf(e.Type, e.Elems), nil
	}
	return ir.As(e.Type.Kind, e.Map.ValueOf(found)), nil
}

func (m *machine) hasKey(info *ir.Map, key []any) (any, error) {
	_, ok, err := m.find(info, key)
	return ok, err
}

func (m *machine) len(info *ir.Map) (any, error) {
	if s, ok := m.stores[info].(*userStore); ok { // a userStore need not copy its elements for that
		return uint64(len(s.cells)), nil
	}
	elements, err := m.stores[info].elements()
	return uint64(len(elements)), err
}
