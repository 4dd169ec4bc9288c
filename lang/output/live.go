package output

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

	"trace/lang/syntax"
)

// Live redraws the maps of a program in place, once a second.
type Live struct {
	program string
	maps    Maps
	screen  *os.File
	key     func(context.Context) (byte, bool)
	colour  bool
	began   time.Time

	// clock is the time that passes for the program.
	clock func() time.Time

	mu      sync.Mutex
	lines   []string // the last ones that the program printed
	history history
	views   []view
	byKey   bool
	paused  bool
	ended   bool // no more comes
	help    bool
	scroll  scroll
	trouble error // error of reading the maps

	// over is closed when no more comes.
	over    chan struct{}
	restore func()
	closed  bool
}

// liveFrame is how often the maps are read.
const liveFrame = time.Second

// Sequences of xterm that all current terminals know.
const (
	altScreenOn  = "\x1b[?1049h\x1b[?25l"
	altScreenOff = "\x1b[?25h\x1b[?1049l"
	home         = "\x1b[H"
	eraseLine    = "\x1b[K"
	eraseBelow   = "\x1b[J"
)

// LiveOptions configure the live view.
type LiveOptions struct {
	// Program is the program's text.
	Program string
	Screen  *os.File
	// Key waits for the next byte that the user types. It returns false at the end of the input, or if ctx has ended. In that case
	// it takes no later key.
	Key    func(ctx context.Context) (byte, bool)
	Colour bool
}

// NewLive takes over the terminal. Close gives it back.
func NewLive(o LiveOptions) (*Live, error) {
	// The terminal of the screen is also the terminal of the keys. In the interactive mode typed keys come through a pipe.
	old, err := term.MakeRaw(int(o.Screen.Fd()))
	if err != nil {
		return nil, fmt.Errorf("--live: %w", err)
	}
	l := &Live{
		program: syntax.Visible(strings.Join(strings.Fields(o.Program), " ")), screen: o.Screen, key: o.Key, colour: o.Colour,
		began: time.Now(), history: history{most: 400}, over: make(chan struct{}),
	}
	l.restore = func() { _ = term.Restore(int(o.Screen.Fd()), old) }
	fmt.Fprint(o.Screen, altScreenOn)
	return l, nil
}

// Close gives the terminal back. It may be called twice, and on nil.
func (l *Live) Close() {
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

// keptLines is how many printed lines are kept for the screen.
const keptLines = 200

// Through returns where the program writes output for out: while the view is shown, the last lines appear below the maps. On nil it
// returns out.
func (l *Live) Through(out io.Writer) io.Writer {
	if l == nil {
		return out
	}
	return &liveWriter{l, out}
}

type liveWriter struct {
	*Live
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

// Show draws the maps until ctx ends, and then gives the terminal back, so that its keys interrupt what is left. If the user quits, it calls end.
// clock is the time that passes for the program.
func (l *Live) Show(ctx context.Context, maps Maps, clock func() time.Time, end func()) {
	l.maps, l.clock = maps, clock
	keys := make(chan key)
	var reader sync.WaitGroup
	reader.Go(func() { l.readKeys(ctx, keys) })
	look := &looking{live: l, done: make(chan struct{}, 1)}
	defer look.reading.Wait()
	defer reader.Wait() // the reader must not take what is typed at the next prompt
	defer l.Close()
	tick := time.NewTicker(liveFrame)
	defer tick.Stop()
	look.again(l.update)
	over := l.over
	for {
		l.draw()
		select {
		case <-ctx.Done():
			return
		case <-over:
			over, l.ended = nil, true
			look.again(l.update)
		case <-tick.C:
			if !l.paused && !l.ended {
				look.again(l.update)
			}
		case <-look.done:
			look.next()
		case key := <-keys:
			switch {
			case !l.help && (key == 'r' || key == 'R'):
				look.wanted = nil // the reset reads them, too
				look.again(l.reset)
			case !l.press(key):
				end()
				return
			}
		}
	}
}

// looking reads the maps in another goroutine than the one that reads the keys: a clause may lock the maps for long.
type looking struct {
	live    *Live
	reading sync.WaitGroup
	done    chan struct{}
	busy    bool
	wanted  func() // what comes next
}

// again runs do now, or after the read that is under way. It drops do if another one waits already.
func (k *looking) again(do func()) {
	if k.wanted == nil {
		k.wanted = do
	}
	if !k.busy {
		k.next()
	}
}

// next does what is wanted.
func (k *looking) next() {
	do := k.wanted
	if k.wanted, k.busy = nil, do != nil; do != nil {
		k.reading.Go(func() {
			do()
			k.done <- struct{}{}
		})
	}
}

// reset empties the maps.
func (l *Live) reset() {
	l.mu.Lock()
	l.history, l.views = history{most: l.history.most}, nil
	l.mu.Unlock()
	err := l.maps.Clear()
	l.mu.Lock()
	l.trouble = err
	l.mu.Unlock()
	l.update()
}

// Rest keeps showing what the maps are at the end, until ctx ends.
func (l *Live) Rest(ctx context.Context) {
	close(l.over)
	<-ctx.Done()
}

// readKeys sends the keys that are typed.
func (l *Live) readKeys(ctx context.Context, keys chan<- key) {
	var decoder keyDecoder
	for {
		typed, ok := l.key(ctx)
		if !ok {
			return
		}
		pressed, ok := decoder.feed(typed)
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

// press handles a key. It returns false for a key that quits.
func (l *Live) press(k key) bool {
	if slices.Contains(quitKeys, k) {
		return false
	}
	if l.help { // any key removes it
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
	default:
		l.scroll.press(k)
	}
	return true
}

// update reads the maps.
func (l *Live) update() {
	now := l.clock()
	views, err := viewsOf(l.maps)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.trouble = err
		return
	}
	l.views = views
	l.history.add(now, views)
}

// draw writes a frame, as large as the terminal currently is.
func (l *Live) draw() {
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
