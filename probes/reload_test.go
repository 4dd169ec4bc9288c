//go:build linux

package probes

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/probes/event"
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

// A program that does without a module's probes waits for the module.
func TestWaitsForModules(t *testing.T) {
	h := detect(t)
	var missing *event.Probe
	for _, p := range h.catalog.Probes() {
		var u *UnavailableError
		if errors.As(h.Status(p).Err(), &u) && errors.Is(u.Causes, kernel.ErrNotLoaded) {
			missing = p
		}
	}
	if missing == nil {
		t.Skip("all modules are loaded here")
	}
	reqs, o := requestsFor(want{probe: h.catalog.Match("syscall:exit")[0]})
	s := attachWith(t, h, append([]Request{{Probe: missing, Code: reqs[0].Code, IfAvailable: true}}, reqs...), o)
	if s.watcher == nil {
		t.Errorf("nothing waits for the module of %s", missing)
	}
}

// What could not be attached because a module was missing, or its function, is noted when the module is loaded. Other modules are not.
func TestLoadedLater(t *testing.T) {
	var n notes
	w := &watcher{notes: &n}
	waiting := unloaded{event.NewProbe("nvme", "sq", "", nil), []string{"nvme_core", "nvme"}}
	w.loaded(nil, []unloaded{waiting}, "nvme", time.Now())
	w.loaded(nil, []unloaded{waiting}, "loop", time.Now())
	got := n.take()
	if len(got) != 1 || !strings.HasPrefix(got[0], "nvme:sq: module nvme was loaded at ") || !strings.HasSuffix(got[0], ", but is not traced: start again") {
		t.Errorf("notes %q", got)
	}
	r := &request{absent: []string{"nvme_tcp_timeout", "nvme_fc_timeout"}}
	if found := r.leaveOut(map[string]bool{"nvme_fc_timeout": true}); !slices.Equal(found, []string{"nvme_fc_timeout"}) || r.gaps != 1 {
		t.Errorf("found %q, %d gaps", found, r.gaps)
	}
	if found := r.leaveOut(nil); len(found) > 0 || r.gaps != 1 {
		t.Errorf("found %q, %d gaps", found, r.gaps)
	}
	if b := (&batch{requests: []*request{r}}); !b.changes() || (&batch{requests: []*request{{}}}).changes() {
		t.Error("a function that may come is not waited for, or one is that nobody wants")
	}
}
