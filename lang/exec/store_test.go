package exec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"trace/lang/agg"
	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/result"
	"trace/probes/event"
)

func columns(types ...event.Type) []ir.Column {
	var cols []ir.Column
	for _, t := range types {
		cols = append(cols, ir.Column{Type: t, Optional: true})
	}
	return cols
}

// newTestStore makes a store with room for n keys.
func newTestStore(t *testing.T, m *ir.Map, n uint32) *userStore {
	t.Helper()
	s := newUserStore(m, n)
	var _ mapStore = s
	return s
}

// contents returns the contents of a store as text, by key.
func contents(t *testing.T, s mapStore) string {
	t.Helper()
	elements, err := s.elements()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(elements, func(a, b ir.Element) int { return slices.CompareFunc(a.Key, b.Key, result.Compare) })
	text := ""
	for _, e := range elements {
		if e.State != nil {
			text += fmt.Sprintf("%v%v ", e.Key, e.State)
		} else {
			text += fmt.Sprintf("%v%v ", e.Key, e.Value)
		}
	}
	return text
}

func TestStoreScalar(t *testing.T) {
	s := newTestStore(t, &ir.Map{Key: columns(langtest.Str16, langtest.U32), Value: columns(langtest.S64)}, 10)
	s.set([]any{"a", uint64(1)}, []any{int64(-5)})
	s.add([]any{"a", uint64(1)}, 2)
	s.add([]any{"b", uint64(1)}, math.MaxUint64)
	s.set([]any{"", nil}, []any{uint64(7)})
	s.set([]any{"c", uint64(1)}, []any{nil})
	if got, want := contents(t, s), "[ <nil>][7] [a 1][-3] [b 1][-1] "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if v, ok, _ := s.lookup([]any{"", nil}); !ok || !reflect.DeepEqual(v, []any{int64(7)}) {
		t.Errorf("lookup: %T", v[0])
	}
	if got := s.counters(); got != (codegen.MapCounters{Absent: 1}) {
		t.Errorf("counters: %+v", got)
	}
	s.remove([]any{"a", uint64(1)})
	s.remove([]any{"never", uint64(1)})
	s.zero()
	if got, want := contents(t, s), "[ <nil>][0] [b 1][0] "; got != want {
		t.Errorf("after zero: got %s want %s", got, want)
	}
	s.clear()
	if got := contents(t, s); got != "" {
		t.Errorf("after clear: %s", got)
	}
}

// TestStoreKeys checks which keys are equal.
func TestStoreKeys(t *testing.T) {
	s := newTestStore(t, &ir.Map{Key: columns(langtest.S64, langtest.Str16, langtest.Str16, langtest.Flag), Value: columns(langtest.U64)}, 100)
	different := [][]any{
		{int64(1), "a", "bc", true}, {int64(1), "ab", "c", true}, {int64(1), "ab", "c", false}, {int64(1), "ab", "c", nil},
		{nil, "ab", "c", nil}, {int64(1), nil, "c", nil}, {int64(1), "", "c", nil}, {int64(-1), "", "c", nil},
	}
	for i, key := range different {
		s.set(key, []any{uint64(i)})
	}
	for i, key := range different {
		if v, ok, _ := s.lookup(key); !ok || v[0] != uint64(i) {
			t.Errorf("%v: got %v", key, v)
		}
	}
	// The column determines what a number means.
	if v, ok, _ := s.lookup([]any{uint64(math.MaxUint64), "", "c", nil}); !ok || v[0] != uint64(7) {
		t.Errorf("the same bits: got %v", v)
	}
}

func TestStoreFull(t *testing.T) {
	s := newTestStore(t, &ir.Map{Key: columns(langtest.U64), Agg: &agg.Agg{Func: agg.Count{}}}, 2)
	for _, k := range []uint64{1, 2, 3, 1, 3, 2} {
		s.update([]any{k}, 1, false)
	}
	if got, want := contents(t, s), "[1][2] [2][2] "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if got := s.counters(); got != (codegen.MapCounters{Full: 2}) {
		t.Errorf("counters: %+v", got)
	}
	s.remove([]any{uint64(1)})
	s.update([]any{uint64(3)}, 1, false)
	if got, want := contents(t, s), "[2][2] [3][1] "; got != want {
		t.Errorf("after a removal: got %s want %s", got, want)
	}
}

func TestStoreLRU(t *testing.T) {
	s := newTestStore(t, &ir.Map{Key: columns(langtest.U64), Value: columns(langtest.U64), Lru: true, MaxKeys: 2}, 100)
	for _, k := range []uint64{1, 2, 1, 3} {
		s.add([]any{k}, 1)
	}
	if got, want := contents(t, s), "[1][2] [3][1] "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if got := s.counters(); got != (codegen.MapCounters{}) {
		t.Errorf("an lru is never full: %+v", got)
	}
}

// TestStoreAggregations checks each aggregation: its state, and how expressions read it.
func TestStoreAggregations(t *testing.T) {
	minus := uint64(math.MaxUint64) // -1
	for _, test := range []struct {
		agg         agg.Agg
		values      []uint64
		empty, want any
	}{
		{agg.Agg{Func: agg.Count{}}, []uint64{1, 1, 1}, uint64(0), uint64(3)},
		{agg.Agg{Func: agg.Rate{}}, []uint64{1, 1}, uint64(0), uint64(2)},
		{agg.Agg{Func: agg.Sum{}}, []uint64{1, 5}, uint64(0), uint64(6)},
		{agg.Agg{Func: agg.Sum{}, Signed: true}, []uint64{minus, minus}, int64(0), int64(-2)},
		{agg.Agg{Func: agg.Gauge{}, Signed: true}, []uint64{3, minus}, int64(0), int64(2)},
		{agg.Agg{Func: agg.Avg{}}, []uint64{1, 2, 5}, uint64(0), uint64(2)},
		{agg.Agg{Func: agg.Avg{}, Signed: true}, []uint64{minus, minus - 3, 0}, int64(0), int64(-1)},
		{agg.Agg{Func: agg.Stats{}}, []uint64{4, 5}, uint64(0), uint64(4)},
		{agg.Agg{Func: agg.NewMin()}, []uint64{minus, 5}, uint64(0), uint64(5)},
		{agg.Agg{Func: agg.NewMin(), Signed: true}, []uint64{minus, 5}, int64(0), int64(-1)},
		{agg.Agg{Func: agg.Max{}, Signed: true}, []uint64{minus, minus - 1}, int64(0), int64(-1)},
		{agg.Agg{Func: agg.NewHist(0, 0, 0)}, []uint64{1, 2, 3}, uint64(0), uint64(3)},
		{agg.Agg{Func: agg.NewQuantile()}, []uint64{1, 2}, uint64(0), uint64(2)},
	} {
		m := &ir.Map{Agg: &test.agg, Value: columns(langtest.U64)}
		s := newTestStore(t, m, 1)
		for _, x := range test.values {
			s.update(nil, x, false)
		}
		s.update(nil, 0, true)
		read := func() any {
			state, _, _ := s.state(nil)
			return m.ValueOf(ir.Element{State: state})
		}
		if got := read(); got != test.want {
			t.Errorf("%+v: got %T %v, want %v", test.agg, got, got, test.want)
		}
		snapshot, _ := s.elements()
		s.zero()
		if got := read(); got != test.empty {
			t.Errorf("%+v: after zero got %T %v", test.agg, got, got)
		}
		if got := m.ValueOf(snapshot[0]); got != test.want {
			t.Errorf("%+v: zero changed a snapshot to %v", test.agg, got)
		}
		if got := s.counters(); got != (codegen.MapCounters{Absent: 1}) {
			t.Errorf("%+v: counters %+v", test.agg, got)
		}
		s.clear()
		if _, ok, _ := s.state(nil); ok {
			t.Errorf("%+v: still there after clear", test.agg)
		}
	}
}

func TestStoreTuple(t *testing.T) {
	s := newTestStore(t, &ir.Map{Value: columns(langtest.U64, langtest.Str16), IsTuple: true}, 1)
	value := []any{uint64(1), "x"}
	s.set(nil, value)
	value[1] = "changed" // the store has a copy of its own
	if got, want := contents(t, s), "[][1 x] "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	s.set(nil, []any{nil, nil})
	if got, want := contents(t, s), "[][<nil> <nil>] "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func BenchmarkStore(b *testing.B) {
	s := newUserStore(&ir.Map{Key: columns(langtest.Str16, langtest.U32), Agg: &agg.Agg{Func: agg.Count{}}}, 1000)
	key := []any{"nvme0", uint64(2)}
	b.ReportAllocs()
	for b.Loop() {
		s.update(key, 1, false)
	}
}
