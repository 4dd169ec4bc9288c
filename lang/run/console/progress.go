package console

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress is a line on the user's terminal that shows how far something that takes more than a second has come. A nil Progress
// shows nothing.
type Progress struct {
	terminal io.Writer
	began    time.Time

	mu    sync.Mutex
	told  time.Time
	shown bool
}

// eraseLine is a sequence of xterm that all current terminals know.
const eraseLine = "\x1b[K"

// The first line is shown after patience, and then one each progressStep.
const (
	patience     = time.Second
	progressStep = 200 * time.Millisecond
)

// NewProgress shows a line on a terminal.
func NewProgress(terminal io.Writer) *Progress {
	return &Progress{terminal: terminal, began: time.Now()}
}

// Show shows the text if it is time for it. text gets the time since the start.
func (p *Progress) Show(text func(took time.Duration) string) {
	if p == nil {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.began) < patience || now.Sub(p.told) < progressStep {
		return
	}
	p.told, p.shown = now, true
	fmt.Fprint(p.terminal, "\r"+text(now.Sub(p.began))+eraseLine)
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.terminal, "\r"+eraseLine)
	}
	p.shown = false
}

// Before returns a writer that removes the line before it writes to w, which may be the same terminal.
func (p *Progress) Before(w io.Writer) io.Writer {
	if p == nil {
		return w
	}
	return &clearing{p, w}
}

type clearing struct {
	*Progress
	w io.Writer
}

func (c *clearing) Write(b []byte) (int, error) {
	c.Clear()
	return c.w.Write(b)
}
