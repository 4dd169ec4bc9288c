package main

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"trace/lang"
)

// This file lays out the page of -f html: one file without anything from elsewhere, so that it can be sent and kept. page.html has its form.

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	facts
	Version, Program string
	When, Length     string
	Counted          bool // of probes, how many events were rejected
	Maps             []pageMap
	Printed          []string
}

// pageMap is a map. Tables and Charts are of its first entries; More says how many there are besides.
type pageMap struct {
	Name, Fn, Size string
	Charts         []chart
	Flame          *flame
	Tables         []table
	More           int
}

// As many entries of a map have a chart, are seen at once in a table, or are in it at all.
const (
	mostCharts = 24
	seenRows   = 25
	mostRows   = 500
)

// table is a part of the entries of a map. One with a title is folded until somebody wants to see it.
type table struct {
	Title  string
	Course bool // the rows have one
	Rows   []tableRow
}

func writePage(w io.Writer, d *document, f facts, views []lang.View, profiles []lang.Profile) error {
	p := page{
		facts: f, Version: version(), Program: strings.TrimSpace(d.program), When: f.Began.Format("2006-01-02 15:04:05 MST"),
		Length: roundLength(f.Ended.Sub(f.Began)), Printed: slices.DeleteFunc(d.printed.lines(), func(s string) bool { return s == "" }),
	}
	p.Counted = slices.ContainsFunc(f.Probes, func(p probeFact) bool { return p.Rejected != nil })
	for _, v := range views {
		m := d.pageMap(v)
		if i := slices.IndexFunc(profiles, func(p lang.Profile) bool { return p.Map == v.Name }); i >= 0 {
			m.Flame = newFlame(profiles[i])
			for i := range m.Tables { // stacks are long
				m.Tables[i].Title = "as a table"
			}
		}
		p.Maps = append(p.Maps, m)
	}
	return pageTemplate.Execute(w, p)
}

// roundLength is a length of time without digits that nobody reads.
func roundLength(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// peakText is the largest number of a course, as it is written beside it.
func peakText(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

func (d *document) pageMap(v lang.View) pageMap {
	m := pageMap{Name: v.Name, Fn: v.Fn}
	if v.Keys > 0 {
		m.Size = plural(len(v.Rows), "key")
	}
	rows := v.Rows
	if isHistogram(v) {
		n := min(len(rows), mostCharts)
		for _, r := range rows[:n] {
			m.Charts = append(m.Charts, d.chart(v, r))
		}
		rows = rows[n:]
	}
	m.More = max(0, len(rows)-mostRows)
	rows = rows[:len(rows)-m.More]
	most := 0.0
	for _, r := range rows {
		most = max(most, math.Abs(r.Number))
	}
	all := table{Course: v.Fn == "rate" || v.Fn == "gauge"}
	for _, r := range rows {
		all.Rows = append(all.Rows, d.tableRow(v, r, most))
	}
	m.Tables = all.parts(len(m.Charts) > 0)
	return m
}

// parts are what is seen at once, and the rest.
func (t table) parts(folded bool) []table {
	first, rest := t, t
	seen := min(len(t.Rows), seenRows)
	if folded {
		seen = 0
	}
	first.Rows, rest.Rows = t.Rows[:seen], t.Rows[seen:]
	rest.Title = fmt.Sprintf("%d more", len(rest.Rows))
	return slices.DeleteFunc([]table{first, rest}, func(t table) bool { return len(t.Rows) == 0 })
}

func (d *document) tableRow(v lang.View, r lang.Row, most float64) tableRow {
	row := tableRow{Key: r.Key, Value: r.Value}
	switch {
	case v.Fn == "rate" || v.Fn == "gauge":
		row.Line, row.Peak = d.line(v, r)
	case most > 0 && v.Keys > 0:
		row.Part = fmt.Sprintf("%.2f", 100*math.Abs(r.Number)/most)
	}
	for _, p := range r.Percentiles {
		row.Value += fmt.Sprintf("  %s %s", p.Name, p.Value)
	}
	return row
}

// tableRow is an entry: Part is how long its bar is, in percent, and Line how it went, as points in a box of lineWidth to lineHeight.
type tableRow struct {
	Key   []string
	Value string
	Part  string
	Line  string
	Peak  string
}

const (
	lineWidth  = 300.0
	lineHeight = 28.0
)

// line draws how a number went: of a rate how much a second, in steps, as wide as their times.
func (d *document) line(v lang.View, r lang.Row) (points, peak string) {
	s := d.history.series[seriesName(v, r)]
	if s == nil {
		return "", ""
	}
	course := slices.Clone(s.course(v.Fn))
	most := 0.0
	for i := range course {
		if v.Fn == "rate" {
			course[i] /= max(d.history.span(i), leastStep).Seconds()
		}
		most = max(most, course[i])
	}
	if most == 0 {
		return "", ""
	}
	var b strings.Builder
	for i, n := range course {
		y := lineHeight - 1 - max(0, n)/most*(lineHeight-3)
		fmt.Fprintf(&b, "%.1f,%.1f %.1f,%.1f ", d.x(d.history.start(i), lineWidth), y, d.x(d.history.moments[i], lineWidth), y)
	}
	if v.Fn == "rate" {
		return b.String(), "at most " + peakText(most) + " a second"
	}
	return b.String(), "at most " + peakText(most)
}

// x is where a moment is in the width of a picture.
func (d *document) x(t time.Time, width float64) float64 {
	h := &d.history
	all := h.moments[len(h.moments)-1].Sub(h.began)
	return width * float64(t.Sub(h.began)) / float64(max(all, 1))
}

// chart is a histogram: a bar for each bucket, and beside it how many values came when. Buckets are rows, the largest values on top.
type chart struct {
	Key           []string
	Count         string
	Percentiles   []lang.Percentile
	Height, Foot  int
	Left, Heat    int // where the bars and the heat map begin
	Bars          []bucketBar
	Cells         []cell
	Begin, Middle string // the time axis
	End           string
}

// bucketBar is the bar of a bucket, or of neighbours if there are too many.
type bucketBar struct {
	Label    string
	Y, TextY int
	Width    string
	N        uint64
	NX       string // where the number is
}

// cell is one of the heat map. Level is its colour, from 0.
type cell struct {
	X, Width string
	Y        int
	Level    int
	Title    string
}

// Measures of a chart, in units of its picture, which is pictureWidth wide.
const (
	pictureWidth = 1160
	chartLabel   = 132
	chartBars    = 300
	chartHeat    = 510
	chartRow     = 20
	chartRows    = 40
	heatLevels   = 9
)

func (d *document) chart(v lang.View, r lang.Row) chart {
	c := chart{Key: r.Key, Count: r.Value, Percentiles: r.Percentiles, Left: chartLabel, Heat: chartHeat}
	s := d.history.series[seriesName(v, r)]
	first, last := -1, -1
	if s != nil {
		first, last, _ = s.buckets()
	}
	counts := map[int]uint64{}
	for _, b := range r.Buckets {
		counts[b.Index] = b.N
		if first < 0 || b.Index < first {
			first = b.Index
		}
		last = max(last, b.Index)
	}
	if first < 0 {
		return c
	}
	perRow := (last - first + chartRows) / chartRows
	rows := (last-first)/perRow + 1
	row := func(bucket int) int { return rows - 1 - (bucket-first)/perRow }
	c.Height, c.Foot = rows*chartRow+24, rows*chartRow+18
	c.Bars = make([]bucketBar, rows)
	for b := first; b <= last; b++ {
		c.Bars[row(b)].N += counts[b]
	}
	var most uint64
	for _, b := range c.Bars {
		most = max(most, b.N)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		low := first + (rows-1-i)*perRow
		b.Label = d.exec.BucketLabel(v.Name, low)
		if low := lowerBound(b.Label); perRow > 1 && low != b.Label {
			b.Label = "from " + low
		}
		width := float64(chartBars) * float64(b.N) / float64(max(most, 1))
		if b.N > 0 {
			width = max(width, 1.5)
		}
		b.Y, b.TextY = i*chartRow, i*chartRow+14
		b.Width, b.NX = fmt.Sprintf("%.1f", width), fmt.Sprintf("%.1f", chartLabel+width+6)
	}
	if s != nil {
		c.Cells = d.cells(s, c.Bars, row)
		h := &d.history
		end := h.moments[len(h.moments)-1]
		middle := h.began.Add(end.Sub(h.began) / 2)
		layout := "15:04:05"
		if end.Sub(h.began) < 20*time.Second {
			layout = "15:04:05.0"
		}
		c.Begin, c.Middle, c.End = h.began.Format(layout), middle.Format(layout), end.Format(layout)
	}
	return c
}

// cells of a heat map. Colours tell how many values there were a second, as columns may be of different length, on a logarithmic scale:
// a tail of single values stays visible beside thousands.
func (d *document) cells(s *series, bars []bucketBar, row func(bucket int) int) []cell {
	h := &d.history
	const width = pictureWidth - chartHeat
	columns := make([]map[int]uint64, len(s.added))
	most, least := 0.0, math.Inf(1)
	density := func(i int, n uint64) float64 { return float64(n) / max(h.span(i), leastStep).Seconds() }
	for i, column := range s.added {
		columns[i] = map[int]uint64{}
		for bucket, n := range column {
			columns[i][row(bucket)] += n
		}
		for _, n := range columns[i] {
			most, least = max(most, density(i, n)), min(least, density(i, n))
		}
	}
	var cells []cell
	for i, column := range columns {
		for y := range bars {
			n := column[y]
			if n == 0 {
				continue
			}
			level := heatLevels - 1
			if most > least {
				level = int(math.Log(density(i, n)/least) / math.Log(most/least) * (heatLevels - 1))
			}
			from, to := d.x(h.start(i), width), d.x(h.moments[i], width)
			cells = append(cells, cell{
				X: fmt.Sprintf("%.1f", chartHeat+from), Width: fmt.Sprintf("%.1f", max(to-from, 0.5)), Y: y * chartRow, Level: min(max(level, 0), heatLevels-1),
				Title: fmt.Sprintf("%s: %d × %s", h.start(i).Format("15:04:05.00"), n, bars[y].Label),
			})
		}
	}
	return cells
}

// flame is a flame graph, the root at the bottom.
type flame struct {
	Height  int
	Boxes   []box
	Total   string
	Narrow  int // frames too narrow to be drawn
	Missing int // entries with a value below 0
}

// box is a call, as wide as its part of the whole.
type box struct {
	X, Width    string
	Y, TextY    int
	TextX       string
	Class       string
	Name, Title string
}

const (
	flameRow    = 19
	narrowest   = 0.4
	letterWidth = 6.7
)

// call is a node of the tree that a flame graph shows.
type call struct {
	name  string
	key   bool // an element of the key, not a frame
	value uint64
	calls []*call
	index map[string]*call
}

func (c *call) child(name string, key bool) *call {
	if c.index == nil {
		c.index = map[string]*call{}
	}
	next := c.index[name]
	if next == nil {
		next = &call{name: name, key: key}
		c.index[name] = next
		c.calls = append(c.calls, next)
	}
	return next
}

func (c *call) depth() int {
	deepest := 0
	for _, next := range c.calls {
		deepest = max(deepest, next.depth())
	}
	return deepest + 1
}

func newFlame(p lang.Profile) *flame {
	root := &call{name: p.Map, key: true}
	for _, s := range p.Samples {
		at := root
		at.value += s.Value
		for i, name := range flames(s) {
			at = at.child(name, i < len(s.Key))
			at.value += s.Value
		}
	}
	if root.value == 0 {
		return nil
	}
	f := &flame{Total: p.Text(root.value), Missing: p.Negative}
	depth := root.depth()
	f.Height = depth * flameRow
	f.draw(p, root, root.value, 0, depth-1)
	return f
}

// draw a call from x on, in the row so many from the top, and those that it made above it.
func (f *flame) draw(p lang.Profile, c *call, all uint64, x float64, row int) {
	width := pictureWidth * float64(c.value) / float64(all)
	if width < narrowest {
		f.Narrow++
		return
	}
	b := box{
		X: fmt.Sprintf("%.2f", x), Width: fmt.Sprintf("%.2f", max(width-0.6, 0.3)), Y: row * flameRow, TextY: row*flameRow + 13, TextX: fmt.Sprintf("%.2f", x+4),
		Class: flameClass(c), Title: fmt.Sprintf("%s — %s, %.2f%%", c.name, p.Text(c.value), 100*float64(c.value)/float64(all)),
	}
	if room := int((width - 8) / letterWidth); room >= 3 || room >= utf8.RuneCountInString(c.name) {
		b.Name = fit(c.name, room)
	}
	f.Boxes = append(f.Boxes, b)
	slices.SortFunc(c.calls, func(a, b *call) int { return strings.Compare(a.name, b.name) })
	for _, next := range c.calls {
		f.draw(p, next, all, x, row-1)
		x += pictureWidth * float64(next.value) / float64(all)
	}
}

// flameClass is the colour of a call: always the same for a name.
func flameClass(c *call) string {
	switch {
	case c.key:
		return "key"
	case c.name == noStack:
		return "none"
	}
	h := fnv.New32a()
	io.WriteString(h, c.name)
	return fmt.Sprintf("c%d", h.Sum32()%8)
}
