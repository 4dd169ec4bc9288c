package output

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"trace/lang/result"
	"trace/lang/syntax"
)

// This file draws the frames of the live view.

// frame makes the lines of a frame: the program, the maps, and as many printed lines as fit.
func (l *Live) frame(width, height int) []string {
	lines := []string{l.paint("7", pad(fit(l.head(), width), width))}
	if l.trouble != nil {
		lines = append(lines, l.paint("31", fit(syntax.Visible(l.trouble.Error()), width)))
	}
	if l.help {
		for _, line := range keyHelp {
			lines = append(lines, fit("  "+line, width))
		}
		return lines
	}
	shown := l.ordered()
	var needs []int
	for _, v := range shown {
		need := 1
		for _, n := range l.heights(v) {
			need += n
		}
		needs = append(needs, need)
	}
	printed := 0
	if n := len(l.lines); n > 0 {
		printed = min(n+1, height/3)
	}
	l.scroll.begin()
	for i, part := range share(height-len(lines)-printed, needs) {
		lines = append(lines, l.drawView(shown[i], width, part)...)
	}
	l.scroll.skip = min(l.scroll.skip, l.scroll.last)
	left := max(0, height-len(lines)-1)
	if tail := l.lines[max(0, len(l.lines)-left):]; len(tail) > 0 && left > 0 {
		lines = append(lines, "")
		for _, line := range tail {
			lines = append(lines, fit(line, width))
		}
	}
	return lines
}

func (l *Live) head() string {
	state := time.Since(l.began).Round(time.Second).String()
	switch {
	case l.ended:
		state = "ended"
	case l.paused:
		state = "paused"
	}
	order := "value"
	if l.byKey {
		order = "key"
	}
	return fmt.Sprintf(" %s  sorted by %s  ? keys  q quit  %s", state, order, l.program)
}

// ordered returns the maps that have values, with their rows in the order shown. The number of a rate is the latest one, not the
// mean.
func (l *Live) ordered() []view {
	var shown []view
	for _, v := range l.views {
		if len(v.Rows) == 0 {
			continue
		}
		v.Rows = slices.Clone(v.Rows)
		if v.Course == result.Growth {
			for i := range v.Rows {
				r := &v.Rows[i]
				r.Number = l.history.latest(v, *r)
				r.Value = v.text(r.Number)
			}
			slices.SortStableFunc(v.Rows, func(a, b row) int { return cmp.Compare(b.Number, a.Number) })
		}
		if l.byKey {
			slices.SortStableFunc(v.Rows, func(a, b row) int { return strings.Compare(rowKey(a), rowKey(b)) })
		}
		shown = append(shown, v)
	}
	return shown
}

// share divides lines among those that need them. None gets more than it needs; the rest goes to the others.
func share(room int, needs []int) []int {
	parts, order := make([]int, len(needs)), make([]int, len(needs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return needs[a] - needs[b] })
	for i, at := range order {
		parts[at] = max(0, min(needs[at], room/(len(order)-i)))
		room -= parts[at]
	}
	return parts
}

// heights returns how many lines each row of a map can use: one or, for a histogram, a heat map with a line for each bucket.
func (l *Live) heights(v view) []int {
	all := make([]int, len(v.Rows))
	for i, r := range v.Rows {
		all[i] = 1
		if v.isHistogram() {
			all[i] += l.heatHeight(v, r)
		}
	}
	return all
}

// heatHeight returns how many lines a heat map can use.
func (l *Live) heatHeight(v view, r row) int {
	first, last, _ := l.history.series[seriesName(v, r)].buckets()
	if first < 0 {
		return 0
	}
	return last - first + 1
}

// paint colours a text if the terminal has colours and the user wants them.
func (l *Live) paint(code, text string) string {
	if !l.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// fit cuts a text to a number of columns.
func fit(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(0, width-1)]) + "…"
}

// drawView draws a map in at most height lines.
func (l *Live) drawView(v view, width, height int) []string {
	if height < 1 {
		return nil
	}
	title := v.Name
	if len(v.Key) > 0 {
		title += "[" + strings.Join(v.columns(), ", ") + "]"
	}
	if v.Func != "" {
		title += "  " + v.Func
	}
	all, room := len(v.Rows), height-1
	from := l.scroll.window(l.heights(v), room, func(from int) int {
		if left := all - from; v.isHistogram() && left <= room { // the rest is for heat maps
			return heatMaps(left, room)
		}
		return room
	})
	if all > 1 {
		title += fmt.Sprintf("  %d keys", all)
	}
	if from > 0 {
		title += fmt.Sprintf(", from key %d", from+1)
	}
	draw := l.drawTable
	if v.isHistogram() {
		draw = l.drawHistograms
	}
	about, lines := draw(v, v.Rows[from:min(all, from+room)], width, room)
	if about != "" {
		title += "  " + about
	}
	return append([]string{l.paint("1", fit(title, width))}, lines...)
}

func rowKey(r row) string { return strings.Join(r.Key, ", ") }

// drawTable draws a line for each row: key, value, and a picture. All pictures share an axis, which about describes.
func (l *Live) drawTable(v view, rows []row, width, _ int) (about string, lines []string) {
	keyWidth, valueWidth := 0, 0
	for _, r := range rows {
		keyWidth = max(keyWidth, utf8.RuneCountInString(rowKey(r)))
		valueWidth = max(valueWidth, utf8.RuneCountInString(r.Value))
	}
	keyWidth = min(keyWidth, max(8, width/2))
	valueWidth = min(valueWidth, max(8, width-keyWidth-3))
	about, pictures := l.pictures(v, rows, width-keyWidth-valueWidth-4)
	for i, r := range rows {
		line := strings.TrimLeft(pad(fit(rowKey(r), keyWidth), keyWidth)+" ", " ") + padLeft(fit(r.Value, valueWidth), valueWidth)
		if pictures[i] != "" {
			line += "  " + l.paint("36", pictures[i])
		}
		lines = append(lines, line)
	}
	return about, lines
}

// leastPicture is the least width of a picture.
const leastPicture = 4

// pictures draws the rows in room columns: the course of a rate or a gauge, the percentiles of a quantile, and a bar for other
// numbers.
func (l *Live) pictures(v view, rows []row, room int) (about string, pictures []string) {
	pictures = make([]string, len(rows))
	switch {
	case room < leastPicture:
	case v.isQuantiles():
		return percentiles(v, rows, room)
	case hasCourse(v):
		return l.courses(v, rows, room)
	default:
		most := 0.0
		for _, r := range v.Rows {
			most = max(most, r.Number)
		}
		for i, r := range rows {
			if r.Number > 0 {
				pictures[i] = bar(r.Number/most, min(room, 40))
			}
		}
	}
	return about, pictures
}

// courses draws how numbers changed. All share the highest number.
func (l *Live) courses(v view, rows []row, room int) (about string, pictures []string) {
	courses, most := make([][]float64, len(rows)), 0.0
	for i, r := range rows {
		course := l.history.course(v, r)
		courses[i] = course[max(0, len(course)-room):]
		most = max(most, slices.Max(courses[i]))
	}
	for _, course := range courses {
		pictures = append(pictures, sparkline(course, most))
	}
	return "up to " + v.text(most), pictures
}

// percentiles draws where the percentiles of each row are, on a shared axis.
func percentiles(v view, rows []row, room int) (about string, pictures []string) {
	room = min(room, 60)
	a := newAxis(v.Rows)
	for _, r := range rows {
		line := []rune(strings.Repeat(" ", room))
		first, last := room, -1
		for _, p := range r.Percentiles {
			at := int(math.Round(a.place(p.At) * float64(room-1)))
			line[at], first, last = '●', min(first, at), max(last, at)
		}
		for i := first; i < last; i++ {
			if line[i] == ' ' {
				line[i] = '─'
			}
		}
		pictures = append(pictures, strings.TrimRight(string(line), " "))
	}
	if a.least < a.most {
		about = fmt.Sprintf("from %s to %s, logarithmic", v.text(a.least), v.text(a.most))
	}
	return about, pictures
}

// bar draws a bar in steps of an eighth of a column.
func bar(part float64, width int) string {
	eighths := int(math.Round(part * float64(width) * 8))
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string(rune('█' + 8 - rest)) // U+2588 … U+258F: full, then ever narrower
	}
	return text
}

// sparkline draws numbers relative to most. Numbers above 0 differ from 0.
func sparkline(numbers []float64, most float64) string {
	var b strings.Builder
	for _, n := range numbers {
		level := 0
		if most > 0 && n > 0 {
			level = int(math.Ceil(n / most * 7))
		}
		b.WriteRune('▁' + rune(level))
	}
	return b.String()
}

// leastHeat is the least height of a heat map worth looking at.
const leastHeat = 4

// heatMaps returns how many heat maps fit beside a line for each row.
func heatMaps(rows, height int) int { return min(rows, max(0, height-rows)/leastHeat) }

// drawHistograms draws a line for each row and, as far as there is room, a heat map over time below the first rows.
func (l *Live) drawHistograms(v view, rows []row, width, height int) (about string, lines []string) {
	var needs []int
	for _, r := range rows[:heatMaps(len(rows), height)] {
		needs = append(needs, l.heatHeight(v, r))
	}
	parts := share(height-len(rows), needs)
	about, summaries := l.summaries(v, rows, width)
	if len(parts) > 0 {
		about = "a column is a second  " + about
	}
	for i, summary := range summaries {
		lines = append(lines, summary)
		if i < len(parts) && parts[i] > 0 {
			lines = append(lines, l.heatMap(v, rows[i], width, parts[i])...)
		}
	}
	return about, lines
}

// summaries returns the key, count, percentiles and shape of histograms, in columns. All shapes go from the least bucket of the map
// to its largest.
func (l *Live) summaries(v view, rows []row, width int) (about string, lines []string) {
	cells := make([][]string, len(rows))
	var widths []int
	for i, r := range rows {
		cells[i] = []string{rowKey(r), "n " + r.Value}
		for _, p := range r.Percentiles {
			cells[i] = append(cells[i], p.Name+" "+p.Value)
		}
		for n, cell := range cells[i] {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	total := 0
	for _, w := range widths {
		total += w + 2
	}
	first, last := bucketsOf(v)
	perColumn := 0 // buckets
	if room := width - total; first >= 0 && room >= leastPicture {
		perColumn = (last - first + room) / room
		about = fmt.Sprintf("shapes from %s to %s", v.label(first), v.label(last))
	}
	for i, row := range cells {
		for n, cell := range row {
			row[n] = pad(cell, widths[n])
		}
		line := fit(strings.TrimLeft(strings.Join(row, "  "), " "), width)
		if perColumn > 0 {
			line += "  " + l.paint("36", shape(rows[i], first, last, perColumn))
		}
		lines = append(lines, line)
	}
	return about, lines
}

// bucketsOf returns the first and the last bucket in which any row of a map has a value.
func bucketsOf(v view) (first, last int) {
	first, last = -1, -1
	for _, r := range v.Rows {
		h := r.histogram
		if len(h.Counts) == 0 {
			continue
		}
		if first < 0 || h.First < first {
			first = h.First
		}
		last = max(last, h.First+len(h.Counts)-1)
	}
	return first, last
}

// shape returns a sparkline of a histogram.
func shape(r row, first, last, perColumn int) string {
	counts := make([]float64, (last-first)/perColumn+1)
	for i, n := range r.histogram.Counts {
		counts[(r.histogram.First+i-first)/perColumn] += float64(n)
	}
	return sparkline(counts, slices.Max(counts))
}

// pad and padLeft fill a text to a width in columns.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// heatMap draws what was added to each bucket in each second, the largest values on top. If there are more buckets than lines,
// several share a line.
func (l *Live) heatMap(v view, r row, width, height int) []string {
	s := l.history.series[seriesName(v, r)]
	first, last, _ := s.buckets()
	perLine := (last - first + height) / height
	labelWidth := 0
	var labels []string
	for top := last; top >= first; top -= perLine {
		labels = append(labels, lowerBound(v.label(max(first, top-perLine+1))))
		labelWidth = max(labelWidth, utf8.RuneCountInString(labels[len(labels)-1]))
	}
	columns := s.added[max(0, len(s.added)-max(1, width-labelWidth-3)):]
	count := func(column map[int]uint64, top int) (n uint64) {
		for b := max(first, top-perLine+1); b <= top; b++ {
			n += column[b]
		}
		return n
	}
	var most uint64
	for _, column := range columns {
		for top := last; top >= first; top -= perLine {
			most = max(most, count(column, top))
		}
	}
	var lines []string
	for i, label := range labels {
		var b strings.Builder
		fmt.Fprintf(&b, "%*s │", labelWidth+1, label)
		for _, column := range columns {
			b.WriteString(l.cell(count(column, last-i*perLine), most))
		}
		lines = append(lines, b.String())
	}
	return lines
}

// heat are colours of xterm's palette from few to many, ever lighter so that the order needs no legend. shades replace them without
// colour.
var (
	heat   = []int{54, 91, 127, 162, 168, 203, 209, 214, 220, 227}
	shades = []rune("·░▒▓█")
)

// cell returns a cell of a heat map. The scale is logarithmic: a tail of single values stays visible beside thousands.
func (l *Live) cell(n, most uint64) string {
	if n == 0 {
		return " "
	}
	level := 1.0
	if most > 1 {
		level = math.Log(float64(n)+1) / math.Log(float64(most)+1)
	}
	if l.colour {
		return fmt.Sprintf("\x1b[48;5;%dm \x1b[0m", heat[int(level*float64(len(heat)-1))])
	}
	return string(shades[int(level*float64(len(shades)-1))])
}
