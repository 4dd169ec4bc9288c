//go:build linux

package probes

import (
	"fmt"
	"strings"
	"sync"

	"trace/probes/event"
)

// notes are remarks about a session, one line each.
type notes struct {
	mu    sync.Mutex
	lines []string
}

// add keeps a remark about a probe, or about none if it is nil.
func (n *notes) add(p *event.Probe, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = strings.ReplaceAll(text, "\n", "; ")
	if p != nil {
		text = fmt.Sprintf("%s: %s", p, text)
	}
	n.lines = append(n.lines, text)
}

// take returns the notes that it has not returned before.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}
