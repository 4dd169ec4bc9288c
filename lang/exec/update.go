package exec

import (
	"trace/lang/ir"
	"trace/probes/event"
)

// This file adds values to aggregations.

func (c *bodyCompiler) update(s *ir.UpdateStmt) step {
	key, add := c.row(s.Key), c.adder(s)
	arg := &evaluator{simple: func(*scope) any { return uint64(1) }} // count() and rate() count
	if s.Arg != nil {
		arg = c.expr(s.Arg)
	}
	return func(sc *scope) (flow, error) {
		k, err := key.eval(sc)
		if err != nil {
			return goesOn, err
		}
		x, err := arg.eval(sc)
		if err != nil {
			return goesOn, err
		}
		store := sc.machine.stores[s.Map]
		if x == nil {
			return goesOn, store.update(k, 0, true)
		}
		return goesOn, add(sc, store, k, event.To[uint64](x))
	}
}

// adder adds a value to the state of a key.
type adder func(sc *scope, store mapStore, key []any, x uint64) error

// adder returns how a statement adds values.
func (c *bodyCompiler) adder(s *ir.UpdateStmt) adder {
	plain := func(_ *scope, store mapStore, key []any, x uint64) error { return store.update(key, x, false) }
	switch {
	case s.Thread != nil:
		return addFrom(c.row([]*ir.Expr{s.At, s.Thread}), plain)
	case s.At != nil:
		return addAt(c.expr(s.At))
	}
	return plain
}

// addFrom adds values with the time and the thread of their event. Without both, a value is added as plain does.
func addFrom(origin *row, plain adder) adder {
	return func(sc *scope, store mapStore, key []any, x uint64) error {
		from, err := origin.eval(sc)
		switch {
		case err != nil:
			return err
		case from[0] == nil || from[1] == nil:
			return plain(sc, store, key, x)
		}
		store.(*userStore).updateFrom(key, event.To[uint64](from[0]), uint32(event.To[uint64](from[1])), x)
		return nil
	}
}

// addAt adds values with their times. A value without a time is counted as absent.
func addAt(at *evaluator) adder {
	return func(sc *scope, store mapStore, key []any, x uint64) error {
		nsecs, err := at.eval(sc)
		switch {
		case err != nil:
			return err
		case nsecs == nil:
			return store.update(key, 0, true)
		}
		store.(*userStore).updateAt(key, uint64(sc.sink.Clock(nsecs).UnixNano()), x)
		return nil
	}
}
