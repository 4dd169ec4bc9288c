package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"trace/lang/agg"
	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
)

// rankedMap counts by a number, with room for some keys.
func rankedMap(maxKeys uint32, top int64) *ir.Map {
	number := ir.Column{Type: event.Type{Kind: event.Uint, Size: 8}}
	return &ir.Map{
		Name: "@", Agg: &agg.Agg{Func: agg.TopK{N: top}}, Key: []ir.Column{number}, Names: []string{"x"}, Value: []ir.Column{number}, MaxKeys: maxKeys,
	}
}

// within checks that the bounds of a store hold, also for missing keys. It returns how many elements are not exact.
func within(t *testing.T, s mapStore, truth map[uint64]uint64) (inexact int) {
	t.Helper()
	elements, err := s.elements()
	if err != nil {
		t.Fatal(err)
	}
	rest, err := s.rest()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for _, e := range elements {
		x := event.To[uint64](e.Key[0])
		seen[x] = true
		if most, least := e.State[0], e.State[0]-e.State[1]; truth[x] > most || truth[x] < least {
			t.Errorf("%d came %d times: not between %d and %d", x, truth[x], least, most)
		}
		if e.State[1] > 0 {
			inexact++
		}
	}
	for x, n := range truth {
		if !seen[x] && (rest == nil || n > rest[0]) {
			t.Errorf("%d came %d times and has no entry: at most %v", x, n, rest)
		}
	}
	return inexact
}

// skewed makes numbers: small ones are most frequent.
func skewed(r *rand.Rand) uint64 { return uint64(r.ExpFloat64() * 20) }

// Keys without room are dropped within the bounds, and merged maps are within the sum of their bounds. With room for all, the
// result is exact.
func TestRankedStore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		m := rankedMap(1+r.Uint32N(40), 5)
		stores := []*userStore{newUserStore(m, 0), newUserStore(m, 0)}
		truth, total := map[uint64]uint64{}, uint64(0)
		for range 3000 {
			x, w := skewed(r), uint64(r.IntN(3))
			truth[x] += w
			total += w
			if err := stores[r.IntN(2)].update([]any{x}, w, false); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range stores {
			if s.gone != nil && s.gone[0] > total/uint64(s.limit) {
				t.Errorf("room for %d, %d came, and what is gone has up to %d", s.limit, total, s.gone[0])
			}
		}
		elements, err := stores[1].elements()
		if err != nil {
			t.Fatal(err)
		}
		stores[0].mergeRanked(elements, stores[1].gone)
		inexact := within(t, stores[0], truth)
		if exact := int(m.MaxKeys) >= len(truth); exact && inexact > 0 || !exact && inexact == 0 {
			t.Errorf("room for %d, %d came: %d are not exact", m.MaxKeys, len(truth), inexact)
		}
	}
}

// Clear also drops what is known of dropped keys.
func TestRankedClear(t *testing.T) {
	s := newUserStore(rankedMap(2, 5), 0)
	for range 2 {
		for x := range uint64(5) {
			if err := s.update([]any{x}, 1, false); err != nil {
				t.Fatal(err)
			}
		}
		if within(t, s, map[uint64]uint64{0: 1, 1: 1, 2: 1, 3: 1, 4: 1}) == 0 {
			t.Error("all are exact, and there was no room")
		}
		if err := s.clear(); err != nil {
			t.Fatal(err)
		}
	}
}

// Both engines bound keys without room, also if the map is read and emptied meanwhile, and if one event drops what another adds.
func TestRankedBounds(t *testing.T) {
	k, all := diffSetup(t)
	for _, test := range []struct {
		room    string
		inexact bool
	}{{"8", true}, {"100", true}, {"4000", false}} {
		for _, between := range []string{"", "interval:1s { print(@) }", "interval:1s { print(@); clear(@); clear(@c) }"} {
			for _, alone := range []bool{false, true} {
				text := fmt.Sprintf("let @ = hash(%s); let @c = hash(10000)\ndiff:event { @ = topk(u64 & (u64 >> 12) & 0xfff, 4096, u8 & 3); @c[u64 & (u64 >> 12) & 0xfff] = sum(u8 & 3) }\n%s", test.room, between)
				c := randomCase(3, 1, all)
				c.prog, c.text, c.alone, c.compare, c.cpus = nil, text, alone, false, 2
				r := rand.New(rand.NewPCG(4, 5))
				for range 4000 {
					c.events = append(c.events, randomEvent(r, all[0]))
				}
				inexact := c.bounds(t, k)
				for side, n := range inexact {
					if (n > 0) != test.inexact {
						t.Errorf("%s in %s: %d are not exact", text, side, n)
					}
				}
			}
		}
	}
}

// bounds runs the program on both sides, and compares @ with @c on each.
func (c *diffCase) bounds(t *testing.T, k *diffKernel) map[string]int {
	t.Helper()
	prog, err := compile("ranked", c.text, c.probes, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inexact := map[string]int{}
	for _, name := range []string{"kernel", "user space"} {
		options := c.options()
		options.NoKernel = name != "kernel"
		side := &diffSide{}
		if side.plan, err = plan.New(prog, options); err != nil {
			t.Fatal(err)
		}
		if err := side.start(output.Text); err != nil {
			t.Fatal(err)
		}
		defer side.Close()
		side.feed = side.feedUser
		if name == "kernel" {
			if f := c.fallback(side.plan); f != nil {
				t.Fatal(f.detail)
			}
			loaded, err := k.load(side.plan, side.Run)
			if err != nil {
				t.Fatal(err)
			}
			defer loaded.close()
			side.feed = func(events []rawEvent) error {
				for some := range slices.Chunk(events, diffEvents) {
					if err := side.feedKernel(k, loaded, some); err != nil {
						return err
					}
				}
				return nil
			}
		}
		if err := side.pass(c.events); err != nil {
			t.Fatal(err)
		}
		truth := map[uint64]uint64{}
		unlock := side.lock()
		counted, err := side.machine.stores[prog.Maps[1]].elements()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range counted {
			truth[event.To[uint64](e.Key[0])] = e.State[0]
		}
		if len(truth) < 200 {
			t.Errorf("only %d keys came", len(truth))
		}
		inexact[name] = within(t, side.machine.stores[prog.Maps[0]], truth)
		unlock()
		losses, err := side.MapLosses()
		for _, l := range losses {
			if l.Lost() > 0 {
				t.Errorf("%s: lost %+v", name, l)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return inexact
}

// A table has the first of each group, and the most that the others can have. Merged tables of several hosts stay within their
// bounds.
func TestRankedTable(t *testing.T) {
	m := rankedMap(100, 2)
	m.Key, m.Names, m.Own = append(m.Key, m.Key[0]), []string{"group", "x"}, 1
	entry := func(group, x, most, err uint64) ir.Element {
		return ir.Element{Key: []any{group, x}, State: []uint64{most, err}}
	}
	a := m.Table([]ir.Element{entry(1, 1, 10, 0), entry(1, 2, 7, 2), entry(1, 3, 5, 0), entry(2, 1, 20, 0), entry(2, 2, 1, 0)}, ir.MapOptions{Rest: []uint64{1, 1}})
	checkRanking(t, a, "[[1 2] 7 2] [[1 1] 10 0] [[2 2] 1 0] [[2 1] 20 0]")
	b := m.Table([]ir.Element{entry(1, 3, 9, 0), entry(3, 1, 4, 0)}, ir.MapOptions{})
	merged, err := result.Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	merged.Sort(result.ByNature, 0)
	// 3 of group 1 had at most 5, where it was cut off; 1 of group 3 had at most what was dropped there.
	checkRanking(t, merged, "[[3 1] 5 1] [[1 1] 10 0] [[1 3] 14 5] [[2 2] 1 0] [[2 1] 20 0]")
	if rest := merged.Ranking.Rest[merged.Ranking.Group([]any{uint64(1)})]; len(rest) != 2 || rest[0] != 7 {
		t.Errorf("what was cut off of the merged table had at most %v", rest)
	}
}

func checkRanking(t *testing.T, table result.Table, want string) {
	t.Helper()
	got := ""
	for _, r := range table.Rows {
		n := r.Value.(result.Number)
		got += fmt.Sprintf(" [%v %v %d]", r.Key, n.V, n.Error)
	}
	if got != " "+want {
		t.Errorf("got%s, want %s", got, want)
	}
}
