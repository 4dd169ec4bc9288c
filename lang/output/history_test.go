package output

import (
	"slices"
	"testing"
	"time"

	"trace/lang/result"
)

// histView is a view of a histogram whose bucket i has counts[i] values.
func histView(counts ...uint64) view {
	h := result.Histogram{Counts: counts}
	return view{Table: result.Table{Name: "@h", Func: "hist", Course: result.Spread, Zero: h}, Rows: []row{{Key: []string{"k"}, histogram: h}}}
}

func TestHistory(t *testing.T) {
	h := history{most: 3}
	for _, counts := range [][]uint64{{1, 0, 5}, {1, 2, 5}, {0, 1, 0}, {0, 1, 7}} { // cleared before the third
		h.add(time.Now(), []view{histView(counts...)})
	}
	s := h.series["@h\x00k"]
	want := []map[int]uint64{{1: 2}, {1: 1}, {2: 7}}
	for i, column := range s.added {
		for b := range 3 {
			if column[b] != want[i][b] {
				t.Errorf("column %d: %v, want %v", i, column, want[i])
			}
		}
	}
	if first, last, most := s.buckets(); first > 1 || last != 2 || most != 7 {
		t.Errorf("buckets %d to %d, at most %d", first, last, most)
	}
	// Merged columns lose nothing.
	m := history{most: 4, merge: true}
	for i := range uint64(9) {
		m.add(time.Now(), []view{histView(i+1, 2*(i+1))})
	}
	var sums [2]uint64
	for _, column := range m.series["@h\x00k"].added {
		sums[0], sums[1] = sums[0]+column[0], sums[1]+column[1]
	}
	if sums != [2]uint64{9, 18} || len(m.moments) > 4 {
		t.Errorf("merged: %v in %d columns", sums, len(m.moments))
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		room  int
		needs []int
		want  []int
	}{
		{20, []int{100, 2, 30}, []int{9, 2, 9}},
		{20, []int{3, 4}, []int{3, 4}},
		{20, []int{20, 1, 1}, []int{18, 1, 1}},
		{2, []int{5, 5, 5}, []int{0, 1, 1}},
		{-1, []int{5}, []int{0}},
		{3, nil, []int{}},
	} {
		if got := share(c.room, c.needs); !slices.Equal(got, c.want) {
			t.Errorf("%d lines for %d: %d, want %d", c.room, c.needs, got, c.want)
		}
	}
}

func TestCourse(t *testing.T) {
	s := series{numbers: []float64{3, 5, 5, 2, 4}}
	if got := s.course(result.Growth); !slices.Equal(got, []float64{3, 2, 0, 2, 2}) {
		t.Error(got)
	}
	if got := sparkline([]float64{0, 0.1, 7}, 7); got != "▁▂█" {
		t.Error(got)
	}
	if got := bar(0.55, 10); got != "█████▌" {
		t.Error(got)
	}
}
