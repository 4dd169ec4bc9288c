package output

import (
	"maps"
	"slices"
	"strings"
	"time"

	"trace/lang/result"
)

// history keeps how maps changed: what was added to the buckets of each histogram, and the number of every other row, by moment.
type history struct {
	// moments are the ends of the columns, oldest first. most is how many are kept.
	moments []time.Time
	most    int
	// merge reports what happens when there are more: with merge two columns become one, otherwise the oldest is dropped.
	merge bool
	// began is when the first column begins. With merge no column except the last is shorter than step, which grows as columns are
	// merged; otherwise the past would fade.
	began  time.Time
	step   time.Duration
	series map[string]*series
	// least is the least length of a column for rates: values that come in an instant should not show as a million per second.
	least time.Duration
}

// series is the history of one row of a map.
type series struct {
	// last are the counts of the buckets at the last moment.
	last map[int]uint64
	// added by column and bucket. numbers by column, for a row that is not a histogram.
	added   []map[int]uint64
	numbers []float64
	// before is the number of the last dropped column.
	before float64
}

func seriesName(v view, r row) string { return v.Name + "\x00" + strings.Join(r.Key, "\x00") }

// add appends a column.
func (h *history) add(now time.Time, views []view) {
	if h.series == nil {
		h.series = map[string]*series{}
	}
	if h.began.IsZero() {
		h.began = now
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
		s.fill(len(h.moments)) // of rows that are gone
	}
	if n := len(h.moments); h.merge && n > 1 && h.span(n-2) < h.step {
		h.join(n - 2)
	}
}

// start returns when a column begins, and span how long it is.
func (h *history) start(i int) time.Time {
	if i == 0 {
		return h.began
	}
	return h.moments[i-1]
}

func (h *history) span(i int) time.Duration { return h.moments[i].Sub(h.start(i)) }

// shownAs sets the least width of a drawn column, as a part of the picture. The column counts for that time.
func (h *history) shownAs(part float64) {
	if n := len(h.moments); n > 0 {
		h.least = max(h.least, time.Duration(part*float64(h.moments[n-1].Sub(h.began))))
	}
}

// perSecond converts a number of a column to a number per second.
func (h *history) perSecond(i int, n float64) float64 {
	span := max(h.span(i), h.least)
	if span <= 0 {
		return 0
	}
	return n / span.Seconds()
}

// course returns how the number of a row changed; for a rate, per second. It is nil for a row that never existed.
func (h *history) course(v view, r row) []float64 {
	s := h.series[seriesName(v, r)]
	if s == nil {
		return nil
	}
	course := s.course(v.Course)
	if v.Course == result.Growth {
		for i, n := range course {
			course[i] = h.perSecond(i, n)
		}
	}
	return course
}

// latest returns the number of a rate in the last column, per second.
func (h *history) latest(v view, r row) float64 {
	s := h.series[seriesName(v, r)]
	if s == nil {
		return 0
	}
	last := len(s.numbers) - 1
	return h.perSecond(last, s.addedIn(last))
}

// join merges column i and the next one.
func (h *history) join(i int) {
	h.moments = slices.Delete(h.moments, i, i+1)
	for _, s := range h.series {
		s.added[i+1] = sum(s.added[i], s.added[i+1])
		s.added, s.numbers = slices.Delete(s.added, i, i+1), slices.Delete(s.numbers, i, i+1)
	}
}

// sum adds the buckets of two columns.
func sum(a, b map[int]uint64) map[int]uint64 {
	if len(a) == 0 {
		return b
	}
	both := maps.Clone(a)
	for bucket, n := range b {
		both[bucket] += n
	}
	return both
}

// shrink makes room for a column.
func (h *history) shrink() {
	if !h.merge {
		h.began = h.moments[0]
		h.moments = slices.Delete(h.moments, 0, 1)
		for _, s := range h.series {
			s.before = s.numbers[0]
			s.added, s.numbers = slices.Delete(s.added, 0, 1), slices.Delete(s.numbers, 0, 1)
		}
		return
	}
	for i := range len(h.moments) / 2 {
		h.join(i)
	}
	h.step = max(h.step, h.moments[len(h.moments)-1].Sub(h.began)/time.Duration(h.most)*3/2)
}

// fill appends empty columns until there are n.
func (s *series) fill(n int) {
	for len(s.added) < n {
		s.added, s.numbers = append(s.added, nil), append(s.numbers, 0)
	}
}

// add adds a row to column n-1. If several rows look alike, the first counts.
func (s *series) add(r row, n int) {
	if s.fill(n - 1); len(s.added) == n {
		return
	}
	counts := map[int]uint64{}
	var column map[int]uint64
	for i, n := range r.histogram.Counts {
		bucket := r.histogram.First + i
		if n == 0 {
			continue
		}
		counts[bucket] = n
		added := n
		if before := s.last[bucket]; before <= n { // otherwise it was cleared
			added -= before
		}
		if added > 0 {
			if column == nil {
				column = map[int]uint64{}
			}
			column[bucket] = added
		}
	}
	s.last = counts
	s.added, s.numbers = append(s.added, column), append(s.numbers, r.Number)
}

// course returns the numbers to draw. A rate is a total that grows, so they are its increases; a gauge is drawn as it is.
func (s *series) course(course result.Course) []float64 {
	if course != result.Growth {
		return slices.Clone(s.numbers)
	}
	added := make([]float64, len(s.numbers))
	for i := range added {
		added[i] = s.addedIn(i)
	}
	return added
}

// addedIn returns by how much a total grew in a column.
func (s *series) addedIn(i int) float64 {
	n, before := s.numbers[i], s.before
	if i > 0 {
		before = s.numbers[i-1]
	}
	if n < before { // it was printed and restarted
		return n
	}
	return n - before
}

// buckets returns the first and the last bucket that ever had a value, and the most that was added to one in a column.
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
