package exec

import (
	"container/heap"
	"math"
	"slices"

	"github.com/cilium/ebpf"

	"trace/lang/ir"
	"trace/lang/result"
)

// This file is what stores do with a map that ranks: if there is no room, the least key is dropped.

// ranks are the cells of a map in user space that was full at least once, as a heap: the least is the first.
type ranks struct {
	ranker ranker // nil: the map does not rank
	cells  []*cell
}

// ranker is what stores use of an aggregation that ranks.
type ranker interface {
	Less(a, b []uint64) bool
	Gone(state []uint64) []uint64
}

func (r *ranks) Len() int           { return len(r.cells) }
func (r *ranks) Less(i, j int) bool { return r.ranker.Less(r.cells[i].State, r.cells[j].State) }
func (r *ranks) Swap(i, j int) {
	r.cells[i], r.cells[j] = r.cells[j], r.cells[i]
	r.cells[i].rank, r.cells[j].rank = i, j
}

func (r *ranks) Push(c any) {
	c.(*cell).rank = len(r.cells)
	r.cells = append(r.cells, c.(*cell))
}

func (r *ranks) Pop() any {
	last := r.cells[len(r.cells)-1]
	r.cells = r.cells[:len(r.cells)-1]
	return last
}

// changed restores the order after a change of a cell's state.
func (r *ranks) changed(c *cell) {
	if len(r.cells) > 0 {
		heap.Fix(r, c.rank)
	}
}

// giveWay drops the least cell. It notes the state: any missing key may have had as much.
func (s *userStore) giveWay() {
	if len(s.ranks.cells) == 0 {
		for at := s.order.Front(); at != nil; at = at.Next() {
			s.ranks.Push(at.Value)
		}
		heap.Init(&s.ranks)
	}
	least := heap.Pop(&s.ranks).(*cell)
	s.gone = result.Larger(s.gone, s.ranks.ranker.Gone(least.State))
	s.drop(s.cells[least.encoded])
}

// ranked initializes a new cell with what its key may have had.
func (s *userStore) ranked(c *cell) {
	copy(c.State, s.gone)
	if len(s.ranks.cells) > 0 {
		heap.Push(&s.ranks, c)
	}
}

// rest returns what a missing key may have had, or nil if that is nothing.
func (s *userStore) rest() ([]uint64, error) { return slices.Clone(s.gone), nil }

// mergeRanked adds elements from elsewhere. A key may occur several times. rest is what keys without an element may have had there.
func (s *userStore) mergeRanked(elements []ir.Element, rest []uint64) {
	if rest != nil {
		there := map[string]bool{}
		for _, e := range elements {
			s.encode(e.Key)
			there[string(s.encoded)] = true
		}
		for key, at := range s.cells {
			if !there[key] {
				s.m.Agg.Merge(at.Value.(*cell).State, rest)
			}
		}
		heap.Init(&s.ranks)
	}
	for _, e := range elements {
		s.change(e.Key, nil, func(c *cell) { s.m.Agg.Merge(c.State, e.State) })
	}
	if rest == nil {
		return
	}
	if s.gone == nil {
		s.gone = make([]uint64, len(rest))
	}
	s.m.Agg.Merge(s.gone, rest)
}

// rest is called only for maps that take turns.
func (s *kernelStore) rest() ([]uint64, error) { return nil, nil }

// spilled returns the keys that found no room in the hash, and what a key without an element may have had.
func (s *kernelStore) spilled() (all []ir.Element, rest []uint64, err error) {
	for i := range s.Code.Sets().Count() {
		var cpus [][]byte
		if err := s.sets.Lookup(uint32(i), &cpus); err != nil {
			return nil, nil, err
		}
		elements, bound, err := s.setOf(cpus)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, elements...)
		rest = result.Larger(rest, bound)
	}
	return all, rest, nil
}

// setOf merges the values that the CPUs have of a set.
func (s *kernelStore) setOf(cpus [][]byte) (elements []ir.Element, rest []uint64, err error) {
	ranker := s.Agg.Ranker()
	all := newUserStore(s.Map, 0)
	all.limit = math.MaxInt
	for _, raw := range cpus {
		ways, full := s.Code.Sets().Ways(raw)
		here := make([]ir.Element, len(ways))
		least := 0
		for i, w := range ways {
			here[i] = ir.Element{Key: s.keyOf(w.Row), State: w.State}
			if ranker.Less(w.State, ways[least].State) {
				least = i
			}
		}
		var bound []uint64
		if full {
			bound = ranker.Gone(ways[least].State)
		}
		all.mergeRanked(here, bound)
	}
	elements, err = all.elements()
	return elements, all.gone, err
}

// clearSets drops the keys that found no room in the hash.
func (s *kernelStore) clearSets() error {
	if s.sets == nil {
		return nil
	}
	zeros := make([][]byte, ebpf.MustPossibleCPU())
	for i := range zeros {
		zeros[i] = make([]byte, s.sets.ValueSize())
	}
	for i := range s.sets.MaxEntries() {
		if err := s.sets.Put(i, zeros); err != nil {
			return err
		}
	}
	return nil
}
