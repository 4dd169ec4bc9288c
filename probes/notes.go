//go:build linux

package probes

import (
	"fmt"
	"strings"
	"sync"

	"trace/probes/event"
)

// notes are what is to be said of a session, in lines.
type notes struct {
	mu    sync.Mutex
	lines []string
}

// add keeps what is to be said of a probe, or of none if it is nil, in one line.
func (n *notes) add(p *event.Probe, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = strings.ReplaceAll(text, "\n", "; ")
	if p != nil {
		text = fmt.Sprintf("%s: %s", p, text)
	}
	n.lines = append(n.lines, text)
}

// take returns what has not been returned before.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}
