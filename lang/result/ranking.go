package result

import (
	"fmt"
	"maps"
	"slices"
)

// Ranking describes the rows that a table lacks, because it has only the rows with the largest values of each group. Rows of a
// group share the first Own columns of the key.
type Ranking struct {
	Own int
	// Top is the most rows in a group.
	Top int64
	// Rest are bounds by group (see Group): a key without a row has at most the result of this state. The bound of "" is for all
	// groups without one. Without either, such a key has nothing.
	Rest map[string][]uint64
}

// Bounder is the [Merger] of a table with a ranking.
type Bounder interface {
	Merger
	// Gone returns what a key may have had if it was dropped with this state. For two such states, the larger words hold for both.
	Gone(state []uint64) []uint64
}

// Group returns the name of a key's group.
func (k *Ranking) Group(key []any) string { return fmt.Sprintf("%q", key[:k.Own]) }

// bound returns the bound for keys without a row; nil means they have nothing.
func (k *Ranking) bound(group string) []uint64 {
	if state, ok := k.Rest[group]; ok {
		return state
	}
	return k.Rest[""]
}

// Larger returns the larger words of two bounds. One of them may be nil.
func Larger(a, b []uint64) []uint64 {
	out := slices.Clone(b)
	for i := range a {
		if i == len(out) {
			out = append(out, 0)
		}
		out[i] = max(out[i], a[i])
	}
	return out
}

// Cut keeps the rows with the largest values in each group, and notes the most that the others had.
func (t *Table) Cut() {
	k := t.Ranking
	if k == nil {
		return
	}
	t.Sort(ByValue, 0)
	slices.Reverse(t.Rows)
	rest, seen := maps.Clone(k.Rest), map[string]int64{}
	if rest == nil {
		rest = map[string][]uint64{}
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool {
		group := k.Group(r.Key)
		if seen[group]++; seen[group] == k.Top+1 { // the first dropped row is the largest of them
			rest[group] = Larger(k.bound(group), t.Merger.(Bounder).Gone(r.State))
		}
		return seen[group] > k.Top
	})
	t.Ranking = &Ranking{k.Own, k.Top, rest}
}

// group puts the rows of a group together. The groups have the order of their last rows.
func (t *Table) group() {
	last := map[string]int{}
	for i, r := range t.Rows {
		last[t.Ranking.Group(r.Key)] = i
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return last[t.Ranking.Group(a.Key)] - last[t.Ranking.Group(b.Key)] })
}

// mergeBounds adds to each row of a merged table what the tables without that row may have had. It adds up the bounds for keys
// without any row.
func (t *Table) mergeBounds(tables []Table) {
	if t.Ranking == nil {
		return
	}
	rest := map[string][]uint64{}
	for _, one := range tables {
		there := map[string]bool{}
		for _, r := range one.Rows {
			there[keyName(r.Key)] = true
		}
		for _, r := range t.Rows {
			if bound := one.Ranking.bound(t.Ranking.Group(r.Key)); bound != nil && !there[keyName(r.Key)] {
				t.Merger.Merge(r.State, bound)
			}
		}
		for group := range one.Ranking.Rest {
			rest[group] = nil
		}
	}
	for group := range rest {
		for _, one := range tables {
			if bound := one.Ranking.bound(group); bound != nil {
				if rest[group] == nil {
					rest[group] = make([]uint64, len(bound))
				}
				t.Merger.Merge(rest[group], bound)
			}
		}
	}
	t.Ranking = &Ranking{t.Ranking.Own, t.Ranking.Top, rest}
}
