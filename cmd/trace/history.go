package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"trace/lang"
)

// history keeps how maps changed: what was added to the buckets of each histogram, and the number of every other entry, moment by moment.
type history struct {
	// moments are the ends of the columns, oldest first; most is how many are kept.
	moments []time.Time
	most    int
	// merge says what happens when there are more: two columns become one, or the oldest is forgotten.
	merge  bool
	series map[string]*series
}

// series is the history of one entry of a map.
type series struct {
	// last are the counts of the buckets at the last moment.
	last map[int]uint64
	// added by column and bucket; of an entry that is no histogram, numbers by column.
	added   []map[int]uint64
	numbers []float64
}

func seriesName(v lang.View, r lang.Row) string { return v.Name + "\x00" + strings.Join(r.Key, "\x00") }

// add appends a column.
func (h *history) add(now time.Time, views []lang.View) {
	if h.series == nil {
		h.series = map[string]*series{}
	}
	if len(h.moments) == h.most {
		h.shrink()
	}
	h.moments = append(h.moments, now)
	for _, v := range views {
		for _, r := range v.Rows {
			name := seriesName(v, r)
			if h.series[name] == nil {
				h.series[name] = &series{}
			}
			h.series[name].add(r, len(h.moments))
		}
	}
	for _, s := range h.series {
		s.fill(len(h.moments)) // of what is no longer there
	}
}

// shrink makes room for a column.
func (h *history) shrink() {
	if !h.merge {
		h.moments = slices.Delete(h.moments, 0, 1)
		for _, s := range h.series {
			s.added, s.numbers = slices.Delete(s.added, 0, 1), slices.Delete(s.numbers, 0, 1)
		}
		return
	}
	half := len(h.moments) / 2
	for i := range half {
		h.moments[i] = h.moments[2*i+1]
	}
	h.moments = h.moments[:half]
	for _, s := range h.series {
		for i := range half {
			sum := maps.Clone(s.added[2*i])
			if sum == nil {
				sum = map[int]uint64{}
			}
			for bucket, n := range s.added[2*i+1] {
				sum[bucket] += n
			}
			s.added[i], s.numbers[i] = sum, s.numbers[2*i+1]
		}
		s.added, s.numbers = s.added[:half], s.numbers[:half]
	}
}

// fill appends empty columns until there are n.
func (s *series) fill(n int) {
	for len(s.added) < n {
		s.added, s.numbers = append(s.added, nil), append(s.numbers, 0)
	}
}

// add puts an entry into column n-1.
func (s *series) add(r lang.Row, n int) {
	s.fill(n - 1)
	counts, column := map[int]uint64{}, map[int]uint64{}
	for _, b := range r.Buckets {
		counts[b.Index] = b.N
		added := b.N
		if before := s.last[b.Index]; before <= b.N { // else it was cleared
			added -= before
		}
		if added > 0 {
			column[b.Index] = added
		}
	}
	s.last = counts
	s.added, s.numbers = append(s.added, column), append(s.numbers, r.Number)
}

// course is what to draw of a number: a rate is told as a total that grows, so what was added in each column; a gauge is as it is.
func (s *series) course(fn string) []float64 {
	if fn != "rate" {
		return s.numbers
	}
	var added []float64
	for i, n := range s.numbers {
		if i > 0 && n >= s.numbers[i-1] { // else it was printed, and began again
			n -= s.numbers[i-1]
		}
		added = append(added, n)
	}
	return added
}

// buckets are the first and the last bucket that ever had a value, and the most that was added to one in a column.
func (s *series) buckets() (first, last int, most uint64) {
	first, last = -1, -1
	for _, column := range s.added {
		for bucket, n := range column {
			if first < 0 || bucket < first {
				first = bucket
			}
			last, most = max(last, bucket), max(most, n)
		}
	}
	return first, last, most
}
