package exec

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"trace/lang/agg"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/probes/event"
)

// TestLongStrings calls the functions whose strings grow: one of 64 KiB is made, and a longer one is absent.
func TestLongStrings(t *testing.T) {
	const most = ir.MaxString
	half, all := strings.Repeat("a", most/2), strings.Repeat("a", most)
	list := func(x ...any) *ir.Expr { return node(ir.OpList, ir.Text, x...) }
	for i, test := range []struct {
		e    *ir.Expr
		want int // bytes, or elements of a list; -1: absent
	}{
		{call("repeat", ir.Text, "ab", most/2), most},
		{call("repeat", ir.Text, "ab", most/2+1), -1},
		{call("repeat", ir.Text, "ab", 1<<62), -1},
		{call("repeat", ir.Text, "", 1<<30), 0},
		{call("repeat", ir.Text, "a", -1), -1},
		{call("join", ir.Text, list(half, half), ""), most},
		{call("join", ir.Text, list(half, half)), most},
		{call("join", ir.Text, list(half, half), "-"), -1},
		{call("join", ir.Text, list(half, half, "a"), ""), -1},
		{call("join", ir.Text, list("a", "b", "c"), half), -1},
		{call("replace", ir.Text, half, "a", "bb"), most},
		{call("replace", ir.Text, half, "a", "bbb"), -1},
		{call("replace", ir.Text, all, "a", ""), 0},
		{call("replace", ir.Text, all, "", "b"), -1},
		{call("replace", ir.Text, half[1:], "", "b"), most - 1},
		{call("replace", ir.Text, all, "a", all), -1},
		{call("replace", ir.Text, all, "x", all), most},
		{call("map", ir.Text, call("split", ir.Text, all[:most/2], ""), call("repeat", ir.Text, "b", 2)), most / 2},
		{call("map", ir.Text, call("split", ir.Text, all[:most/2], ""), call("repeat", ir.Text, "b", 3)), -1},
		{call("map", ir.Text, call("split", ir.Text, all, ""), node(ir.OpElement, ir.Text)), most},
	} {
		got := -1
		switch v := evaluate(t, test.e, &scope{event: langtest.Table{}}).(type) {
		case string:
			got = len(v)
		case []any:
			got = len(v)
		}
		if got != test.want {
			t.Errorf("%d, %s: got %d, want %d", i, test.e.Fn, got, test.want)
		}
	}
}

// TestLoopEnds evaluates loops over lists when they are cut short.
func TestLoopEnds(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for _, fn := range []string{"any", "filter", "map"} {
		v, err := newEvaluator(call(fn, ir.Boolean, node(ir.OpList, ir.Text, "a", "b"), node(ir.OpEq, ir.Boolean, node(ir.OpElement, ir.Text), "c")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.eval(&scope{event: langtest.Table{}, setting: setting{ctx: context.Background()}}); err != nil {
			t.Errorf("%s: %v", fn, err)
		}
		if _, err := v.eval(&scope{event: langtest.Table{}, setting: setting{ctx: ended}}); !errors.Is(err, ErrCut) {
			t.Errorf("%s after the end: got %v", fn, err)
		}
		if err := (&machine{}).run(&block{pred: v}, &scope{setting: setting{ctx: ended}}); !errors.Is(err, ErrCut) {
			t.Errorf("a clause with %s: got %v", fn, err)
		}
	}
}

// TestStoreTexts fills maps with long strings.
func TestStoreTexts(t *testing.T) {
	const each = maxTexts / 8
	var texts []string
	for i := range 9 {
		texts = append(texts, strconv.Itoa(i)+strings.Repeat("a", each-1))
	}
	text := func(i int) string { return texts[i] }
	scalar := &ir.Map{Key: columns(langtest.U64), Value: columns(ir.Text)}
	s := newTestStore(t, scalar, 100)
	for i := range 9 {
		s.set([]any{uint64(i)}, []any{text(i)})
	}
	check := func(what string, s *userStore, keys int, lost uint64) {
		t.Helper()
		texts := 0
		elements, _ := s.elements()
		for _, e := range elements {
			texts += textBytes(e.Key) + textBytes(e.Value)
		}
		if len(elements) != keys || s.counts.NoMemory != lost || s.counts.Full != 0 || texts != s.texts || texts > maxTexts {
			t.Errorf("%s: %d keys, %d bytes, counted as %d, lost %+v", what, len(elements), texts, s.texts, s.counts)
		}
	}
	check("full", s, 8, 1)
	s.set([]any{uint64(3)}, []any{text(4)}) // in place of another
	s.set([]any{uint64(100)}, []any{""})
	check("the same size", s, 9, 1)
	s.set([]any{uint64(100)}, []any{"a"})
	check("one more byte", s, 9, 2)
	s.remove([]any{uint64(3)})
	s.set([]any{uint64(100)}, []any{text(1)})
	check("after one was removed", s, 8, 2)
	s.zero()
	check("zeroed", s, 8, 2)
	s.set([]any{uint64(1)}, []any{text(1)})
	s.clear()
	check("cleared", s, 0, 2)

	lru := &ir.Map{Key: columns(ir.Text), Value: columns(ir.Text), Lru: true}
	s = newTestStore(t, lru, 100)
	for i := range 9 {
		s.set([]any{text(i)}, []any{text(i)})
	}
	check("lru", s, 4, 0)

	counts := &ir.Map{Key: columns(ir.Text), Agg: &agg.Agg{Func: agg.Count{}}, Value: []ir.Column{{Type: event.Type{}}}}
	s = newTestStore(t, counts, 100)
	for range 2 {
		for i := range 9 {
			s.update([]any{text(i)}, 1, false)
		}
	}
	check("counts", s, 8, 2)
	top := rankedMap(100, 2)
	top.Key = columns(ir.Text, ir.Text)
	s = newTestStore(t, top, 100)
	for i := range 9 {
		s.update([]any{text(i), text(i)}, 1, false)
	}
	check("ranked", s, 4, 0)
}
