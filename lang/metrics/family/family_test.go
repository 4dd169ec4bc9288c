package family

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trace/lang/agg"
	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

var (
	bytesType  = event.Type{Kind: event.Uint, Size: 8, Unit: event.Bytes}
	cgroupType = event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup}
)

// sums is a map of sums by name, with the largest first.
func sums(values map[string]uint64) result.Table {
	t := result.Table{Name: "@m", Func: "sum", Metric: result.Counter, Adds: result.Sums, Unit: event.Bytes, Type: bytesType, Size: 16384,
		Key: []result.Column{{Name: "name", Type: event.Type{Kind: event.String}}}}
	for name, v := range values {
		t.Rows = append(t.Rows, result.Row{Key: []any{name}, Value: result.Number{Type: bytesType, V: v}})
	}
	t.Sort(result.ByValue, 0)
	slices.Reverse(t.Rows)
	return t
}

func snapshot(tables ...result.Table) Snapshot {
	return Snapshot{Started: time.Unix(1700000000, 0), Tables: tables}
}

// find returns the family of a name.
func find(t *testing.T, all []Family, name string) Family {
	t.Helper()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no %s", name)
	return Family{}
}

// valueOf returns the value of the series with these labels, -1 without it.
func valueOf(f Family, labels ...string) float64 {
	for _, s := range f.Series {
		if slices.Equal(s.Labels, labels) {
			return s.Value
		}
	}
	return -1
}

func totalOf(f Family) (sum float64) {
	for _, s := range f.Series {
		sum += s.Value
	}
	return sum
}

// Ten times as many keys as there may be series: the first ones keep theirs, the others are exact together, and nothing ever falls, also when
// keys go and the map is emptied.
func TestSeriesAreBounded(t *testing.T) {
	e := New(Config{Program: "p", Series: 100})
	values := map[string]uint64{}
	before := map[string]float64{}
	var real, counted uint64 // real has what was removed from the map, too
	check := func(step string) {
		t.Helper()
		f := find(t, e.Families(snapshot(sums(values))), "trace_p_m_bytes_total")
		if len(f.Series) > 101 || totalOf(f) != float64(real) {
			t.Errorf("%s: %d series have %v, want %d", step, len(f.Series), totalOf(f), real)
		}
		for _, s := range f.Series {
			if s.Value < before[s.Labels[0]] {
				t.Errorf("%s: %s falls from %v to %v", step, s.Labels[0], before[s.Labels[0]], s.Value)
			}
			before[s.Labels[0]] = s.Value
			if s.Overflow != (s.Labels[0] == Other) || !s.Created.Equal(time.Unix(1700000000, 0)) {
				t.Errorf("%s: %+v", step, s)
			}
		}
		counted++
	}
	for round := range 5 {
		for i := range 1000 {
			n := uint64(i*round + 1)
			values[fmt.Sprint("k", i)] += n
			real += n
		}
		check(fmt.Sprint("round ", round))
	}
	for i := range 1000 { // half of the keys go, with and without series
		if i%2 == 0 {
			delete(values, fmt.Sprint("k", i))
		}
	}
	for range patience + 1 {
		check("deleted")
		clear(before) // a key without its series may come again
	}
	values["new"] = 5
	real += 5
	check("another key")
	if f := find(t, e.Families(snapshot(sums(values))), "trace_p_m_bytes_total"); valueOf(f, "new") != 5 {
		t.Error("a new key has no series, although others have lost theirs")
	}
	clear(values) // the program clears the map
	check("cleared")
	values["new"], values["k1"] = 3, 7
	real += 10
	check("after the clear")
	if f := find(t, e.Families(snapshot(sums(values))), "trace_p_m_bytes_total"); valueOf(f, "new") != 8 {
		t.Errorf("new is %v, want 8", valueOf(f, "new"))
	}
}

// Keys with the same labels are added: systemd gives a unit's cgroup another id at each start.
func TestDuplicatesAreAdded(t *testing.T) {
	table := sums(nil)
	table.Key[0].Type = cgroupType
	table.Key[0].Type.Enum = event.NewCgroupEnum(paths{1: "/a", 2: "/a", 3: "/b"})
	for id := range uint64(4) {
		table.Rows = append(table.Rows, result.Row{Key: []any{id}, Value: result.Number{Type: bytesType, V: 10 * id}})
	}
	f := find(t, New(Config{Program: "p"}).Families(snapshot(table)), "trace_p_m_bytes_total")
	if len(f.Series) != 3 || valueOf(f, "/a") != 30 || valueOf(f, "/b") != 30 || valueOf(f, "0") != 0 {
		t.Errorf("got %+v", f.Series)
	}
	table.Metric, table.Assigned = result.Gauge, true // assigned values do not add up: a run has only the newest cgroup's
	e := New(Config{Program: "p"})
	for range 2 {
		f = find(t, e.Families(snapshot(table)), "trace_p_m_bytes")
		if len(f.Series) != 3 || valueOf(f, "/a") != 20 || valueOf(f, "/b") != 30 {
			t.Errorf("assigned: %+v", f.Series)
		}
	}
	for i := range table.Rows {
		table.Rows[i].Value = result.Number{Type: bytesType, V: -int64(10 * i)}
	}
	if f = find(t, e.Families(snapshot(table)), "trace_p_m_bytes"); valueOf(f, "/a") != -10 {
		t.Errorf("assigned below 0: %+v", f.Series)
	}
}

type paths map[uint64]string

func (paths) ID(string) (uint64, bool)       { return 0, false }
func (paths) Ended(string) bool              { return false }
func (paths) Workload(uint64) event.Workload { return event.Workload{} }
func (p paths) Path(id uint64) string        { return p[id] }

// cgroups are names of cgroups. Some have ended.
type cgroups struct {
	paths
	ended map[string]bool
}

func (c cgroups) Ended(path string) bool { return c.ended[path] }

// A cgroup that has ended makes room for others. Its sum moves to the other keys.
func TestEndedCgroups(t *testing.T) {
	names := paths{7: "/seven", 9: "/nine", 11: "/eleven"}
	here := cgroups{nil, map[string]bool{}}
	e := New(Config{Program: "p", Series: 1})
	families := func(rows ...uint64) Family {
		table := sums(nil)
		table.Key[0].Type = event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup, Enum: event.NewCgroupEnum(here)}
		for _, id := range rows {
			table.Rows = append(table.Rows, result.Row{Key: []any{format.Verbatim(names[id])}, Value: result.Number{Type: bytesType, V: id}})
		}
		return find(t, e.Families(snapshot(table)), "trace_p_m_bytes_total")
	}
	if f := families(7); valueOf(f, "/seven") != 7 || len(f.Series) != 1 {
		t.Fatalf("got %+v", f.Series)
	}
	here.ended["/seven"] = true
	if f := families(7); valueOf(f, "/seven") != 7 {
		t.Errorf("at once: %+v", f.Series)
	}
	if f := families(7, 9); valueOf(f, "/seven") != -1 || valueOf(f, Other) != 16 && valueOf(f, Other) != 7 {
		t.Errorf("later: %+v", f.Series)
	}
	if f := families(7, 9, 11); totalOf(f) != 27 || valueOf(f, "/eleven") != 11 {
		t.Errorf("with another one: %+v", f.Series)
	}
}

// Updates of a full map belong to the other keys: each of them is one more.
func TestLostUpdatesOfCounts(t *testing.T) {
	table := sums(map[string]uint64{"a": 3})
	table.Adds, table.Unit = result.Counts, event.None
	s := snapshot(table)
	s.Maps = []MapLoss{{"@m", []Loss{{"full", 5}, {"busy", 1}}}}
	all := New(Config{Program: "p"}).Families(s)
	if f := find(t, all, "trace_p_m_total"); valueOf(f, Other) != 6 || valueOf(f, "a") != 3 {
		t.Errorf("got %+v", f.Series)
	}
	if f := find(t, all, "trace_map_lost_updates_total"); valueOf(f, "@m", "full", "p") != 5 || valueOf(f, "@m", "busy", "p") != 1 {
		t.Errorf("got %+v", f.Series)
	}
}

// A map without a key has its series from the beginning, and keeps it when the program empties the map.
func TestWithoutKey(t *testing.T) {
	e := New(Config{Program: "p", Labels: map[string]string{"rack": "r17"}})
	table := func(rows ...result.Row) result.Table {
		return result.Table{Name: "@m", Metric: result.Counter, Func: "sum", Unit: event.Bytes, Rows: rows}
	}
	five := result.Row{Value: result.Number{Type: bytesType, V: uint64(5)}}
	for i, test := range []struct {
		table result.Table
		want  float64
	}{{table(), 0}, {table(five), 5}, {table(), 5}, {table(), 5}, {table(), 5}, {table(five), 10}} {
		if f := find(t, e.Families(snapshot(test.table)), "trace_p_m_bytes_total"); len(f.Series) != 1 || valueOf(f, "r17") != test.want {
			t.Errorf("%d: got %+v, want %v", i, f.Series, test.want)
		}
	}
}

// Readers at the same time count nothing twice.
func TestReadersTakeTurns(t *testing.T) {
	e := New(Config{Program: "p"})
	var n atomic.Uint64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			e.Read(func() (Snapshot, error) {
				s := snapshot(sums(map[string]uint64{"a": n.Add(1)}))
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
				return s, nil
			})
		})
	}
	all.Wait()
	if f := find(t, e.Families(snapshot(sums(map[string]uint64{"a": n.Add(1)}))), "trace_p_m_bytes_total"); valueOf(f, "a") != 51 {
		t.Errorf("got %+v", f.Series)
	}
}

// handedOver returns an exporter that goes on from the state of another one, as another process does.
func handedOver(t *testing.T, e *Exporter, c Config) *Exporter {
	t.Helper()
	data, err := json.Marshal(e.State())
	if err != nil {
		t.Fatal(err)
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	next := New(c)
	next.Restore(s)
	return next
}

// What one process has counted, another goes on with: no sum falls, all began when they began, and what has no series of its own has none later.
func TestState(t *testing.T) {
	c := Config{Program: "p", Series: 2, Labels: map[string]string{"rack": "r17"}}
	e := New(c)
	first := snapshot(sums(map[string]uint64{"a": 3, "b": 2, "c": 1}))
	e.Families(first)
	later := func(values map[string]uint64) Snapshot {
		s := snapshot(sums(values))
		s.Started = first.Started.Add(time.Hour)
		return s
	}
	next := handedOver(t, handedOver(t, e, c), c) // a process without a snapshot hands over what it got
	for i, test := range []struct {
		values      map[string]uint64
		a, b, other float64
	}{
		{map[string]uint64{"a": 10}, 13, 2, 1}, {map[string]uint64{"a": 10, "c": 5}, 13, 2, 6}, {map[string]uint64{"a": 11, "c": 5}, 14, -1, 8},
		{map[string]uint64{"a": 11, "c": 5, "d": 4}, 14, -1, 8},
	} {
		f := find(t, next.Families(later(test.values)), "trace_p_m_bytes_total")
		if valueOf(f, "a", "r17") != test.a || valueOf(f, "b", "r17") != test.b || valueOf(f, Other, "r17") != test.other || !f.Series[0].Created.Equal(first.Started) {
			t.Errorf("%d: %+v, want %+v", i, f.Series, test)
		}
	}
	renamed := sums(map[string]uint64{"a": 10})
	renamed.Key[0].Name = "disk"
	s := later(nil)
	s.Tables = []result.Table{renamed}
	if f := find(t, handedOver(t, e, c).Families(s), "trace_p_m_bytes_total"); totalOf(f) != 10 || !f.Series[0].Created.Equal(s.Started) {
		t.Errorf("of another form: %+v", f.Series)
	}
}

// A gauge has only what the map has now, and no other keys.
func TestGauges(t *testing.T) {
	gauge := func(values map[string]uint64) result.Table {
		table := sums(values)
		table.Metric, table.Unit = result.Gauge, event.None
		return table
	}
	e := New(Config{Program: "p", Series: 2})
	if f := find(t, e.Families(snapshot(gauge(map[string]uint64{"a": 3, "b": 2, "c": 1}))), "trace_p_m"); len(f.Series) != 2 || valueOf(f, "a") != 3 || f.Kind != Gauge {
		t.Errorf("got %+v", f)
	}
	if f := find(t, e.Families(snapshot(gauge(map[string]uint64{"b": 1, "d": 9}))), "trace_p_m"); len(f.Series) != 1 || valueOf(f, "b") != 1 {
		t.Errorf("then %+v", f)
	}
	if f := find(t, e.Families(snapshot(gauge(map[string]uint64{"b": 1, "e": 9}))), "trace_p_m"); len(f.Series) != 2 || valueOf(f, "e") != 9 {
		t.Errorf("last %+v", f)
	}
}

// Whoever runs a process chooses its name: a label has any text, valid and bounded, and an absent element is "".
func TestLabels(t *testing.T) {
	text, number := event.Type{Kind: event.String}, event.Type{Kind: event.Uint, Size: 8}
	states := number
	states.Enum = &event.Enum{Name: "state", Names: []string{"RTR"}, Values: []int64{2}}
	for _, test := range []struct {
		t    event.Type
		v    any
		want string
	}{
		{text, "a\"} 1\n# TYPE x counter\n", "a\"} 1\n# TYPE x counter\n"},
		{text, "\xff\xfe", "\uFFFD"},
		{text, strings.Repeat("ä", 2000), strings.Repeat("ä", 512)},
		{text, nil, ""},
		{states, uint64(2), "RTR"},
		{states, uint64(9), "unknown(0x9)"},
		{number, uint64(math.MaxUint64), "18446744073709551615"},
		{event.Type{Kind: event.Int, Size: 8, Unit: event.Errno}, int64(-22), "-EINVAL"},
		{event.Type{Kind: event.Int, Size: 8, Unit: event.Nanoseconds}, int64(1500), "1500"},
		{event.Type{Kind: event.Bool}, true, "true"},
		{event.Type{Kind: event.GID}, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x09\x00\x01", "::ffff:10.9.0.1"},
	} {
		if got := labelOf(test.t, test.v); got != test.want {
			t.Errorf("%v is %q, want %q", test.v, got, test.want)
		}
	}
	for column, want := range map[string]string{"qp.type": "qp_type", "le": "key_le", "__name__": "name__", "9x": "key_9x", "a > 1": "a_1"} {
		if got := label(column); got != want {
			t.Errorf("%s has the label %s, want %s", column, got, want)
		}
	}
}

// Each metric about the run moves with what it counts.
func TestAbout(t *testing.T) {
	probe := Probe{Name: "a:b", Variant: "fexit", Seen: 10, Rejected: 4, Lost: []Loss{{"buffer_full", 2}}}
	s := snapshot(sums(map[string]uint64{"a": 1}))
	s.Probes = []Probe{probe}
	e := New(Config{Program: "p", Labels: map[string]string{"rack": "r1"}})
	before := e.Families(s)
	s.Probes[0] = Probe{Name: "a:b", Seen: 11, Rejected: 5, Lost: []Loss{{"buffer_full", 3}}}
	s.Tables = []result.Table{sums(map[string]uint64{"a": 1, "b": 2})}
	s.Tables[0].Size++
	s.StacksLost, s.LeftOut = 7, []string{"c:d"}
	s.Maps = []MapLoss{{"@m", []Loss{{"full", 1}}}}
	after := e.Families(s)
	for _, test := range []struct {
		name          string
		labels        []string
		before, after float64
	}{
		{"probe_up", []string{"a:b"}, 1, 0},
		{"probe_up", []string{"c:d"}, -1, 0},
		{"events_total", []string{"c:d"}, -1, -1},
		{"probe_info", []string{"a:b", "fexit"}, 1, -1},
		{"events_total", []string{"a:b"}, 10, 11},
		{"events_rejected_total", []string{"a:b"}, 4, 5},
		{"lost_total", []string{"a:b", "buffer_full"}, 2, 3},
		{"map_keys", []string{"@m"}, 1, 2},
		{"map_capacity", []string{"@m"}, 16384, 16385},
		{"map_series", []string{"@m"}, 1, 2},
		{"stacks_lost_total", nil, 0, 7},
		{"map_lost_updates_total", []string{"@m", "full"}, -1, 1},
	} {
		for i, all := range [][]Family{before, after} {
			got := -1.0
			if at := slices.IndexFunc(all, func(f Family) bool { return f.Name == "trace_"+test.name }); at >= 0 {
				got = valueOf(all[at], slices.Concat(test.labels, []string{"p", "r1"})...)
			}
			if want := []float64{test.before, test.after}[i]; got != want {
				t.Errorf("%s is %v, want %v", test.name, got, want)
			}
		}
	}
}

// Of a program that is not attached only its probes are shown.
func TestUnattached(t *testing.T) {
	e := New(Config{Program: "p", Labels: map[string]string{"rack": "r1"}})
	all := e.Unattached([]string{"a:b", "c:d"})
	if len(all) != 1 || all[0].Name != "trace_probe_up" || len(all[0].Series) != 2 || valueOf(all[0], "a:b", "p", "r1") != 0 || valueOf(all[0], "c:d", "p", "r1") != 0 {
		t.Errorf("%+v", all)
	}
	if all := e.Unattached(nil); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// The buckets of a histogram count each value once, whatever its aggregation, also after they were added.
func TestBuckets(t *testing.T) {
	for name, a := range map[string]*agg.Agg{
		"hist": {Func: agg.NewHist(0, 0, 0)}, "fine": {Func: agg.NewHist(5, 0, 0)}, "from 20": {Func: agg.NewHist(2, 3, 20)},
		"linear": {Func: agg.NewLHist(0, 1000, 1)}, "quantile": {Func: agg.NewQuantile(50)}, "signed": {Func: agg.NewHist(1, 0, -8), Signed: true}, "below": {Func: agg.NewLHist(-50, 50, 10), Signed: true},
	} {
		typ := event.Type{Kind: event.Uint, Size: 8}
		if a.Signed {
			typ.Kind = event.Int
		}
		var values []int64
		for i := int64(-100); i < 5000; i += 7 {
			if a.Signed || i >= 0 {
				values = append(values, i)
			}
		}
		merger := a.Merger(typ)
		parts := [2]amount{}
		states := [2][]uint64{make([]uint64, a.Words()), make([]uint64, a.Words())}
		for i, v := range values {
			a.Add(states[i%2], uint64(v))
		}
		var r *ranges
		for i, state := range states {
			parts[i], _ = amountOf(merger.Result(state))
			h, _ := distributionOf(merger.Result(state))
			r = rangesOf(h)
		}
		b := r.buckets(parts[0].plus(parts[1]))
		if len(b.Classic) == 0 || len(b.Classic) > mostBounds || parts[0].plus(parts[1]).Count != uint64(len(values)) {
			t.Errorf("%s has %d bounds and %d values", name, len(b.Classic), parts[0].plus(parts[1]).Count)
		}
		for _, c := range b.Classic {
			want := uint64(0)
			for _, v := range values {
				if float64(v) <= c.Upper {
					want++
				}
			}
			if c.Count != want {
				t.Errorf("%s: %d values up to %v, want %d", name, c.Count, c.Upper, want)
			}
		}
		if !b.HasNative {
			continue
		}
		if want := map[string]int32{"hist": 0, "fine": 3, "from 20": 1, "quantile": 3, "signed": 0}[name]; b.Schema != want {
			t.Errorf("%s has the schema %d, want %d", name, b.Schema, want)
		}
		native := b.Zero
		for _, n := range slices.Concat(b.Positive, b.Negative) {
			native += n.Count
		}
		if native != uint64(len(values)) {
			t.Errorf("%s: native buckets have %d of %d values", name, native, len(values))
		}
		for _, side := range [][]NativeBucket{b.Positive, b.Negative} {
			if !slices.IsSortedFunc(side, func(x, y NativeBucket) int { return int(x.Index - y.Index) }) {
				t.Errorf("%s: %v has no order", name, side)
			}
		}
	}
}

// Families of several programs are joined by name. They are plain data: another process can have them.
func TestJoin(t *testing.T) {
	one := New(Config{Program: "p"}).Families(snapshot(sums(map[string]uint64{"a": 1})))
	two := New(Config{Program: "q"}).Families(snapshot(sums(map[string]uint64{"b": 2})))
	all := Join(one, two)
	if f := find(t, all, "trace_map_keys"); len(f.Series) != 2 || valueOf(f, "@m", "q") != 1 {
		t.Errorf("got %+v", f.Series)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var again []Family
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	for i := range again {
		for n := range again[i].Series {
			again[i].Series[n].Created = all[i].Series[n].Created
		}
	}
	if !reflect.DeepEqual(all, again) {
		t.Errorf("%+v became %+v", all, again)
	}
}
