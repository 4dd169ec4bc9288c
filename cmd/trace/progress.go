package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress is a line on the terminal of the user that tells how far something has come which takes more than a second. A nil progress
// tells nothing.
type progress struct {
	terminal io.Writer
	began    time.Time

	mu    sync.Mutex
	told  time.Time
	shown bool
}

// eraseLine is a sequence of xterm that all terminals of today know.
const eraseLine = "\x1b[K"

// The first line comes after patience, then one each progressStep.
const (
	patience     = time.Second
	progressStep = 200 * time.Millisecond
)

// newProgress returns nil where there is no terminal that could show a line in place, or nobody wants one.
func newProgress(s streams, o options) *progress {
	if o.quiet || o.live || !isTerminal(s.err) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &progress{terminal: s.err, began: time.Now()}
}

// tell shows the text if it is time for it. The text is that after so long.
func (p *progress) tell(text func(took time.Duration) string) {
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

// clear takes the line away.
func (p *progress) clear() {
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

// before returns a writer that takes the line away before it writes to w, if that is a terminal: it may be the same.
func (p *progress) before(w io.Writer) io.Writer {
	if p == nil || !isTerminal(w) {
		return w
	}
	return &clearing{p, w}
}

type clearing struct {
	*progress
	w io.Writer
}

func (c *clearing) Write(b []byte) (int, error) {
	c.clear()
	return c.w.Write(b)
}
