package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"trace/lang"
	"trace/lang/syntax"
)

// live redraws the maps of a program in place, once a second.
type live struct {
	program string
	exec    *lang.Run
	screen  *os.File
	keys    *os.File
	colour  bool
	began   time.Time

	// clock is the time by which a second passes for the program.
	clock func() time.Time

	mu      sync.Mutex
	lines   []string // the last that the program printed
	history history
	views   []view
	byKey   bool
	paused  bool
	help    bool
	scroll  scroll
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
	screen := fileOf(s.out)
	// The terminal of the screen is that of the keys; what is typed may come through a pipe, from the interactive mode.
	old, err := term.MakeRaw(int(screen.Fd()))
	if err != nil {
		return nil, fmt.Errorf("--live: %w", err)
	}
	l := &live{
		program: syntax.Visible(strings.Join(strings.Fields(program), " ")), screen: screen, keys: s.keys, colour: os.Getenv("NO_COLOR") == "",
		began: time.Now(), clock: time.Now, history: history{most: 400},
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
	keys := make(chan key)
	var reader sync.WaitGroup
	reader.Go(func() { l.readKeys(ctx, keys) })
	defer reader.Wait() // it must not take what is typed at the next prompt
	tick := time.NewTicker(liveFrame)
	defer tick.Stop()
	l.update()
	for {
		l.draw()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !l.paused {
				l.update()
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
func (l *live) readKeys(ctx context.Context, keys chan<- key) {
	buf := make([]byte, 1)
	var decoder keyDecoder
	for waitReadable(ctx, l.keys) {
		n, err := l.keys.Read(buf)
		if err != nil || n == 0 {
			return
		}
		pressed, ok := decoder.feed(buf[0])
		if !ok {
			continue
		}
		select {
		case keys <- pressed:
		case <-ctx.Done():
			return
		}
	}
}

// press does what a key stands for; false is to quit.
func (l *live) press(k key) bool {
	if slices.Contains(quitKeys, k) {
		return false
	}
	if l.help { // any key takes it away
		l.help = false
		return true
	}
	switch k {
	case '?', 'h', 'H':
		l.help = true
	case 'p', 'P', ' ':
		l.paused = !l.paused
	case 's', 'S':
		l.byKey = !l.byKey
	case 'r', 'R':
		l.mu.Lock()
		l.history, l.views = history{most: l.history.most}, nil
		l.mu.Unlock()
		l.trouble = l.exec.Clear()
		l.update()
	default:
		l.scroll.press(k)
	}
	return true
}

// update reads the maps.
func (l *live) update() {
	now := l.clock()
	views, err := viewsOf(l.exec)
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
