package output

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/agg"
	"trace/lang/result"
	"trace/probes/event"
)

// tableOf is a map of an aggregation of durations, with the values of each key.
func tableOf(name string, f agg.Func, values map[string][]uint64) result.Table {
	show := agg.Show{Type: event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}, Elapsed: time.Second}
	t := result.Table{Name: name, Func: f.Name(), Key: []result.Column{{Name: "k", Type: event.Type{Kind: event.String, Size: 256}}}, Unit: show.Type.Unit, Zero: f.Result(make([]uint64, f.Words()), show), Course: f.Traits().Course}
	for key, all := range values {
		state := make([]uint64, f.Words())
		for _, x := range all {
			f.Add(state, x, false)
		}
		t.Rows = append(t.Rows, result.Row{Key: []any{key}, Value: f.Result(state, show), State: state})
	}
	t.Sort(result.ByValue, 0)
	slices.Reverse(t.Rows)
	return t
}

// tables are maps that do not change.
type tables []result.Table

func (t tables) Tables() ([]result.Table, error) { return t, nil }
func (tables) Clear() error                      { return nil }

// viewsOfTables returns the views of some maps.
func viewsOfTables(t *testing.T, all ...result.Table) []view {
	t.Helper()
	views, err := viewsOf(tables(all))
	if err != nil {
		t.Fatal(err)
	}
	return views
}

// frameOf returns the frame after views that come a second apart, without colours and without its first line.
func frameOf(l *Live, width, height int, seconds ...[]view) string {
	l.began = time.Now()
	l.history = history{most: 400, began: time.Unix(0, 0)}
	for i, views := range seconds {
		l.views = views
		l.history.add(time.Unix(int64(i+1), 0), views)
	}
	lines := l.frame(width, height)
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines[1:], "\n")
}

func rates(unit string, totals ...float64) []view {
	v := view{Table: result.Table{Name: "@r", Func: "rate", Course: result.Growth, Key: []result.Column{{Name: "k"}}}}
	for i, n := range totals {
		v.Rows = append(v.Rows, row{Key: []string{fmt.Sprintf("cc%d", i)}, Value: "the mean" + unit, Number: n})
	}
	slices.SortFunc(v.Rows, func(a, b row) int { return int(b.Number - a.Number) })
	return []view{v}
}

// The number of a rate is the one of the last second, which also orders the rows. All courses share the highest number.
func TestLiveRates(t *testing.T) {
	l := &Live{}
	got := frameOf(l, 60, 10, rates("", 7000, 0), rates("", 7000, 1000), rates("", 7000, 4500))
	want := "@r[k]  rate  2 keys  up to 7000/s\ncc1 3500/s  ▁▂▅\ncc0    0/s  █▁▁"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	l.byKey = true
	if got := frameOf(l, 60, 10, rates("", 7000, 0), rates("", 7000, 4500)); !strings.Contains(got, "cc0    0/s  █▁\ncc1 4500/s  ▁▆") {
		t.Error(got)
	}
}

// A dropped number is not counted as added in the first column that is left.
func TestLiveRatesOfLongRuns(t *testing.T) {
	h := history{most: 3, began: time.Unix(0, 0)}
	for i := range 6 {
		h.add(time.Unix(int64(10*(i+1)), 0), rates("", float64(1000*(i+1))))
	}
	v := rates("", 6000)[0]
	if got := h.course(v, v.Rows[0]); !slices.Equal(got, []float64{100, 100, 100}) || h.latest(v, v.Rows[0]) != 100 {
		t.Errorf("%v", got)
	}
}

// The shapes of histograms begin at the same bucket, and percentiles are not only bounds of their bucket.
func TestLiveHistograms(t *testing.T) {
	l := &Live{}
	views := viewsOfTables(t, tableOf("@lat", agg.NewHist(0, 0, 0), map[string][]uint64{"fast": slices.Repeat([]uint64{1500}, 10), "slow": {100e3, 30e3}}))
	got := frameOf(l, 90, 4, views)
	want := "@lat[k]  hist  2 keys  shapes from [1.02us, 2.05us) to [65.5us, 131us)\n" +
		"fast  n 10  p50 ≈1.54us  p90 ≈1.95us  p99 ≈2.04us  █▁▁▁▁▁▁\n" +
		"slow  n 2   p50 ≈32.8us  p90 ≈118us   p99 ≈130us   ▁▁▁▁█▁█"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// With more room there are heat maps.
	if got := frameOf(l, 90, 30, views); !strings.Contains(got, "a column is a second") || !strings.Contains(got, " 1.02us │") {
		t.Error(got)
	}
}

// The picture of percentiles shows where they are on a shared axis.
func TestLiveQuantiles(t *testing.T) {
	l := &Live{}
	views := viewsOfTables(t, tableOf("@q", agg.NewQuantile(50, 99), map[string][]uint64{"a": {1e3}, "b": {10e6, 10e3}}))
	got := frameOf(l, 60, 10, views)
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "@q[k]  quantile  2 keys  from 1") || !strings.HasSuffix(lines[0], "logarithmic") {
		t.Fatal(got)
	}
	for _, line := range lines[1:] {
		dots := strings.Count(line, "●")
		if fast := strings.HasPrefix(line, "a"); fast && dots != 1 || !fast && (dots != 2 || !strings.HasSuffix(line, "─●") || !strings.Contains(line, "  ●─")) {
			t.Error(line)
		}
	}
}

// counts is a map of n keys. key0 has the largest value.
func counts(name string, n int) view {
	v := view{Table: result.Table{Name: name, Func: "count", Key: []result.Column{{Name: "k"}}}}
	for i := range n {
		v.Rows = append(v.Rows, row{Key: []string{fmt.Sprintf("%skey%d", name, i)}, Value: "1", Number: float64(n - i)})
	}
	return v
}

// The arrows and similar keys reach the keys below the screen, in each map up to its last one.
func TestLiveScrolls(t *testing.T) {
	l := &Live{}
	views := []view{counts("@a", 30), counts("@b", 12), counts("@c", 2)}
	seen := func() (keys []string) {
		for line := range strings.Lines(frameOf(l, 40, 20, views)) { // the first line, and 3 + 8 + 8
			if word, _, _ := strings.Cut(line, " "); strings.Contains(word, "key") {
				keys = append(keys, word)
			}
		}
		return keys
	}
	check := func(pressed key, first, last string) {
		t.Helper()
		if pressed != 0 {
			l.press(pressed)
		}
		keys := seen()
		b := slices.IndexFunc(keys, func(k string) bool { return strings.HasPrefix(k, "@b") })
		if len(keys) != 7+7+2 || keys[0] != first || keys[b] != last || keys[14] != "@ckey0" {
			t.Errorf("after %d: %v", pressed, keys)
		}
	}
	check(0, "@akey0", "@bkey0")
	check(upKey, "@akey0", "@bkey0")
	check('j', "@akey1", "@bkey1")
	check(pageDownKey, "@akey8", "@bkey5") // @b has no more
	check(pageUpKey, "@akey1", "@bkey1")
	check(endKey, "@akey23", "@bkey5")
	check(downKey, "@akey23", "@bkey5")
	check('k', "@akey22", "@bkey5")
	check(homeKey, "@akey0", "@bkey0")
	if got := frameOf(l, 40, 20, views); strings.Contains(got, "from key") {
		t.Error(got)
	}
	l.press(downKey)
	if got := frameOf(l, 40, 20, views); !strings.Contains(got, "@a[k]  count  30 keys, from key 2\n") {
		t.Error(got)
	}
	// A map that has become smaller moves the view.
	l.press(endKey)
	views = []view{counts("@a", 2)}
	if got := frameOf(l, 40, 20, views); !strings.Contains(got, "@akey0") || l.scroll.skip != 0 {
		t.Error(got)
	}
}

func TestLastWindow(t *testing.T) {
	for _, c := range []struct {
		heights []int
		room    int
		want    int
	}{
		{[]int{1, 1, 1}, 3, 0}, {[]int{1, 1, 1, 1}, 3, 1}, {[]int{5, 3, 2}, 5, 1}, {[]int{5, 9}, 5, 1}, {[]int{1, 1}, 0, 0}, {nil, 5, 0},
	} {
		if got := lastWindow(c.heights, c.room); got != c.want {
			t.Errorf("%v in %d lines: %d, want %d", c.heights, c.room, got, c.want)
		}
	}
}

func TestKeyDecoder(t *testing.T) {
	var got []key
	var d keyDecoder
	for _, b := range []byte("s\x1b[A\x1bOBj\x1b[5~\x1b[6~\x1b[1;5Hx\x1b[H\x1b[4~\x1bq\x1b[" + strings.Repeat("1", 40) + "A\x03") {
		if k, ok := d.feed(b); ok {
			got = append(got, k)
		}
	}
	want := []key{'s', upKey, downKey, 'j', pageUpKey, pageDownKey, 'x', homeKey, endKey, 'q'}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || got[len(got)-1] != ctrlCKey {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLiveHelp(t *testing.T) {
	l := &Live{}
	views := []view{counts("@a", 3)}
	if !l.press('?') {
		t.Error("? quits")
	}
	if got := frameOf(l, 80, 24, views); !strings.Contains(got, "PgUp PgDn") || strings.Contains(got, "@akey0") {
		t.Error(got)
	}
	for _, line := range []string{
		"up down, k j           scroll by a key", "PgUp PgDn              scroll by a screen", "Home End, g G          go to the first or the last keys",
		"s                      sort by value or by key", "p, space               pause or continue", "r                      reset: empty the maps",
		"?                      this list; any key closes it", "q, Ctrl-C, Ctrl-D      quit, and print the maps",
	} {
		if got := frameOf(l, 80, 24, views); !strings.Contains(got, line) {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	l.press('s') // removes it, and does nothing else
	if got := frameOf(l, 80, 24, views); strings.Contains(got, "PgUp PgDn") || !strings.Contains(got, "@akey0") || l.byKey {
		t.Error(got)
	}
	for _, quits := range quitKeys {
		l.help = true
		if l.press(quits) {
			t.Errorf("%d does not quit", quits)
		}
	}
}

// No line is wider than the terminal, and no frame is higher, however small the terminal is.
func TestLiveFits(t *testing.T) {
	l := &Live{program: strings.Repeat("long ", 50), lines: []string{strings.Repeat("printed ", 30)}}
	views := viewsOfTables(t,
		tableOf("@lat", agg.NewHist(0, 0, 0), map[string][]uint64{strings.Repeat("k", 200): {1e6}, "b": {5e9}}),
		tableOf("@q", agg.NewQuantile(50, 99), map[string][]uint64{"a": {1e3}}),
		tableOf("@r", agg.Rate{}, map[string][]uint64{"a": {1024}}),
		tableOf("@s", agg.Stats{}, map[string][]uint64{"a": {5}}))
	for _, size := range [][2]int{{10, 3}, {17, 5}, {40, 12}, {80, 24}, {200, 60}} {
		for i, line := range strings.Split(frameOf(l, size[0], size[1], views, views), "\n") {
			if n := len([]rune(line)); n > size[0] || i+1 >= size[1] && line != "" {
				t.Errorf("%d columns, %d lines: line %d has %d columns: %s", size[0], size[1], i+2, n, line)
			}
		}
	}
}
