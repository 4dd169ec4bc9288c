package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"trace/lang"
)

// live redraws the maps of a program in place, once a second.
type live struct {
	program string
	exec    *lang.Run
	screen  *os.File
	keys    *os.File
	colour  bool
	began   time.Time

	mu      sync.Mutex
	lines   []string // the last that the program printed
	history history
	views   []lang.View
	byKey   bool
	paused  bool
	trouble error // of reading the maps

	restore func()
	closed  bool
}

// liveFrame is how often the maps are read.
const liveFrame = time.Second

// Sequences of xterm that all terminals of today know.
const (
	altScreenOn  = "\x1b[?1049h\x1b[?25l"
	altScreenOff = "\x1b[?25h\x1b[?1049l"
	home         = "\x1b[H"
	eraseLine    = "\x1b[K"
	eraseBelow   = "\x1b[J"
)

// newLive takes the terminal over; close gives it back.
func newLive(s streams, program string) (*live, error) {
	switch {
	case !isTerminal(s.out):
		return nil, usagef("--live shows the maps on standard output, which is no terminal: write the data to a file with -o FILE")
	case s.keys == nil:
		return nil, usagef("--live takes keys from standard input, which is no terminal")
	case os.Getenv("TERM") == "dumb":
		return nil, usagef("--live needs a terminal that can move its cursor, and TERM=dumb says that this one cannot")
	}
	screen := s.out.(*os.File)
	// The terminal of the screen is that of the keys; what is typed may come through a pipe, from the interactive mode.
	old, err := term.MakeRaw(int(screen.Fd()))
	if err != nil {
		return nil, fmt.Errorf("--live: %w", err)
	}
	l := &live{
		program: strings.Join(strings.Fields(program), " "), screen: screen, keys: s.keys, colour: os.Getenv("NO_COLOR") == "",
		began: time.Now(), history: history{most: 400},
	}
	l.restore = func() { _ = term.Restore(int(screen.Fd()), old) }
	fmt.Fprint(screen, altScreenOn)
	return l, nil
}

// close gives the terminal back. It may be called twice, and on nil.
func (l *live) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	fmt.Fprint(l.screen, altScreenOff)
	l.restore()
}

// keptLines is how much of what the program prints is kept for the screen.
const keptLines = 200

// through returns where the program writes what is for out: while the screen is taken its last lines are shown below the maps. Of nil
// it is out.
func (l *live) through(out io.Writer) io.Writer {
	if l == nil {
		return out
	}
	return &liveWriter{l, out}
}

type liveWriter struct {
	*live
	out io.Writer
}

func (w *liveWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.out.Write(p)
	}
	for line := range bytes.Lines(p) {
		w.lines = append(w.lines, strings.TrimRight(string(line), "\n"))
	}
	w.lines = w.lines[max(0, len(w.lines)-keptLines):]
	return len(p), nil
}

// show draws until ctx ends, or the user wants to quit, when it calls end.
func (l *live) show(ctx context.Context, end func()) {
	keys := make(chan byte)
	var reader sync.WaitGroup
	reader.Go(func() { l.readKeys(ctx, keys) })
	defer reader.Wait() // it must not take what is typed at the next prompt
	tick := time.NewTicker(liveFrame)
	defer tick.Stop()
	l.update(time.Now())
	for {
		l.draw()
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if !l.paused {
				l.update(now)
			}
		case key := <-keys:
			if !l.press(key) {
				end()
				return
			}
		}
	}
}

// readKeys sends what is typed. It looks for keys in pieces of time, so that it ends with ctx and takes no key from what comes after.
func (l *live) readKeys(ctx context.Context, keys chan<- byte) {
	buf := make([]byte, 1)
	for waitReadable(ctx, l.keys) {
		n, err := l.keys.Read(buf)
		if err != nil || n == 0 {
			return
		}
		select {
		case keys <- buf[0]:
		case <-ctx.Done():
			return
		}
	}
}

// press does what a key stands for; false is to quit.
func (l *live) press(key byte) bool {
	switch key {
	case 'q', 'Q', ctrlCKey, ctrlDKey:
		return false
	case 'p', 'P', ' ':
		l.paused = !l.paused
	case 's', 'S':
		l.byKey = !l.byKey
	case 'r', 'R':
		l.mu.Lock()
		l.history, l.views = history{most: l.history.most}, nil
		l.mu.Unlock()
		l.trouble = l.exec.Clear()
		l.update(time.Now())
	}
	return true
}

const (
	ctrlCKey = 3
	ctrlDKey = 4
)

// update reads the maps.
func (l *live) update(now time.Time) {
	views, err := l.exec.Views()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.trouble = err
		return
	}
	l.views = views
	l.history.add(now, views)
}

// draw writes a frame, as large as the terminal is now.
func (l *live) draw() {
	width, height, err := term.GetSize(int(l.screen.Fd()))
	if err != nil || width < 10 || height < 3 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	lines := l.frame(width, height)
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + eraseLine)
	}
	b.WriteString(eraseBelow)
	_, _ = io.WriteString(l.screen, b.String())
}

// frame makes the lines of a frame: the program, the maps, and as many of the printed lines as there is room for.
func (l *live) frame(width, height int) []string {
	state := time.Since(l.began).Round(time.Second).String()
	if l.paused {
		state = "paused"
	}
	order := "value"
	if l.byKey {
		order = "key"
	}
	head := fit(fmt.Sprintf(" %s  sorted by %s  s sort  p pause  r reset  q quit  %s", state, order, l.program), width)
	lines := []string{l.paint("7", pad(head, width))}
	if l.trouble != nil {
		lines = append(lines, l.paint("31", fit(l.trouble.Error(), width)))
	}
	shown := slices.DeleteFunc(slices.Clone(l.views), func(v lang.View) bool { return len(v.Rows) == 0 })
	var needs []int
	for _, v := range shown {
		needs = append(needs, l.height(v))
	}
	printed := 0
	if n := len(l.lines); n > 0 {
		printed = min(n+1, height/3)
	}
	for i, part := range share(height-len(lines)-printed, needs) {
		lines = append(lines, l.drawView(shown[i], width, part)...)
	}
	left := max(0, height-len(lines)-1)
	if tail := l.lines[max(0, len(l.lines)-left):]; len(tail) > 0 && left > 0 {
		lines = append(lines, "")
		for _, line := range tail {
			lines = append(lines, fit(line, width))
		}
	}
	return lines
}

// share divides lines among those that need them: none gets more than it needs, and what it leaves of its part goes to the others.
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

// height is how many lines a map has something for.
func (l *live) height(v lang.View) int {
	lines := 1 + len(v.Rows)
	if isHistogram(v) {
		for _, r := range v.Rows {
			lines += l.heatHeight(v, r)
		}
	}
	return lines
}

// heatHeight is how many lines a heat map has something for: a bucket each.
func (l *live) heatHeight(v lang.View, r lang.Row) int {
	first, last, _ := l.history.series[seriesName(v, r)].buckets()
	if first < 0 {
		return 0
	}
	return last - first + 1
}

// paint colours a text if the terminal has colours and the user wants them.
func (l *live) paint(code, text string) string {
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

// drawView draws a map in at most that many lines.
func (l *live) drawView(v lang.View, width, height int) []string {
	title := v.Name
	if v.Fn != "" {
		title += "  " + v.Fn
	}
	if len(v.Rows) > 1 {
		title += fmt.Sprintf("  %d keys", len(v.Rows))
	}
	if height < 1 {
		return nil
	}
	if isHistogram(v) && heatMaps(len(v.Rows), height-1) > 0 {
		title += "  a column is a second"
	}
	lines := []string{l.paint("1", fit(title, width))}
	rows := slices.Clone(v.Rows)
	if l.byKey {
		slices.SortStableFunc(rows, func(a, b lang.Row) int { return strings.Compare(rowKey(a), rowKey(b)) })
	}
	if isHistogram(v) {
		return append(lines, l.drawHistograms(v, rows, width, height-1)...)
	}
	return append(lines, l.drawTable(v, rows, width, height-1)...)
}

func rowKey(r lang.Row) string { return strings.Join(r.Key, ", ") }

// drawTable draws a line for each entry: key, value, a bar, and how a rate went.
func (l *live) drawTable(v lang.View, rows []lang.Row, width, height int) []string {
	rows = rows[:min(len(rows), height)]
	keyWidth, valueWidth, most := 0, 0, 0.0
	for _, r := range rows {
		keyWidth = max(keyWidth, utf8.RuneCountInString(rowKey(r)))
		valueWidth = max(valueWidth, utf8.RuneCountInString(r.Value))
		most = max(most, r.Number)
	}
	keyWidth = min(keyWidth, max(8, width/2))
	valueWidth = min(valueWidth, max(8, width-keyWidth-3))
	room := width - keyWidth - valueWidth - 4
	var lines []string
	for _, r := range rows {
		key := fit(rowKey(r), keyWidth)
		value := fit(r.Value, valueWidth)
		line := strings.TrimLeft(pad(key, keyWidth)+" ", " ") + padLeft(value, valueWidth)
		if room >= 4 {
			if v.Fn == "rate" || v.Fn == "gauge" {
				line += "  " + l.paint("36", sparkline(l.history.series[seriesName(v, r)].course(v.Fn), room))
			} else if r.Number > 0 {
				line += "  " + l.paint("36", bar(r.Number/most, min(room, 40)))
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// bar is a bar of eighths of a column.
func bar(part float64, width int) string {
	eighths := int(math.Round(part * float64(width) * 8))
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string(rune('█' + 8 - rest)) // U+2588 … U+258F: full, then ever narrower
	}
	return text
}

// sparkline draws the last numbers, as high as the largest of them is.
func sparkline(numbers []float64, width int) string {
	numbers = numbers[max(0, len(numbers)-width):]
	most := 0.0
	for _, n := range numbers {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range numbers {
		level := 0
		if most > 0 && n > 0 {
			level = int(n / most * 7)
		}
		b.WriteRune('▁' + rune(level))
	}
	return b.String()
}

// leastHeat is how many lines make a heat map worth looking at.
const leastHeat = 4

// heatMaps is how many of them there is room for beside a line for each entry.
func heatMaps(rows, height int) int { return min(rows, max(0, height-rows)/leastHeat) }

// drawHistograms draws a line for each entry, and below the first ones, as far as there is room, a heat map over time.
func (l *live) drawHistograms(v lang.View, rows []lang.Row, width, height int) []string {
	rows = rows[:min(len(rows), height)]
	var needs []int
	for _, r := range rows[:heatMaps(len(rows), height)] {
		needs = append(needs, l.heatHeight(v, r))
	}
	parts := share(height-len(rows), needs)
	var lines []string
	for i, summary := range l.summaries(rows, width) {
		lines = append(lines, summary)
		if i < len(parts) && parts[i] > 0 {
			lines = append(lines, l.heatMap(v, rows[i], width, parts[i])...)
		}
	}
	return lines
}

// summaries are key, count, percentiles and the shape of histograms, in columns.
func (l *live) summaries(rows []lang.Row, width int) []string {
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
	lines := make([]string, len(rows))
	for i, row := range cells {
		for n, cell := range row {
			row[n] = pad(cell, widths[n])
		}
		text := fit(strings.TrimLeft(strings.Join(row, "  "), " "), width)
		var counts []float64
		for _, b := range rows[i].Buckets {
			counts = append(counts, float64(b.N))
		}
		if room := width - utf8.RuneCountInString(text) - 2; room >= len(counts) {
			text += "  " + l.paint("36", sparkline(counts, room))
		}
		lines[i] = text
	}
	return lines
}

// pad and padLeft fill a text up to a number of columns.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// heatMap draws what was added to each bucket in each second, the largest values on top. If there are more buckets than lines, several
// share one.
func (l *live) heatMap(v lang.View, r lang.Row, width, height int) []string {
	s := l.history.series[seriesName(v, r)]
	first, last, _ := s.buckets()
	perLine := (last - first + height) / height
	labelWidth := 0
	var labels []string
	for top := last; top >= first; top -= perLine {
		labels = append(labels, lowerBound(l.exec.BucketLabel(v.Name, max(first, top-perLine+1))))
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

// lowerBound is that of a label like [1us, 2us), which several buckets in a line have in common.
func lowerBound(label string) string {
	if strings.HasPrefix(label, "(...") {
		return label
	}
	low, _, _ := strings.Cut(strings.Trim(label, "[]"), ",")
	return low
}

// heat are the colours of xterm's palette from few to many, ever lighter so that their order needs no legend; shades what stands for them where there is no colour.
var (
	heat   = []int{54, 91, 127, 162, 168, 203, 209, 214, 220, 227}
	shades = []rune("·░▒▓█")
)

// cell is one of a heat map. The scale is logarithmic: a tail of single values stays visible beside thousands.
func (l *live) cell(n, most uint64) string {
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

// openLive takes the terminal over if --live wants it; else it returns nil.
func openLive(s streams, o options, src source, program *lang.Program) (*live, error) {
	if !o.live {
		return nil, nil
	}
	if len(program.Maps()) == 0 {
		return nil, usagef("--live shows maps, and this program has none")
	}
	return newLive(s, src.text)
}
