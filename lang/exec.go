package lang

import (
	"cmp"
	"context"

	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// scope is what expressions of a clause are evaluated in.
type scope struct {
	event   source // nil in begin, end and interval clauses
	vars    []any  // by variable.index; nil is absent
	machine *machine
	// stacks tells which values of the record are numbers of stacks.
	stacks map[stackUse]int
}

func (sc *scope) field(f *event.Field) any {
	v, ok := sc.event.Get(f)
	if !ok {
		return nil
	}
	return v
}

func (sc *scope) stack(use stackUse) any {
	v, ok := sc.event.(record).Value(sc.stacks[use])
	if !ok {
		return nil
	}
	if s := sc.machine.stacks; s != nil && s.recorded != nil {
		return s.shorten(v.(uint64), use.frames)
	}
	return v
}

// nsecs returns the time of the event, or the current one where f is nil, as there is no event.
func (sc *scope) nsecs(f *event.Field) uint64 {
	if f == nil {
		return sc.machine.now()
	}
	return event.To[uint64](sc.field(f))
}

// machine runs clauses in user space.
type machine struct {
	stacks  *stackStore // nil if the program captures none
	stores  map[*mapInfo]mapStore
	printer *output.Printer
	// keep takes the events of clauses without a block in the place of the printer, if it is not nil.
	keep func(*event.Event) error
	// now returns the time as nsecs tells it; started is when the program began.
	now     func() uint64
	started uint64
	command int // the process that cpid stands for
	// cleared are the maps that a clause has cleared: they do not show at the end if nothing was added since.
	cleared map[*mapInfo]bool
	// since is when a map with rates began to count: when it was last printed or emptied. Without an entry it is started.
	since map[*mapInfo]uint64
	// ctx ends loops, and with one its clause.
	ctx context.Context
	// printed says that the event at hand was printed, or something at it.
	printed bool
	// stopped is set by exit(), and status by exit(n): the last one holds.
	stopped bool
	status  *int
}

// deliver does what a clause without a block does with its events.
func (m *machine) deliver(p *event.Probe, e source) error {
	m.printed = true
	if m.keep != nil {
		return m.keep(e.(*event.Event))
	}
	return m.printer.Event(p, e)
}

// block is a body compiled for user space. One goroutine at a time may run it.
type block struct {
	pred *evaluator // nil: always
	run  step
	// zeros are the variables as the body begins.
	zeros []any
}

// step runs a statement. It returns true to end the clause.
type step func(sc *scope) (end bool, err error)

// compileBody compiles all expressions of a body once.
func compileBody(b *body) (*block, error) {
	c := &bodyCompiler{}
	out := &block{run: c.steps(b.stmts)}
	if b.prints {
		out.run = func(sc *scope) (bool, error) { return false, sc.machine.deliver(b.probe, sc.event) }
	}
	if b.pred != nil {
		out.pred = c.expr(b.pred)
	}
	out.zeros = c.zeros
	return out, c.err
}

// run runs b in a scope, whose variables it prepares, if its predicate holds; absent is no.
func (m *machine) run(b *block, sc *scope) error {
	sc.machine, sc.vars = m, append(sc.vars[:0], b.zeros...)
	if b.pred != nil {
		v, err := b.pred.eval(sc)
		if v != true || err != nil {
			return err
		}
	}
	_, err := b.run(sc)
	return err
}

// bodyCompiler makes steps of statements. It keeps the first error.
type bodyCompiler struct {
	zeros []any
	err   error
}

func (c *bodyCompiler) expr(e *expr) *evaluator {
	v, err := newEvaluator(e)
	if c.err == nil {
		c.err = err
	}
	return v
}

// row is a list of expressions: a key, the columns of a value, arguments. Its values are valid until it is evaluated again.
type row struct {
	evaluators []*evaluator
	values     []any
}

func (c *bodyCompiler) row(in []*expr) *row {
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

func (c *bodyCompiler) steps(in []stmt) step {
	steps := make([]step, len(in))
	for i, s := range in {
		steps[i] = c.stmt(s)
	}
	return func(sc *scope) (bool, error) {
		for _, run := range steps {
			if end, err := run(sc); end || err != nil {
				return end, err
			}
		}
		return false, nil
	}
}

func (c *bodyCompiler) stmt(s stmt) step {
	switch s := s.(type) {
	case *setStmt:
		return c.set(s)
	case *updateStmt:
		return c.update(s)
	case *letStmt:
		c.declare(s.v)
		value := c.expr(s.value)
		return func(sc *scope) (bool, error) {
			v, err := value.eval(sc)
			sc.vars[s.v.index] = as(s.v.typ.Kind, v)
			return false, err
		}
	case *ifStmt:
		cond, then, els := c.expr(s.cond), c.steps(s.then), c.steps(s.els)
		return func(sc *scope) (bool, error) {
			v, err := cond.eval(sc)
			switch {
			case err != nil:
				return false, err
			case v == true:
				return then(sc)
			}
			return els(sc)
		}
	case *forStmt:
		c.declare(s.v)
		if s.m == nil {
			return c.forRange(s)
		}
		return c.forMap(s)
	case *callStmt:
		return c.call(s)
	}
	return func(*scope) (bool, error) { return true, nil } // return
}

// declare makes room for a variable, which is 0 or "" until it is assigned.
func (c *bodyCompiler) declare(v *variable) {
	for len(c.zeros) <= v.index {
		c.zeros = append(c.zeros, nil)
	}
	c.zeros[v.index] = zeroOf(v.typ, v.elems)
}

func (c *bodyCompiler) set(s *setStmt) step {
	key, value := c.row(s.key), c.row(s.value)
	return func(sc *scope) (bool, error) {
		k, err := key.eval(sc)
		if err != nil {
			return false, err
		}
		v, err := value.eval(sc)
		if err != nil {
			return false, err
		}
		store := sc.machine.stores[s.m]
		switch {
		case s.op == "=":
			return false, store.set(k, v)
		case v[0] == nil:
			return false, store.update(k, 0, true)
		}
		return false, store.add(k, event.To[uint64](v[0]))
	}
}

func (c *bodyCompiler) update(s *updateStmt) step {
	key := c.row(s.key)
	arg := &evaluator{simple: func(*scope) any { return uint64(1) }} // count() and rate() count
	if s.arg != nil {
		arg = c.expr(s.arg)
	}
	return func(sc *scope) (bool, error) {
		k, err := key.eval(sc)
		if err != nil {
			return false, err
		}
		x, err := arg.eval(sc)
		if err != nil {
			return false, err
		}
		store := sc.machine.stores[s.m]
		if x == nil {
			return false, store.update(k, 0, true)
		}
		return false, store.update(k, event.To[uint64](x), false)
	}
}

func (c *bodyCompiler) forRange(s *forStmt) step {
	lo, hi, body := c.expr(s.lo), c.expr(s.hi), c.steps(s.body)
	return func(sc *scope) (bool, error) {
		from, err := lo.eval(sc)
		if err != nil {
			return false, err
		}
		until, err := hi.eval(sc)
		if err != nil {
			return false, err
		}
		if from == nil || until == nil {
			return false, nil
		}
		for i := as(s.v.typ.Kind, from); event.Compare(i, until) < 0; i = successor(i) {
			if end, err := sc.iterate(s.v, i, body); end || err != nil {
				return end, err
			}
		}
		return false, nil
	}
}

func successor(n any) any {
	if i, ok := n.(int64); ok {
		return i + 1
	}
	return n.(uint64) + 1
}

// forMap runs over what the map holds as the loop begins, in the order of the keys or of the values.
func (c *bodyCompiler) forMap(s *forStmt) step {
	body := c.steps(s.body)
	return func(sc *scope) (bool, error) {
		entries, err := sc.machine.stores[s.m].entries()
		if err != nil {
			return false, err
		}
		for _, e := range s.m.sorted(entries, cmp.Or(result.Order(s.by), result.ByKey)) {
			var key any = e.key
			if len(e.key) == 1 {
				key = e.key[0]
			}
			if end, err := sc.iterate(s.v, []any{key, s.m.valueOf(e)}, body); end || err != nil {
				return end, err
			}
		}
		return false, nil
	}
}

// iterate runs the body of a loop once, unless the program is to end.
func (sc *scope) iterate(v *variable, value any, body step) (end bool, err error) {
	if sc.machine.ctx.Err() != nil {
		return true, nil
	}
	sc.vars[v.index] = value
	return body(sc)
}

// valueOf returns the value of an entry of m as one value: a tuple, or the number of an aggregation, 0 if it has none.
func (m *mapInfo) valueOf(e entry) any {
	switch {
	case m.agg != nil:
		if n := m.number(e.state); n != nil {
			return n
		}
		return m.show(mapOptions{}).Number(0)
	case m.isTuple:
		return e.value
	}
	return e.value[0]
}

// find returns the entry of a key, but for the key.
func (m *machine) find(info *mapInfo, key []any) (found entry, ok bool, err error) {
	if info.agg != nil {
		found.state, ok, err = m.stores[info].state(key)
	} else {
		found.value, ok, err = m.stores[info].lookup(key)
	}
	return found, ok, err
}

// lookup returns the value of a key as e reads it: zero if there is none.
func (m *machine) lookup(e *expr, key []any) (any, error) {
	found, ok, err := m.find(e.m, key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return zeroOf(e.typ, e.elems), nil
	}
	return as(e.typ.Kind, e.m.valueOf(found)), nil
}

func (m *machine) hasKey(info *mapInfo, key []any) (any, error) {
	_, ok, err := m.find(info, key)
	return ok, err
}

func (m *machine) len(info *mapInfo) (any, error) {
	if s, ok := m.stores[info].(*userStore); ok { // which need not copy its entries for that
		return uint64(len(s.cells)), nil
	}
	entries, err := m.stores[info].entries()
	return uint64(len(entries)), err
}

func (c *bodyCompiler) call(s *callStmt) step {
	run := c.callOf(s)
	if !s.prints() {
		return run
	}
	return func(sc *scope) (bool, error) {
		sc.machine.printed = true
		return run(sc)
	}
}

// prints tells whether the call is one for output.
func (s *callStmt) prints() bool { return s.fn == "print" || s.fn == "printf" || s.fn == "time" }

func (c *bodyCompiler) callOf(s *callStmt) step {
	key, args := c.row(s.key), c.row(s.args)
	switch {
	case s.fn == "exit":
		return func(sc *scope) (bool, error) {
			values, err := args.eval(sc)
			sc.machine.exit(values)
			return true, err
		}
	case s.fn == "clear":
		return func(sc *scope) (bool, error) { return false, sc.machine.clear(s.m) }
	case s.fn == "zero":
		return func(sc *scope) (bool, error) { return false, sc.machine.empty(s.m, sc.machine.now(), mapStore.zero) }
	case s.fn == "time":
		return func(sc *scope) (bool, error) {
			p := sc.machine.printer
			return false, p.Time(appendTime(nil, s.format, p.Clock(sc.machine.now())))
		}
	case s.fn == "print" && s.m != nil && s.key == nil:
		o := mapOptions{top: s.top, div: s.div, by: result.Order(s.by)}
		return func(sc *scope) (bool, error) { return false, sc.machine.printMap(s.m, o) }
	}
	return func(sc *scope) (bool, error) {
		k, err := key.eval(sc)
		if err != nil {
			return false, err
		}
		values, err := args.eval(sc)
		if err != nil {
			return false, err
		}
		switch {
		case s.fn == "delete":
			return false, sc.machine.stores[s.m].remove(k)
		case s.fn == "printf":
			return false, sc.machine.printer.Text(s.format.append(nil, sc.machine.printfArgs(s.args, values)))
		case s.m != nil:
			return false, sc.machine.printElement(s.m, k)
		}
		e := s.args[0]
		return false, sc.machine.printer.Value(e.typ, e.elems, sc.machine.named(e.typ, e.elems, values[0]), own(e))
	}
}
