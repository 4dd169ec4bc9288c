package codegen_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"trace/lang/agg"
	"trace/lang/codegen"
	"trace/lang/codegen/bpftest"
)

func program(body ...codegen.Stmt) codegen.Spec {
	return codegen.Spec{Parts: []codegen.Part{{Body: body, Comment: "test"}}}
}

// aggregated returns what a map should hold after values were added.
func aggregated(a *agg.Agg, values []uint64) []uint64 {
	state := make([]uint64, a.Words())
	for _, x := range values {
		a.Add(state, x)
	}
	return state
}

func TestAggregations(t *testing.T) {
	skipUnlessPermitted(t)
	aggs := []agg.Agg{
		{Func: agg.Count{}}, {Func: agg.Sum{}}, {Func: agg.Avg{}}, {Func: agg.Stats{}}, {Func: agg.Gauge{}},
		{Func: agg.NewMin()}, {Func: agg.Max{}}, {Func: agg.NewMin(), Signed: true}, {Func: agg.Max{}, Signed: true},
		{Func: agg.NewHist(0, 0, 0)}, {Func: agg.NewHist(0, 0, 0), Signed: true}, {Func: agg.NewHist(3, 0, 0)}, {Func: agg.NewHist(5, 0, 0), Signed: true},
		{Func: agg.NewHist(0, 3, 20)}, {Func: agg.NewHist(0, 0, -5), Signed: true}, {Func: agg.NewHist(0, 7, -5)},
		{Func: agg.NewHist(2, 0, math.MinInt64), Signed: true}, {Func: agg.NewHist(0, 60, 0)},
		{Func: agg.NewLHist(0, 1000, 100)}, {Func: agg.NewLHist(-50, 55, 10), Signed: true},
		{Func: agg.NewLHist(7, 8, 10)}, {Func: agg.NewLHist(0, 1<<40, 1e9)}, {Func: agg.NewLHist(0, 1024, 64)},
		{Func: agg.NewLHist(-10, -5, 1)}, {Func: agg.NewLHist(-10, 90, 7)}, {Func: agg.NewLHist(0, math.MaxInt32, 9999991)},
		{Func: agg.NewLHist(math.MinInt64, math.MaxInt64, 1<<56), Signed: true},
		{Func: agg.NewQuantile()}, {Func: agg.NewQuantile(), Signed: true},
	}
	var events [][]byte
	var wide, narrow []uint64
	add := func(x uint64) {
		wide, narrow = append(wide, x), append(narrow, x&math.MaxUint32)
		events = append(events, event(map[int]any{0: x, 16: uint32(x)}))
	}
	for i, x := range boundaries {
		add(x)
		add(-x)
		add(1<<(3*i) + 1)
		add(1<<(3*i) - 1)
		add(99 * uint64(i))
	}
	for _, cas := range []bool{true, false} {
		for _, shared := range []bool{false, true} {
			for _, keyed := range []bool{false, true} {
				for i := 0; i < len(aggs); i += 4 {
					var maps []*codegen.Map
					var body []codegen.Stmt
					for j := range aggs[i:min(i+4, len(aggs))] {
						m := &codegen.Map{Name: fmt.Sprint("m", j), Index: j, Agg: &aggs[i+j], MaxKeys: 10, Shared: shared}
						n := &codegen.Map{Name: fmt.Sprint("n", j), Index: 10 + j, Agg: &aggs[i+j], MaxKeys: 10, Shared: shared}
						arg, short := a, field(u64t, 16, 4)
						if m.Agg.Signed {
							arg, short = ia, op(codegen.OpSigned, i64t, short)
						}
						var key []*expr
						if keyed {
							m.Key = codegen.NewRow(codegen.Column{Type: boolT})
							n.Key = m.Key
							key = []*expr{truth(true)}
						}
						maps = append(maps, m, n)
						body = append(body, &codegen.Update{Map: m, Key: key, Arg: arg}, &codegen.Update{Map: n, Key: key, Arg: short})
					}
					p := program(body...)
					p.CmpXchg = cas
					r := start(t, p, maps...)
					run(t, r, events...)
					for j, m := range maps {
						var key []any
						if keyed {
							key = []any{true}
						}
						got, err := r.State(m, key...)
						if err != nil {
							t.Fatal(err)
						}
						values := wide
						if j%2 == 1 {
							values = narrow
						}
						if want := aggregated(m.Agg, values); !slices.Equal(got, want) {
							t.Errorf("%+v shared %v, keyed %v, narrow %v:\ngot  %v\nwant %v", *m.Agg, shared, keyed, j%2 == 1, got, want)
						}
						if c, err := r.Counters(m); c != (codegen.MapCounters{}) || err != nil {
							t.Errorf("%+v: counted %+v, %v", *m.Agg, c, err)
						}
					}
					r.Close()
				}
			}
		}
	}
}

// TestExemplars compares exemplars with what user space keeps, where an event may lack its thread, and an old one gives way.
func TestExemplars(t *testing.T) {
	skipUnlessPermitted(t)
	const thread, has = 16, 24
	type from struct {
		value, at uint64
		thread    uint32 // 0: the event has none
	}
	const minute = 60e9
	all := []from{
		{1000, 5, 1}, {1001, 6, 2}, {3, 7, 3}, {1 << 20, 8, 4}, {1 << 16, 9, 5}, {1 << 21, 10, 0}, {1 << 45, 11, 6}, {0, 12, 7},
		{1 << 16, 2 * minute, 8}, {1 << 12, 2*minute + 1, 9}, {1 << 12, 4 * minute, math.MaxUint32}, {1 << 30, minute, 11},
	}
	for _, f := range []agg.Func{agg.NewHist(0, 0, 0), agg.NewHist(3, 2, 5), agg.NewLHist(0, 1<<22, 1<<16), agg.NewQuantile(50)} {
		for _, shared := range []bool{false, true} {
			for _, alone := range []bool{false, true} {
				a := &agg.Agg{Func: agg.WithExemplars(f)}
				m := &codegen.Map{Name: "m", Agg: a, MaxKeys: 1, Shared: shared, Alone: alone}
				want := make([]uint64, a.Words())
				var events [][]byte
				for _, e := range all {
					present := uint8(0)
					if e.thread != 0 {
						present = 1
						a.AddFrom(want, e.at, e.thread, e.value)
					} else {
						a.Add(want, e.value)
					}
					events = append(events, event(map[int]any{0: e.value, 8: e.at, thread: e.thread, has: present}))
				}
				r := newRunner(t, program(&codegen.Update{Map: m, Arg: field(u64t, 0, 8), At: b, Thread: optional(field(u64t, thread, 4), 1)}), m)
				run(t, r, events...)
				if got, err := r.State(m); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s %s, shared %v, alone %v: %v\ngot  %v\nwant %v", f.Name(), f.Params(), shared, alone, err, got, want)
				}
				r.Close()
			}
		}
	}
}

// TestTurns sends events to one of two maps and then to the other, with a key and without.
func TestTurns(t *testing.T) {
	skipUnlessPermitted(t)
	for _, f := range []agg.Func{agg.Count{}, agg.Max{}} {
		for _, shared := range []bool{false, true} {
			m := &codegen.Map{Name: "m", Index: 3, Agg: &agg.Agg{Func: f}, Turns: true, Shared: shared}
			n := &codegen.Map{Name: "n", Index: 1, Agg: &agg.Agg{Func: f}, Turns: true, Shared: shared, Key: codegen.NewRow(codegen.Column{Type: boolT}), MaxKeys: 2}
			r := newRunner(t, program(&codegen.Update{Map: m, Arg: a}, &codegen.Update{Map: n, Key: []*expr{bit}, Arg: a}), m, n)
			values := [][]uint64{{5, 9, 7}, {4, 3}}
			for turn, values := range values {
				if err := r.Maps[codegen.TurnName].Put(uint32(0), uint64(turn)); err != nil {
					t.Fatal(err)
				}
				for _, x := range values {
					run(t, r, event(map[int]any{0: x}))
				}
			}
			for turn, values := range values {
				want := aggregated(m.Agg, values)
				got, err := r.StateAt(m, uint32(turn))
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%v, turn %d: %v, want %v; %v", f, turn, got, want, err)
				}
				if got, err = r.StateAt(n, uint32(turn), false); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v with a key, turn %d: %v, want %v; %v", f, turn, got, want, err)
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	skipUnlessPermitted(t)
	key := codegen.NewRow(
		codegen.Column{Type: u64t, Optional: true}, codegen.Column{Type: text(12)}, codegen.Column{Type: text(16), Optional: true},
		codegen.Column{Type: boolT}, codegen.Column{Type: i64t}, codegen.Column{Type: gid.Type},
	)
	for _, lru := range []bool{false, true} {
		m := &codegen.Map{Name: "m", Key: key, Agg: &agg.Agg{Func: agg.Count{}}, MaxKeys: 100, LRU: lru}
		exprs := []*expr{oa, t12, os, bit, ib, gid}
		p := program(&codegen.Update{Map: m, Key: exprs}, &codegen.Update{Map: m, Key: exprs})
		r := newRunner(t, p, m)
		id := "\x00123456789abcde\xff"
		run(t, r,
			event(map[int]any{0: uint64(1), 8: int64(-2), 23: uint8(1), 24: uint8(5), 28: "comm", 44: "device", 56: id}),
			event(map[int]any{0: uint64(1), 8: int64(-2), 23: uint8(1), 24: uint8(1), 28: "comm", 44: "device", 56: id}),
			event(map[int]any{0: uint64(2), 8: int64(-2), 23: uint8(1), 24: uint8(4), 28: "comm", 44: "device", 56: id}),
			event(map[int]any{0: uint64(3), 8: int64(-2), 23: uint8(1), 24: uint8(4), 28: "comm", 44: "device", 56: id}),
		)
		for _, c := range []struct {
			key []any
			n   uint64
		}{
			{[]any{uint64(1), "device", "comm", true, int64(-2), id}, 2},
			{[]any{uint64(1), "device", nil, true, int64(-2), id}, 2},
			{[]any{nil, "device", "comm", true, int64(-2), id}, 4},
		} {
			if got, err := r.State(m, c.key...); err != nil || len(got) != 1 || got[0] != c.n {
				t.Errorf("%v: %v, want %d; %v", c.key, got, c.n, err)
			}
		}
	}
}

func TestFullMap(t *testing.T) {
	skipUnlessPermitted(t)
	key := codegen.NewRow(codegen.Column{Type: u64t})
	counts := &codegen.Map{Name: "counts", Index: 0, Key: key, Agg: &agg.Agg{Func: agg.Count{}}, MaxKeys: 10}
	last := &codegen.Map{Name: "last", Index: 1, Key: key, Value: codegen.NewRow(codegen.Column{Type: u64t}), MaxKeys: 10}
	sums := &codegen.Map{Name: "sums", Index: 2, Key: key, Agg: &agg.Agg{Func: agg.Sum{}}, MaxKeys: 10, LRU: true}
	r := newRunner(t, program(&codegen.Update{Map: counts, Key: []*expr{a}}, &codegen.Set{Map: last, Key: []*expr{a}, Value: []*expr{b}},
		&codegen.Update{Map: sums, Key: []*expr{a}, Arg: ob}), counts, last, sums)
	var events [][]byte
	for i := range uint64(15) {
		events = append(events, event(map[int]any{0: i, 24: uint8(i & 2)}))
	}
	run(t, r, events...)
	for m, want := range map[*codegen.Map]codegen.MapCounters{counts: {Full: 5}, last: {Full: 5}, sums: {Absent: 8}} {
		if c, err := r.Counters(m); c != want || err != nil {
			t.Errorf("%s: counted %+v, want %+v; %v", m.Name, c, want, err)
		}
	}
}

// TestUpdateErrors replaces the helper that updates a map by each answer that the kernel may give. Each is counted as what it is.
func TestUpdateErrors(t *testing.T) {
	skipUnlessPermitted(t)
	key := codegen.NewRow(codegen.Column{Type: u64t})
	for _, test := range []struct {
		answer syscall.Errno
		want   codegen.MapCounters
	}{
		{unix.E2BIG, codegen.MapCounters{Full: 2}},
		{unix.ENOMEM, codegen.MapCounters{NoMemory: 2}},
		{unix.EBUSY, codegen.MapCounters{Busy: 2}},
		{unix.EEXIST, codegen.MapCounters{Busy: 2}}, // the lookup that follows finds no key either
	} {
		m := &codegen.Map{Name: "m", Key: key, Agg: &agg.Agg{Func: agg.Count{}}, MaxKeys: 10}
		p := program(&codegen.Update{Map: m, Key: []*expr{a}}, &codegen.Update{Map: m, Key: []*expr{b}})
		r := load(t, p, func(code *codegen.Code) {
			for i, ins := range code.Action {
				if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnMapUpdateElem {
					code.Action[i] = asm.Mov.Imm32(asm.R0, -int32(test.answer)).WithMetadata(ins.Metadata)
				}
			}
		}, m)
		run(t, r, event(map[int]any{0: uint64(1)}))
		if c, err := r.Counters(m); c != test.want || err != nil {
			t.Errorf("%v: counted %+v, want %+v; %v", test.answer, c, test.want, err)
		}
	}
}

// TestSetIsTaken lets another BPF program take a set just before an update does, and just after it. The update is then lost and
// counted, and the set stays with the other program: also in kernels without compare-and-exchange.
func TestSetIsTaken(t *testing.T) {
	skipUnlessPermitted(t)
	for _, test := range []struct {
		at   int // the place of the other program: before this instruction, counted from the one that takes the set
		lost bool
	}{{0, true}, {1, true}, {2, false}} {
		m := &codegen.Map{Name: "m", Key: codegen.NewRow(codegen.Column{Type: u64t}), Agg: &agg.Agg{Func: agg.TopK{N: 2}}, MaxKeys: 1}
		r := load(t, program(&codegen.Update{Map: m, Key: []*expr{a}}), func(code *codegen.Code) {
			takes := slices.IndexFunc(code.Action, isSetLock)
			if takes < 0 {
				t.Fatal("no instruction takes the set")
			}
			code.Action = slices.Insert(code.Action, takes+test.at, code.Action[takes])
		}, m)
		run(t, r, event(map[int]any{0: uint64(1)}), event(map[int]any{0: uint64(2)}))
		want := codegen.MapCounters{}
		if test.lost {
			want.Busy = 1
		}
		if c, err := r.Counters(m); c != want || err != nil {
			t.Errorf("other program at %d: counted %+v, want %+v; %v", test.at, c, want, err)
		}
		taken := uint64(0)
		for i := range m.Sets().Count() {
			var cpus [][]byte
			if err := r.Maps[m.SetsName()].Lookup(uint32(i), &cpus); err != nil {
				t.Fatal(err)
			}
			for _, set := range cpus {
				taken += binary.NativeEndian.Uint64(set)
				if ways, _ := m.Sets().Ways(set); test.lost && len(ways) > 0 {
					t.Errorf("other program at %d: the set has %v", test.at, ways)
				}
			}
		}
		if taken != 1 {
			t.Errorf("other program at %d: the set is taken %d times, want once", test.at, taken)
		}
	}
}

// isSetLock reports whether an instruction adds to the first word of a set, which is in R1.
func isSetLock(ins asm.Instruction) bool {
	return ins.OpCode.Class() == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode && ins.Dst == asm.R1 && ins.Offset == 0
}

func lookup(m *codegen.Map, elem int, key ...*expr) *expr {
	return &expr{Op: codegen.OpLookup, Type: m.Value.Columns[elem].Type, Map: m, Elem: elem, Args: key}
}

func TestScalars(t *testing.T) {
	skipUnlessPermitted(t)
	key := codegen.NewRow(codegen.Column{Type: u64t})
	row := codegen.NewRow(codegen.Column{Type: text(16)}, codegen.Column{Type: u64t, Optional: true}, codegen.Column{Type: i64t})
	number := codegen.NewRow(codegen.Column{Type: u64t})
	for _, keyed := range []bool{false, true} {
		n := &codegen.Map{Name: "n", Index: 0, Value: number, MaxKeys: 10}
		sum := &codegen.Map{Name: "sum", Index: 1, Value: number, MaxKeys: 10}
		rows := &codegen.Map{Name: "rows", Index: 2, Value: row, MaxKeys: 10}
		name := &codegen.Map{Name: "name", Index: 3, Value: codegen.NewRow(codegen.Column{Type: text(16)}), MaxKeys: 10}
		maps := []*codegen.Map{n, sum, rows, name}
		var k []*expr
		var key1, key2 []any
		if keyed {
			for _, m := range maps {
				m.Key = key
			}
			k = []*expr{b}
			key1, key2 = []any{uint64(1)}, []any{uint64(2)}
		}
		hasKey := func(m *codegen.Map) *expr { return &expr{Op: codegen.OpHasKey, Type: boolT, Map: m, Args: k} }
		emit := &codegen.Emit{Size: 96, Values: []codegen.Slot{
			{Value: lookup(n, 0, k...), To: 8, Presence: 88}, {Value: lookup(rows, 0, k...), To: 16, Presence: 89},
			{Value: lookup(rows, 1, k...), To: 32, Presence: 90}, {Value: lookup(rows, 2, k...), To: 40, Presence: 91},
			{Value: hasKey(n), To: 48, Presence: 92}, {Value: is(codegen.OpEq, lookup(name, 0, k...), slit("comm")), To: 56, Presence: 93},
			{Value: is(codegen.OpAbsent, lookup(rows, 1, k...)), To: 64, Presence: 94}, {Value: op(codegen.OpCoalesce, u64t, lookup(rows, 1, k...), lit(8)), To: 72, Presence: 95},
		}}
		r := newRunner(t, codegen.Spec{Parts: []codegen.Part{
			{Pred: is(codegen.OpEq, field(u64t, 22, 1), lit(0)), Body: []codegen.Stmt{
				emit,
				&codegen.Set{Map: n, Key: k, Value: []*expr{op(codegen.OpAdd, u64t, lookup(n, 0, k...), oa)}},
				&codegen.Add{Map: sum, Key: k, Delta: oa},
				&codegen.Set{Map: rows, Key: k, Value: []*expr{s, oa, lookup(rows, 2, k...)}},
				&codegen.Set{Map: name, Key: k, Value: []*expr{os}},
			}},
			{Pred: is(codegen.OpEq, field(u64t, 22, 1), lit(1)), Body: []codegen.Stmt{
				&codegen.Delete{Map: rows, Key: k}, &codegen.Delete{Map: rows, Key: k}, &codegen.Delete{Map: n, Key: k},
			}},
		}}, maps...)
		decode := func(record []byte) []any {
			var got []any
			for _, s := range emit.Values {
				if record[s.Presence] == 0 {
					got = append(got, nil)
				} else {
					got = append(got, s.Value.Type.Decode(record[s.To:]))
				}
			}
			return got
		}
		_, records := run(t, r,
			event(map[int]any{0: uint64(5), 8: uint64(1), 24: uint8(5), 28: "comm"}),
			event(map[int]any{0: uint64(6), 8: uint64(1), 24: uint8(1), 28: "other"}),
			event(map[int]any{0: uint64(7), 8: uint64(1), 24: uint8(4), 28: "third"}),
			event(map[int]any{0: uint64(7), 8: uint64(1), 24: uint8(4), 28: "fourth"}),
			event(map[int]any{8: uint64(1), 22: uint8(1)}),
			event(map[int]any{8: uint64(1)}),
		)
		want := [][]any{
			{uint64(0), "", uint64(0), int64(0), false, false, false, uint64(0)},
			{uint64(5), "comm", uint64(5), int64(0), true, true, false, uint64(5)},
			{uint64(11), "other", uint64(6), int64(0), true, true, false, uint64(6)},
			{uint64(11), "third", nil, int64(0), true, false, true, uint64(8)},
			{uint64(0), "", uint64(0), int64(0), false, false, false, uint64(0)},
		}
		if len(records) != len(want) {
			t.Fatalf("%d records", len(records))
		}
		for i, record := range records {
			if got := decode(record); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("keyed %v, event %d: %v, want %v", keyed, i, got, want[i])
			}
		}
		for _, c := range []struct {
			m    *codegen.Map
			want []any
		}{{n, nil}, {sum, []any{uint64(11)}}, {rows, []any{"", nil, int64(0)}}, {name, []any{"fourth"}}} {
			got, err := r.Values(c.m, key1...)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("keyed %v, %s: %v, want %v; %v", keyed, c.m.Name, got, c.want, err)
			}
			if keyed {
				if got, err := r.Values(c.m, key2...); got != nil || err != nil {
					t.Errorf("%s: %v, %v", c.m.Name, got, err)
				}
			}
		}
		for m, want := range map[*codegen.Map]codegen.MapCounters{n: {Absent: 3}, sum: {Absent: 3}, rows: {}, name: {Absent: 2}} {
			if c, err := r.Counters(m); c != want || err != nil {
				t.Errorf("%s: counted %+v, want %+v; %v", m.Name, c, want, err)
			}
		}
	}
}

func TestStatements(t *testing.T) {
	skipUnlessPermitted(t)
	vars := []codegen.Var{{Name: "x", Type: u64t}, {Name: "s", Type: text(20)}, {Name: "o", Type: u64t, Optional: true}, {Name: "os", Type: text(16), Optional: true}}
	v := func(i int) *expr { return &expr{Op: codegen.OpVar, Type: vars[i].Type, Var: i} }
	emit := &codegen.Emit{ID: 1 << 40, Size: 80, Copies: []codegen.Copy{{From: 44, To: 72, Size: 4}}, Values: []codegen.Slot{
		{Value: v(0), To: 8, Presence: 16}, {Value: v(1), To: 17, Presence: 37}, {Value: v(2), To: 40, Presence: 48}, {Value: v(3), To: 49, Presence: 65},
	}}
	ret := []codegen.Stmt{&codegen.Return{}, &codegen.Let{Var: 0, Value: lit(99)}}
	r := newRunner(t, codegen.Spec{Vars: vars, Parts: []codegen.Part{{Body: []codegen.Stmt{
		&codegen.If{Cond: is(codegen.OpEq, a, lit(0)), Then: []codegen.Stmt{emit, &codegen.Return{}}},
		&codegen.Let{Var: 0, Value: op(codegen.OpAdd, u64t, a, v(0))},
		&codegen.If{Cond: is(codegen.OpGt, v(0), lit(10)), Then: []codegen.Stmt{&codegen.Let{Var: 0, Value: op(codegen.OpMul, u64t, v(0), v(0))}},
			Else: []codegen.Stmt{&codegen.Let{Var: 1, Value: slit("small")}}},
		&codegen.Let{Var: 2, Value: ob},
		&codegen.Let{Var: 3, Value: os},
		&codegen.If{Cond: is(codegen.OpEq, v(2), lit(77)), Then: []codegen.Stmt{&codegen.Let{Var: 2, Value: lit(78)}}},
		&codegen.If{Cond: is(codegen.OpAbsent, v(3)), Then: []codegen.Stmt{&codegen.Let{Var: 3, Value: op(codegen.OpCoalesce, text(16), v(3), slit("none"))}}},
		emit,
		&codegen.If{Cond: is(codegen.OpAnd, truth(true), truth(true)), Then: ret, Else: ret},
		emit,
	}}}})
	_, records := run(t, r, event(map[int]any{44: "copy"}), event(map[int]any{0: uint64(11), 8: uint64(77), 24: uint8(6), 28: "abcdefghijklmnop"}), event(map[int]any{0: uint64(4)}))
	if len(records) != 3 {
		t.Fatalf("%d records", len(records))
	}
	for i, want := range [][]any{
		{uint64(0), "", uint64(0), ""},
		{uint64(121), "", uint64(78), "abcdefghijklmnop"},
		{uint64(4), "small", nil, "none"},
	} {
		record := records[i]
		var got []any
		seen := make([]bool, len(record))
		for _, s := range emit.Values {
			var v any
			if record[s.Presence] != 0 {
				v = s.Value.Type.Decode(record[s.To:])
			}
			got = append(got, v)
			for j := s.To; j <= s.Presence; j++ {
				seen[j] = true
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("event %d: %v, want %v", i, got, want)
		}
		if id := binary.LittleEndian.Uint64(record); id != 1<<40 {
			t.Errorf("ID %#x", id)
		}
		for j := 8; j < len(record); j++ {
			if !seen[j] && (j < 72 || j >= 76) && record[j] != 0 {
				t.Errorf("byte %d of the record is %d", j, record[j])
			}
		}
	}
	if !bytes.Equal(records[0][72:76], []byte("copy")) {
		t.Errorf("copied %q", records[0][72:])
	}
}

func TestClauses(t *testing.T) {
	skipUnlessPermitted(t)
	m := &codegen.Map{Name: "m", Value: codegen.NewRow(codegen.Column{Type: u64t})}
	add := func(x uint64) []codegen.Stmt { return []codegen.Stmt{&codegen.Add{Map: m, Delta: lit(x)}} }
	var clauses []codegen.Part
	for range 40 { // high bits
		clauses = append(clauses, codegen.Part{Pred: is(codegen.OpEq, a, lit(1000))})
	}
	clauses = append(clauses,
		codegen.Part{Pred: is(codegen.OpLt, a, lit(5)), Body: add(1)},
		codegen.Part{Body: add(10)},
		codegen.Part{Pred: is(codegen.OpGe, lookup(m, 0), lit(22)), Late: true, Body: add(100)},
		codegen.Part{Pred: is(codegen.OpEq, a, lit(9)), Body: []codegen.Stmt{&codegen.Stop{}}},
		codegen.Part{Pred: is(codegen.OpEq, a, lit(9)), Body: add(1000)},
	)
	r := newRunner(t, codegen.Spec{Parts: clauses, Stops: true}, m)
	var total uint64
	for i, c := range []struct{ a, mask, add uint64 }{{1, 7, 11}, {7, 6, 10}, {2, 7, 111}, {9, 30, 110}, {1, 0, 0}} {
		masks, _ := run(t, r, event(map[int]any{0: c.a}))
		if masks[0]>>40 != c.mask {
			t.Errorf("event %d: mask %#x", i, masks[0])
		}
		total += c.add
		if got, err := r.Values(m); err != nil || got[0] != total {
			t.Errorf("event %d: %v, want %d; %v", i, got, total, err)
		}
	}
}

func TestLostRecords(t *testing.T) {
	skipUnlessPermitted(t)
	r := newRunner(t, program(&codegen.Emit{Size: 1 << 13}, &codegen.Emit{Size: 1 << 13}, &codegen.Emit{Size: 1 << 13}))
	_, records := run(t, r, event(nil))
	if lost, err := r.Lost(); len(records) != 1 || lost != 2 || err != nil {
		t.Errorf("%d records, %d lost, %v", len(records), lost, err)
	}
}

// After a piece without room no other is sent, and all count as one record. What ends them is sent only after others.
func TestPieces(t *testing.T) {
	skipUnlessPermitted(t)
	number := codegen.Slot{Value: op(codegen.OpSent, u64t), To: 8, Presence: 16}
	piece := func(id, size int) codegen.Stmt {
		return &codegen.Emit{ID: uint64(id), Size: size, Values: []codegen.Slot{number}, Piece: true}
	}
	end := &codegen.Emit{ID: 9, Size: 24, Values: []codegen.Slot{number}, Piece: true, Ends: true}
	const half = 1 << 13
	for name, c := range map[string]struct {
		body    []codegen.Stmt
		records [][2]uint64 // ID and number
		lost    uint64
	}{
		"all have room":      {[]codegen.Stmt{piece(1, 24), piece(2, 24), end}, [][2]uint64{{1, 0}, {2, 1}, {9, 2}}, 0},
		"the second has not": {[]codegen.Stmt{piece(1, half), piece(2, half), piece(3, 24), end}, [][2]uint64{{1, 0}}, 1},
		"there is none":      {[]codegen.Stmt{&codegen.If{Cond: truth(false), Then: []codegen.Stmt{piece(1, 24)}}, end}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, program(c.body...))
			_, records := run(t, r, event(nil))
			var got [][2]uint64
			for _, b := range records {
				got = append(got, [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
			}
			if lost, err := r.Lost(); !slices.Equal(got, c.records) || lost != c.lost || err != nil {
				t.Errorf("%d, %d lost, want %d, %d lost; %v", got, lost, c.records, c.lost, err)
			}
		})
	}
}

func TestSpans(t *testing.T) {
	code, err := codegen.Generate(codegen.Spec{Stack: 200, Parts: []codegen.Part{
		{Pred: is(codegen.OpAnd, is(codegen.OpAbsent, oa), is(codegen.OpEq, s, slit("x"))), Comment: "script:1: first"},
		{Pred: is(codegen.OpAnd, truth(false), is(codegen.OpEq, t12, slit("x"))), Body: []codegen.Stmt{
			&codegen.Emit{Size: 32, Copies: []codegen.Copy{{From: 0, To: 8, Size: 16}, {From: 24, To: 24, Size: 1}}},
		}, Comment: "script:2: second"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []codegen.Span{{0, 8}, {28, 16}}; !slices.Equal(code.Before, want) {
		t.Errorf("before: %v, want %v", code.Before, want)
	}
	if want := []codegen.Span{{8, 8}, {24, 1}}; !slices.Equal(code.After, want) {
		t.Errorf("after: %v, want %v", code.After, want)
	}
	for _, line := range []string{"script:1: first", "script:2: second"} {
		if !strings.Contains(code.String(), "; "+line+"\n") {
			t.Errorf("no %q in\n%v", line, code)
		}
	}
}

func TestLimits(t *testing.T) {
	var key codegen.Row
	var columns []codegen.Column
	var exprs []*expr
	for range 20 {
		columns, exprs = append(columns, codegen.Column{Type: text(16)}), append(exprs, s)
	}
	key = codegen.NewRow(columns...)
	m := &codegen.Map{Name: "m", Key: key, Agg: &agg.Agg{Func: agg.Count{}}, MaxKeys: 10}
	sum := a
	for range 8000 {
		sum = op(codegen.OpAdd, u64t, sum, b)
	}
	deep := a
	for range 15000 {
		deep = op(codegen.OpCompl, u64t, deep)
	}
	var tree func(depth int) *expr
	tree = func(depth int) *expr {
		if depth == 0 {
			return op(codegen.OpCompl, u64t, a)
		}
		return op(codegen.OpSub, u64t, tree(depth-1), tree(depth-1))
	}
	var many []codegen.Stmt
	for i := range 50 {
		many = append(many, &codegen.Update{Map: &codegen.Map{Name: fmt.Sprint("m", i), Agg: m.Agg}})
	}
	numbers := codegen.NewRow(codegen.Column{Type: u64t}, codegen.Column{Type: u64t})
	pair := &codegen.Map{Name: "n", Value: numbers, MaxKeys: 1}
	words := &codegen.Map{Name: "w", Value: codegen.NewRow(codegen.Column{Type: text(8)}), MaxKeys: 1}
	counted := &codegen.Map{Name: "counted", Agg: m.Agg, MaxKeys: 1}
	for _, c := range []struct {
		reason string
		body   []codegen.Stmt
		pred   *expr
	}{
		{"its keys, variables and values need 328 bytes of stack, but only 200 are left", []codegen.Stmt{&codegen.Update{Map: m, Key: exprs}}, nil},
		{"it needs more than 12000 instructions", nil, is(codegen.OpTruth, sum)},
		{"it needs more than 12000 instructions", nil, is(codegen.OpTruth, deep)},
		{"its predicate's values need 40 bytes of stack, but only 24 are left", nil, is(codegen.OpTruth, tree(7))},
		{"@m, which is an aggregation", nil, is(codegen.OpTruth, &expr{Op: codegen.OpLookup, Type: u64t, Map: m})},
		{"in the kernel a string ends at its first NUL", nil, is(codegen.OpEq, s, slit("a\x00b"))},
		{"a text of 16 bytes does not fit in 8", []codegen.Stmt{&codegen.Let{Value: s}}, nil},
		{"a record of 16 bytes has no room for byte 16", []codegen.Stmt{&codegen.Emit{Size: 16, Values: []codegen.Slot{{Value: a, To: 8, Presence: 16}}}}, nil},
		{"$y cannot be absent, but the value assigned to it can", []codegen.Stmt{&codegen.Let{Var: 1, Value: oa}}, nil},
		{"the kernel cannot compute the operator", nil, op(255, boolT)},
		{"the kernel cannot compute the operator", nil, is(codegen.OpTruth, op(255, u64t, a, b))},
		{"more than 48 maps, including the maps of earlier clauses", many, nil},
		{"the kernel cannot store text as a number", []codegen.Stmt{&codegen.Set{Map: pair, Value: []*expr{a, s}}}, nil},
		{"the kernel can add only to a number that is never absent", []codegen.Stmt{&codegen.Add{Map: words, Delta: a}}, nil},
		{"the kernel cannot delete @counted, which has no key", []codegen.Stmt{&codegen.Delete{Map: counted}}, nil},
		{"the kernel cannot find out whether @counted has a value", nil, &expr{Op: codegen.OpHasKey, Type: boolT, Map: counted}},
		{"the kernel cannot compare text with bytes", nil, is(codegen.OpEq, s, gid)},
		{"the kernel cannot compare bytes of different sizes", nil, is(codegen.OpEq, gid, field(codegen.Type{Kind: codegen.Bytes, Size: 8}, 56, 8))},
		{"the kernel can only look for a constant prefix", nil, is(codegen.OpStartsWith, s, s)},
		{"the kernel cannot load f0: 3 bytes at offset 0", nil, is(codegen.OpTruth, field(u64t, 0, 3))},
	} {
		stack := 200
		if strings.Contains(c.reason, "only 24 are") {
			stack = 24
		}
		_, err := codegen.Generate(codegen.Spec{Stack: stack, Vars: []codegen.Var{{Type: text(8)}, {Name: "y", Type: u64t}},
			Parts: []codegen.Part{{}, {Pred: c.pred, Body: c.body}}})
		var limit *codegen.LimitError
		if !errors.As(err, &limit) || limit.Part != 1 || !strings.Contains(limit.Reason, c.reason) {
			t.Errorf("%v, want %s", err, c.reason)
		}
	}
	if _, err := codegen.Generate(codegen.Spec{Parts: make([]codegen.Part, 64)}); err == nil {
		t.Error("64 clauses")
	}
}

// TestLargePrograms loads programs that are close to the limits.
func TestLargePrograms(t *testing.T) {
	skipUnlessPermitted(t)
	in := is(codegen.OpIn, oa)
	for i := range 1500 {
		in.Args = append(in.Args, lit(uint64(i)*1e10))
	}
	masks, _ := run(t, newRunner(t, codegen.Spec{Parts: []codegen.Part{{Pred: in}}}), event(map[int]any{0: uint64(1499e10), 24: uint8(1)}), event(nil))
	if masks[0] != 1 || masks[1] != 0 {
		t.Errorf("in: %v", masks)
	}
	chain := is(codegen.OpNot, obit)
	for i := range 400 {
		e := is(codegen.OpLt, oa, op(codegen.OpAdd, u64t, ob, lit(uint64(i))))
		chain = is([]codegen.Op{codegen.OpAnd, codegen.OpOr}[i/10%2], chain, is(codegen.OpNot, e))
	}
	run(t, newRunner(t, codegen.Spec{Parts: []codegen.Part{{Pred: is(codegen.OpAbsent, chain)}}}), event(nil))
	var clauses []codegen.Part
	var maps []*codegen.Map
	for i := range 12 {
		m := &codegen.Map{Name: fmt.Sprint("m", i), Index: i, Key: codegen.NewRow(codegen.Column{Type: u64t, Optional: true}, codegen.Column{Type: text(16), Optional: true}),
			Agg: &agg.Agg{Func: agg.NewHist(2, 0, 0)}, MaxKeys: 10}
		maps = append(maps, m)
		clauses = append(clauses, codegen.Part{Pred: is(codegen.OpGt, oa, lit(uint64(i))), Body: []codegen.Stmt{&codegen.Update{Map: m, Key: []*expr{ob, os}, Arg: a}}})
	}
	run(t, newRunner(t, codegen.Spec{Parts: clauses}, maps...), event(map[int]any{0: uint64(1000), 24: uint8(7)}))
}

func BenchmarkCode(b *testing.B) {
	if err := bpftest.Permitted(); err != nil {
		b.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	key := codegen.NewRow(codegen.Column{Type: u64t})
	comm := codegen.NewRow(codegen.Column{Type: text(16)})
	by := func(f agg.Func) *agg.Agg { return &agg.Agg{Func: f} }
	byA := []*expr{a}
	filter := is(codegen.OpAnd, is(codegen.OpGt, a, lit(1000)), is(codegen.OpEq, s, slit("postgres")))
	for _, c := range []struct {
		name string
		m    codegen.Map
		s    codegen.Update
		pred *expr
	}{
		{name: "empty"},
		{name: "filter", pred: filter},
		{name: "count", m: codegen.Map{Agg: by(agg.Count{})}},
		{name: "count by number", m: codegen.Map{Agg: by(agg.Count{}), Key: key}, s: codegen.Update{Key: byA}},
		{name: "count by string", m: codegen.Map{Agg: by(agg.Count{}), Key: comm}, s: codegen.Update{Key: []*expr{s}}},
		{name: "sum", m: codegen.Map{Agg: by(agg.Sum{})}, s: codegen.Update{Arg: a}},
		{name: "avg", m: codegen.Map{Agg: by(agg.Avg{})}, s: codegen.Update{Arg: a}},
		{name: "max", m: codegen.Map{Agg: by(agg.Max{})}, s: codegen.Update{Arg: a}},
		{name: "hist", m: codegen.Map{Agg: by(agg.NewHist(0, 0, 0))}, s: codegen.Update{Arg: a}},
		{name: "hist with exemplars", m: codegen.Map{Agg: by(agg.WithExemplars(agg.NewHist(0, 0, 0)))}, s: codegen.Update{Arg: a, At: field(u64t, 8, 8), Thread: field(u64t, 16, 4)}},
		{name: "hist by number", m: codegen.Map{Agg: by(agg.NewHist(0, 0, 0)), Key: key}, s: codegen.Update{Key: byA, Arg: a}},
		{name: "lhist", m: codegen.Map{Agg: &agg.Agg{Func: agg.NewLHist(0, 1e6, 1e4)}}, s: codegen.Update{Arg: a}},
		{name: "quantile", m: codegen.Map{Agg: by(agg.NewQuantile())}, s: codegen.Update{Arg: a}},
	} {
		b.Run(c.name, func(b *testing.B) {
			clause := codegen.Part{Pred: c.pred}
			var maps []*codegen.Map
			if c.m.Agg != nil {
				c.m.Name, c.m.MaxKeys = "m", 1000
				c.s.Map = &c.m
				maps = append(maps, &c.m)
				clause.Body = []codegen.Stmt{&c.s}
			}
			code, err := codegen.Generate(codegen.Spec{Parts: []codegen.Part{clause}, Stack: bpftest.Stack(eventSize), CmpXchg: true, Prefix: "x_"})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				d, err := bpftest.Time(code, maps, event(map[int]any{0: uint64(123456), 28: "postgres"}))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(d.Nanoseconds()), "ns/run")
			}
		})
	}
}
