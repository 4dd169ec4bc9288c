package output

import (
	"fmt"
	"math"
	"time"
)

// This file lays out the histograms of a page and their changes over time.

// chart is a histogram: a bar for each bucket and, beside it, a heat map of when values came. Buckets are rows, the largest values
// on top.
type chart struct {
	Key           []string
	Count         string
	Percentiles   []Percentile
	Bars          []bucketBar
	Height        int // of the heat map
	Cells         []cell
	Begin, Middle string // the time axis
	End           string
}

// bucketBar is the bar of a bucket, or of neighbours if there are too many. Part is its length in percent.
type bucketBar struct {
	Label string
	Part  string
	N     uint64
	Mark  string // before the number
}

// cell is a cell of the heat map. Level is its colour, from 0.
type cell struct {
	X, Width string
	Y        int
	Level    int
	Title    string
}

// legend describes the colours of the heat maps of a map, from the fewest to the most values per second.
type legend struct {
	Least, Most string
	Width       int
	Swatches    []swatch
}

// swatch is a colour of a legend.
type swatch struct{ X, Level int }

// Measures of a chart. A heat map is heatWidth wide in units of its own. A cell is at least leastCell wide, so that it is visible.
const (
	chartRow   = 20
	chartRows  = 40
	heatWidth  = 650.0
	leastCell  = 5.0
	heatLevels = 9

	swatchWidth = 14
)

// charts returns the charts of the first rows of a map. A colour means the same in all of them.
func (d *Document) charts(v view, rows []row) ([]chart, *legend) {
	charts := make([]chart, len(rows))
	heats := make([][]heatColumn, len(rows))
	scale := heatScale{least: math.Inf(1)}
	for i, r := range rows {
		charts[i], heats[i] = d.chart(v, r)
		for _, column := range heats[i] {
			for _, n := range column.counts {
				scale.add(column.density(n))
			}
		}
	}
	if scale.most == 0 {
		return charts, nil
	}
	for i := range charts {
		charts[i].Cells = scale.cells(heats[i], charts[i].Bars)
	}
	return charts, scale.legend()
}

// chart returns the chart of a row, and the columns of its heat map.
func (d *Document) chart(v view, r row) (chart, []heatColumn) {
	c := chart{Key: r.Key, Count: r.Value, Percentiles: r.Percentiles}
	s := d.history.series[seriesName(v, r)]
	first, last := -1, -1
	if s != nil {
		first, last, _ = s.buckets()
	}
	counts := map[int]uint64{}
	for i, n := range r.histogram.Counts {
		bucket := r.histogram.First + i
		counts[bucket] = n
		if first < 0 || bucket < first {
			first = bucket
		}
		last = max(last, bucket)
	}
	if first < 0 {
		return c, nil
	}
	perRow := (last - first + chartRows) / chartRows
	rows := (last-first)/perRow + 1
	row := func(bucket int) int { return rows - 1 - (bucket-first)/perRow }
	c.Bars, c.Height = make([]bucketBar, rows), rows*chartRow
	for b := first; b <= last; b++ {
		c.Bars[row(b)].N += counts[b]
	}
	var most uint64
	for _, b := range c.Bars {
		most = max(most, b.N)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		if v.Estimate {
			b.Mark = string(estimated)
		}
		b.Label = v.label(first + (rows-1-i)*perRow)
		if low := lowerBound(b.Label); perRow > 1 && low != b.Label {
			b.Label = "from " + low
		}
		b.Part = fmt.Sprintf("%.2f", 100*float64(b.N)/float64(max(most, 1)))
	}
	if s == nil {
		return c, nil
	}
	c.Begin, c.Middle, c.End = d.history.axis()
	return c, d.heatColumns(s, row)
}

// axis returns the labels below a picture of the history.
func (h *history) axis() (begin, middle, end string) {
	last := h.moments[len(h.moments)-1]
	layout := "15:04:05"
	if last.Sub(h.began) < 20*time.Second {
		layout = "15:04:05.0"
	}
	return h.began.Format(layout), h.began.Add(last.Sub(h.began) / 2).Format(layout), last.Format(layout)
}

// heatColumn is what came to each row of a heat map in a period.
type heatColumn struct {
	from, to time.Time
	x, width float64
	counts   map[int]uint64
	least    time.Duration // its least length for densities
}

// density returns values per second, because columns may differ in length.
func (c heatColumn) density(n uint64) float64 {
	return float64(n) / max(c.to.Sub(c.from), c.least).Seconds()
}

// heatColumns returns the columns of a row. Neighbours that are too narrow to be seen are merged, and a short one that stays alone
// is drawn with the least width.
func (d *Document) heatColumns(s *series, row func(bucket int) int) []heatColumn {
	h := &d.history
	var columns []heatColumn
	open := false // the last one is narrow and takes the next one if that is narrow too
	for i, added := range s.added {
		from, to := d.x(h.start(i), heatWidth), d.x(h.moments[i], heatWidth)
		narrow := to-from < leastCell
		if !open || !narrow {
			columns = append(columns, heatColumn{from: h.start(i), x: from, counts: map[int]uint64{}, least: h.least})
		}
		c := &columns[len(columns)-1]
		c.to, c.width = h.moments[i], max(to-c.x, leastCell)
		c.x = min(c.x, heatWidth-c.width)
		for bucket, n := range added {
			c.counts[row(bucket)] += n
		}
		open = narrow && to-c.x < leastCell
	}
	return columns
}

// heatScale goes from the fewest values per second to the most. It is logarithmic: a tail of single values stays visible beside
// thousands.
type heatScale struct{ least, most float64 }

func (s *heatScale) add(density float64) {
	s.least, s.most = min(s.least, density), max(s.most, density)
}

func (s *heatScale) level(density float64) int {
	if s.most <= s.least {
		return heatLevels - 1
	}
	level := int(math.Log(density/s.least) / math.Log(s.most/s.least) * (heatLevels - 1))
	return min(max(level, 0), heatLevels-1)
}

func (s *heatScale) legend() *legend {
	l := &legend{Least: peakText(s.least), Most: peakText(s.most)}
	for level := s.level(s.least); level < heatLevels; level++ {
		l.Swatches = append(l.Swatches, swatch{l.Width, level})
		l.Width += swatchWidth
	}
	return l
}

func (s *heatScale) cells(columns []heatColumn, bars []bucketBar) []cell {
	var cells []cell
	for _, c := range columns {
		for y, b := range bars {
			n := c.counts[y]
			if n == 0 {
				continue
			}
			cells = append(cells, cell{
				X: fmt.Sprintf("%.1f", c.x), Width: fmt.Sprintf("%.1f", c.width), Y: y * chartRow, Level: s.level(c.density(n)),
				Title: fmt.Sprintf("%s, %s: %d × %s", c.from.Format("15:04:05.00"), roundLength(c.to.Sub(c.from)), n, b.Label),
			})
		}
	}
	return cells
}

// peakText returns a number of a scale as text.
func peakText(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}
