//go:build linux

package probes

import (
	"testing"

	"trace/probes/kernel"
)

// The messages can be opened and end when they are closed.
func TestUeventsEnd(t *testing.T) {
	uevents, err := kernel.OpenUevents()
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{batches: []*batch{{requests: []*request{{attached: []*attached{{place: program{way: kprobe{}}}}}}}}}
	s.watch(uevents, nil)
	s.watcher.stop()
	if _, err := uevents.Read(make([]byte, 1)); err == nil {
		t.Error("the messages are still open")
	}
}
