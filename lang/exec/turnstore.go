package exec

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"trace/lang/ir"
	"trace/probes/event"
)

// turns are the maps in the kernel that are emptied while events are counted in them. Each exists twice: BPF programs use one of
// the two, and the contents of the other one are moved to user space.
//
// All maps switch at once, and at most once in a moment: when the clauses of an interval, or a display, first touch one of them.
// Later events belong to the time after that moment. So each event is seen exactly once, whatever is printed, cleared or deleted.
type turns struct {
	word  *ebpf.Map // codegen.TurnName; nil: no reachable code changes such a map
	fence *fence
	all   []*turnStore
	turn  uint64
	// settled reports that the maps have switched in this moment.
	settled bool
}

// settle switches the BPF programs to the other maps, and moves the contents of the previous ones to user space.
func (t *turns) settle() error {
	if t.settled || t.word == nil {
		return nil
	}
	before := t.turn
	t.turn ^= 1
	if err := t.word.Put(uint32(0), t.turn); err != nil {
		return fmt.Errorf("turn of the maps: %w", err)
	}
	if err := t.fence.wait(); err != nil {
		return err
	}
	for _, s := range t.all {
		if err := s.drain(s.halves[before]); err != nil {
			return fmt.Errorf("%s: %w", s.m.Name, err)
		}
	}
	t.settled = true
	return nil
}

// plant moves what begin clauses have set to the kernel, so that it takes room there.
func (t *turns) plant() error {
	if t.word == nil {
		return nil
	}
	for _, s := range t.all {
		elements, err := s.userStore.elements()
		if err != nil {
			return err
		}
		for _, e := range elements {
			if err := s.halves[t.turn].set(e.Key, e.Value); err != nil {
				return fmt.Errorf("%s: %w", s.m.Name, err)
			}
		}
		if err := s.userStore.clear(); err != nil {
			return err
		}
	}
	return nil
}

// turnStore is one of these maps. Its userStore holds what was moved to user space.
type turnStore struct {
	*userStore
	turns  *turns
	halves [2]*kernelStore
}

// drain moves the contents of a map that no BPF program uses.
func (s *turnStore) drain(from *kernelStore) error {
	elements, err := from.elements()
	if err != nil || len(elements) == 0 {
		return err
	}
	if from.sets != nil {
		spilled, rest, err := from.spilled()
		if err != nil {
			return err
		}
		s.mergeRanked(append(elements, spilled...), rest)
		return errors.Join(from.clear(), from.clearSets())
	}
	for _, e := range elements {
		s.merge(e, from.Grows)
	}
	return from.clear()
}

// merge adds what BPF programs have added, or sets what they have set. Keys without room are counted with the updates that they
// had.
func (s *turnStore) merge(e ir.Element, grows bool) {
	if s.m.Agg == nil {
		if grows {
			_ = s.userStore.add(e.Key, event.To[uint64](e.Value[0]))
		} else {
			s.change(e.Key, e.Value, func(c *cell) { c.Value = e.Value })
		}
		return
	}
	full := s.counts.Full
	s.change(e.Key, nil, func(c *cell) { s.m.Agg.Merge(c.State, e.State) })
	if s.counts.Full > full {
		s.counts.Full = full + s.m.Agg.Updates(e.State)
	}
}

func (s *turnStore) set(key, value []any) error {
	if err := s.turns.settle(); err != nil {
		return err
	}
	return s.userStore.set(key, value)
}

func (s *turnStore) add(key []any, delta uint64) error {
	if err := s.turns.settle(); err != nil {
		return err
	}
	return s.userStore.add(key, delta)
}

func (s *turnStore) remove(key []any) error {
	if err := s.turns.settle(); err != nil {
		return err
	}
	return s.userStore.remove(key)
}

func (s *turnStore) lookup(key []any) ([]any, bool, error) {
	if err := s.turns.settle(); err != nil {
		return nil, false, err
	}
	return s.userStore.lookup(key)
}

func (s *turnStore) state(key []any) ([]uint64, bool, error) {
	if err := s.turns.settle(); err != nil {
		return nil, false, err
	}
	return s.userStore.state(key)
}

func (s *turnStore) elements() ([]ir.Element, error) {
	if err := s.turns.settle(); err != nil {
		return nil, err
	}
	return s.userStore.elements()
}

func (s *turnStore) rest() ([]uint64, error) {
	if err := s.turns.settle(); err != nil {
		return nil, err
	}
	return s.userStore.rest()
}

func (s *turnStore) clear() error {
	if err := s.turns.settle(); err != nil {
		return err
	}
	return s.userStore.clear()
}

func (s *turnStore) zero() error {
	if err := s.turns.settle(); err != nil {
		return err
	}
	return s.userStore.zero()
}
