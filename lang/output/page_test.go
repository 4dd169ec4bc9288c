package output

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/result"
)

func TestFlame(t *testing.T) {
	f := newFlame(sampled[0])
	// Samples without a stack have no place in the graph, and are counted.
	want := []string{"@ — 7, 100.00%", "dd — 7, 100.00%", "main — 7, 100.00%", "a;b\nc 1 — 2, 28.57%", "read — 5, 71.43%"}
	var got []string
	for _, b := range f.Boxes {
		got = append(got, b.Title)
	}
	if !slices.Equal(got, want) || f.Total != "7" || f.Without != "1" || f.Part != "12.5" || f.Height != 4*flameRow {
		t.Errorf("%q, %+v", got, f)
	}
	if read, main := f.Boxes[4], f.Boxes[2]; read.Y != main.Y-flameRow || read.X != "28.571" || read.Width != "71.429" || read.Name != "read" {
		t.Errorf("read at %v, main at %v", read, main)
	}
	if newFlame(result.Profile{}) != nil {
		t.Error("a flame graph of nothing")
	}
	if f := newFlame(result.Profile{Samples: []result.Sample{{Key: []string{"idle"}, Value: 3}}}); len(f.Boxes) != 0 || f.Without != "3" || f.Part != "100.0" {
		t.Errorf("without any stack: %+v", f)
	}
	// A narrow frame has no name, a frame that is too narrow to be seen appears in a zoom, and an even narrower frame is counted.
	thin := newFlame(result.Profile{Samples: []result.Sample{
		{Frames: []string{"a"}, Value: 988_950}, {Frames: []string{"b"}, Value: 10_000}, {Frames: []string{"c", "d"}, Value: 500}, {Frames: []string{"e", "f"}, Value: 50},
	}})
	if len(thin.Boxes) != 5 || thin.Thin != 2 || thin.Narrow != 1 || thin.Boxes[2].Name != "" || strings.Contains(thin.Boxes[2].Class, "thin") || !strings.HasSuffix(thin.Boxes[3].Class, " thin") {
		t.Errorf("%+v", thin)
	}
}

// TestHistoryKeepsThePast checks that columns stay about equally long, however long a run is: the past does not fade.
func TestHistoryKeepsThePast(t *testing.T) {
	h := history{most: 20, merge: true, began: time.Unix(0, 0)}
	const seconds = 5000
	for i := range uint64(seconds) {
		h.add(h.began.Add(time.Duration(i+1)*time.Second), []view{histView(i + 1)})
	}
	var n uint64
	for i, column := range h.series["@h\x00k"].added {
		n += column[0]
		if span := h.span(i); i < len(h.moments)-1 && (span < seconds*time.Second/40 || span > seconds*time.Second/5) {
			t.Errorf("column %d of %d is %v long", i, len(h.moments), span)
		}
	}
	if n != seconds || len(h.moments) < 5 {
		t.Errorf("%d values in %d columns", n, len(h.moments))
	}
}

// TestHeatColumns checks that values from an instant of a long run are visible, and do not mix with earlier and later ones.
func TestHeatColumns(t *testing.T) {
	began := time.Unix(0, 0)
	d := &Document{history: history{most: 1000, began: began, least: leastStep}}
	add := func(at time.Duration, n uint64) { d.history.add(began.Add(at), []view{histView(n)}) }
	add(50*time.Millisecond, 3) // alone, at the begin
	add(30*time.Minute, 3)
	add(30*time.Minute+50*time.Millisecond, 5) // two neighbours
	add(30*time.Minute+100*time.Millisecond, 6)
	add(60*time.Minute, 6)
	add(60*time.Minute+50*time.Millisecond, 10) // and at the end
	columns := d.heatColumns(d.history.series["@h\x00k"], func(bucket int) int { return bucket })
	var counts []uint64
	for _, c := range columns {
		if c.width < leastCell || c.x < 0 || c.x+c.width > heatWidth+0.001 {
			t.Errorf("a column of %v at %v", c.width, c.x)
		}
		if n := c.counts[0]; n > 0 {
			counts = append(counts, n)
			if span := c.to.Sub(c.from); span > 100*time.Millisecond || c.density(n) != float64(n)/span.Seconds() {
				t.Errorf("%d values in %v are %v a second", n, span, c.density(n))
			}
		}
	}
	if !slices.Equal(counts, []uint64{3, 3, 4}) {
		t.Errorf("columns of %d values", counts)
	}
}

// The colours of a legend are the colours of the cells, from the fewest to the most.
func TestHeatScale(t *testing.T) {
	s := heatScale{least: 2, most: 2}
	if l := s.legend(); l.Least != "2" || l.Most != "2" || len(l.Swatches) != 1 || l.Swatches[0].Level != s.level(2) {
		t.Errorf("%+v", l)
	}
	s.add(2000)
	if l := s.legend(); l.Least != "2" || l.Most != "2000" || len(l.Swatches) != heatLevels || l.Width != heatLevels*swatchWidth {
		t.Errorf("%+v", l)
	}
	if s.level(2) != 0 || s.level(2000) != heatLevels-1 || s.level(63) != 3 {
		t.Errorf("levels %d %d %d", s.level(2), s.level(63), s.level(2000))
	}
}

func TestAxis(t *testing.T) {
	a := newAxis([]row{{Percentiles: []Percentile{{At: 10}, {At: 1e6}}}, {Percentiles: []Percentile{{At: 1e3}}}})
	if a.place(10) != 0 || a.place(1e6) != 1 || a.place(1e3) < 0.39 || a.place(1e3) > 0.41 {
		t.Errorf("%+v: %v %v %v", a, a.place(10), a.place(1e3), a.place(1e6))
	}
	if a := newAxis([]row{{Percentiles: []Percentile{{At: -5}, {At: 5}}}}); a.place(-5) != 0 || a.place(0) != 0 || a.place(5) != 1 {
		t.Errorf("%+v", a)
	}
	if a := newAxis([]row{{Percentiles: []Percentile{{At: 5}}}}); a.place(5) != 0 {
		t.Errorf("%+v", a)
	}
}

// A page with flame graphs has only the script that its policy allows, and one folded table for each map.
func TestPageOfStacks(t *testing.T) {
	var b bytes.Buffer
	d := NewDocument(HTML, About{})
	shown := view{Table: result.Table{Name: "@", Func: "count", Key: []result.Column{{Name: "disk"}, {Name: "kstack"}}}}
	profile := result.Profile{Map: "@"}
	for i := range 60 {
		frames := make([]string, 100)
		for n := range frames {
			frames[n] = fmt.Sprintf("f%d</title><script>'\"&%d", n, i)
		}
		shown.Rows = append(shown.Rows, row{Key: []string{"dd", strings.Join(frames, "\n")}, Value: "1", Number: 1})
		profile.Samples = append(profile.Samples, result.Sample{Key: []string{"dd"}, Frames: frames, Value: 1})
	}
	if err := layOutPage(&b, d, Summary{Host: "h"}, []view{shown}, []result.Profile{profile}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "<summary>as a table</summary>"); n != 1 || strings.Contains(page, "35 more") {
		t.Errorf("%d tables of one map", n)
	}
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 || strings.Count(page, "<script") != 1 {
		t.Fatalf("%d scripts", len(scripts))
	}
	sum := sha256.Sum256([]byte(scripts[0][1]))
	policy := html.UnescapeString(regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)[1])
	if want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.HasSuffix(policy, want) {
		t.Errorf("the policy is %s, want %s", policy, want)
	}
	if !strings.Contains(page, `<div class="frames">`) || !strings.Contains(page, ".frames { display: flex; flex-direction: column-reverse; max-height: ") {
		t.Error("nothing bounds the height of deep stacks")
	}
}
