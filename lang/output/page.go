package output

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"trace/lang/result"
)

// This file lays out the page of -f html: a single file that refers to nothing else, so it can be sent and kept. page.html is its
// template.

//go:embed page.html
var pageText string

// pageTemplate parses the template: in a variable, each start of trace would pay for it (1,856 allocations).
func pageTemplate() *template.Template { return template.Must(template.New("page").Parse(pageText)) }

// page is what the template shows.
type page struct {
	Summary
	About
	When, Length string
	Counted      bool // the rejected events of probes were counted
	Maps         []pageMap
	Printed      []string
	Script       template.JS // if there are flame graphs
	ScriptHash   string
	Flames       flameMeasures
}

// flameMeasures are the measures that the script reads from the page.
type flameMeasures struct {
	Row         int
	Named, Seen float64
}

// pageMap is a map. Tables and Charts show its first rows; More is the number of other rows.
type pageMap struct {
	Name, Fn, Size string
	Charts         []chart
	Legend         *legend
	Flame          *flame
	Tables         []table
	More           int
}

// The most rows of a map that have a chart, are visible at once in a table, or are in it at all.
const (
	mostCharts = 24
	seenRows   = 25
	mostRows   = 500
)

// table is a part of the rows of a map. One with a title is folded at first.
type table struct {
	Title string
	// Keys are the names of the columns before the value. Head and Picture are the heads of the value and of its picture, if these
	// need one.
	Keys          []string
	Head, Picture string
	Rows          []tableRow
}

// tableRow is a row. Its picture is a bar, Part percent long; or a course, as points in a box of lineWidth by lineHeight; or the
// places of its percentiles.
type tableRow struct {
	Key   []string
	Value string
	Part  string
	Line  string
	Peak  string
	Marks *marks
}

// marks are percentiles on an axis that the rows of a map share, in percent of its length. From and Length describe the line that
// joins them.
type marks struct {
	From, Length string
	Marks        []mark
}

type mark struct{ At, Title string }

const (
	lineWidth  = 300.0
	lineHeight = 28.0
)

// HTML is a page with all maps.
const HTML Format = "html"

// writePage makes the page.
func (d *Document) writePage(w io.Writer, f Summary, profiles []result.Profile) error {
	d.sample(f.Ended)
	views, err := viewsOf(d.maps)
	if err != nil {
		return err
	}
	return layOutPage(w, d, f, views, profiles)
}

func layOutPage(w io.Writer, d *Document, f Summary, views []view, profiles []result.Profile) error {
	p := page{
		Summary: f, About: d.about, When: f.Began.Format("2006-01-02 15:04:05 MST"), Length: roundLength(f.Ended.Sub(f.Began)),
		Printed: slices.DeleteFunc(d.printed.lines(), func(s string) bool { return s == "" }),
		Flames:  flameMeasures{flameRow, namedWidth, seenWidth},
	}
	d.history.shownAs(leastCell / heatWidth)
	p.Counted = slices.ContainsFunc(f.Probes, func(p ProbeCount) bool { return p.Rejected != nil })
	for _, v := range views {
		m := d.pageMap(v)
		if i := slices.IndexFunc(profiles, func(p result.Profile) bool { return p.Map == v.Name }); i >= 0 {
			m.draw(profiles[i])
			if m.Flame != nil {
				p.Script, p.ScriptHash = flameTools()
			}
		}
		p.Maps = append(p.Maps, m)
	}
	return pageTemplate().Execute(w, p)
}

// roundLength rounds a length of time to digits that matter.
func roundLength(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

func (d *Document) pageMap(v view) pageMap {
	m := pageMap{Name: v.Name, Fn: v.Func}
	if len(v.Key) > 0 {
		m.Size = keys(len(v.Rows))
	}
	rows := v.Rows
	if v.isHistogram() {
		n := min(len(rows), mostCharts)
		m.Charts, m.Legend = d.charts(v, rows[:n])
		rows = rows[n:]
	}
	m.More = max(0, len(rows)-mostRows)
	all := d.table(v, rows[:len(rows)-m.More])
	m.Tables = all.parts(len(m.Charts) > 0)
	return m
}

func keys(n int) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}

// parts returns the rows that are visible at once, and the rest.
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

// draw adds the flame graph. The table is then folded: stacks are long, and the graph shows them.
func (m *pageMap) draw(p result.Profile) {
	m.Flame = newFlame(p)
	if m.Flame == nil || len(m.Charts) > 0 || len(m.Tables) == 0 {
		return
	}
	all := m.Tables[0]
	for _, rest := range m.Tables[1:] {
		all.Rows = slices.Concat(all.Rows, rest.Rows)
	}
	all.Title = "as a table"
	m.Tables = []table{all}
}

// table returns the table of some rows. Their pictures share an axis.
func (d *Document) table(v view, rows []row) table {
	t := table{Keys: v.columns()}
	switch {
	case v.isQuantiles():
		drawMarks(&t, v, rows)
	case hasCourse(v):
		d.drawCourses(&t, v, rows)
	default:
		drawBars(&t, v, rows)
	}
	return t
}

func drawBars(t *table, v view, rows []row) {
	most := 0.0
	for _, r := range rows {
		most = max(most, math.Abs(r.Number))
	}
	if _, several := v.Zero.(result.Stats); several {
		t.Picture = "the average"
	}
	for _, r := range rows {
		row := tableRow{Key: r.Key, Value: r.Value}
		if most > 0 && len(v.Key) > 0 {
			row.Part = fmt.Sprintf("%.2f", 100*math.Abs(r.Number)/most)
		}
		for _, p := range r.Percentiles {
			row.Value += fmt.Sprintf("  %s %s", p.Name, p.Known())
		}
		t.Rows = append(t.Rows, row)
	}
}

// drawCourses draws how numbers changed.
func (d *Document) drawCourses(t *table, v view, rows []row) {
	if t.Head = "at the end"; v.Course == result.Growth {
		t.Head = "mean"
	}
	courses, most := make([][]float64, len(rows)), 0.0
	for i, r := range rows {
		if courses[i] = d.history.course(v, r); len(courses[i]) > 0 {
			most = max(most, slices.Max(courses[i]))
		}
	}
	if most > 0 {
		begin, _, end := d.history.axis()
		t.Picture = fmt.Sprintf("%s to %s, up to %s", begin, end, v.text(most))
	}
	for i, r := range rows {
		row := tableRow{Key: r.Key, Value: r.Value}
		if len(courses[i]) > 0 && most > 0 {
			row.Line, row.Peak = d.line(courses[i], most), "at most "+v.text(max(0, slices.Max(courses[i])))
		}
		t.Rows = append(t.Rows, row)
	}
}

// line draws a course in steps, as wide as their times.
func (d *Document) line(course []float64, most float64) string {
	var b strings.Builder
	for i, n := range course {
		y := lineHeight - 1 - max(0, n)/most*(lineHeight-3)
		fmt.Fprintf(&b, "%.1f,%.1f %.1f,%.1f ", d.x(d.history.start(i), lineWidth), y, d.x(d.history.moments[i], lineWidth), y)
	}
	return b.String()
}

// x returns where a moment is in the width of a picture.
func (d *Document) x(t time.Time, width float64) float64 {
	h := &d.history
	all := h.moments[len(h.moments)-1].Sub(h.began)
	return width * float64(t.Sub(h.began)) / float64(max(all, 1))
}

// drawMarks draws percentiles where they are.
func drawMarks(t *table, v view, rows []row) {
	axis := newAxis(rows)
	if axis.least < axis.most {
		t.Picture = fmt.Sprintf("from %s to %s, logarithmic", v.text(axis.least), v.text(axis.most))
	}
	for _, r := range rows {
		row := tableRow{Key: r.Key, Value: r.Value}
		if n := len(r.Percentiles); n > 0 {
			from, to := 100*axis.place(r.Percentiles[0].At), 100*axis.place(r.Percentiles[n-1].At)
			row.Marks = &marks{From: fmt.Sprintf("%.2f", min(from, to)), Length: fmt.Sprintf("%.2f", math.Abs(to-from))}
		}
		for _, p := range r.Percentiles {
			row.Marks.Marks = append(row.Marks.Marks, mark{fmt.Sprintf("%.2f", 100*axis.place(p.At)), p.Name + " " + p.Known()})
		}
		t.Rows = append(t.Rows, row)
	}
}
