//go:build linux

package probes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
	"trace/probes/rewrite"
)

// Windows of 100 in each 1000: the share of any time is what was open of it.
func TestShare(t *testing.T) {
	w := &windows{}
	for i := range uint64(10) {
		w.note(5000+i*1000, true)
		w.note(5000+i*1000+100, false)
	}
	s := &Session{windows: w}
	check := func(from, to uint64, want float64) {
		t.Helper()
		share, ok := s.Share(from, to)
		if ok != (want > 0) || math.Abs(share-want) > 1e-9 {
			t.Errorf("from %d to %d: %v %t, want %v", from, to, share, ok, want)
		}
	}
	check(0, 15000, 0.1)      // what is before the first window does not count
	check(5000, 5050, 1)      // within one
	check(5100, 5900, 0)      // between two
	check(5050, 6050, 0.1)    // across two
	check(14000, 15000, 0.1)  // the last one
	check(14000, 16000, 0.05) // after it
	check(20000, 30000, 0)    // long after it
	check(6000, 6000, 0)      // no time
	w.note(16000, true)       // is open
	check(16000, 16400, 1)    //
	check(15900, 16400, 400/500.)
	w.ended = true
	check(15000, 40000, 0)
	if share, ok := (&Session{}).Share(1, 2); share != 1 || !ok {
		t.Errorf("without windows the share is %v %t", share, ok)
	}
}

// However many windows there are, little is kept of them.
func TestManyWindows(t *testing.T) {
	w := &windows{}
	const n = 3 * mostEdges
	for i := range uint64(n) {
		w.note(i*1000, true)
		w.note(i*1000+100, false)
	}
	if len(w.edges) >= mostEdges {
		t.Errorf("%d edges are kept", len(w.edges))
	}
	share, ok := (&Session{windows: w}).Share(0, n*1000)
	recent, _ := (&Session{windows: w}).Share((n-10)*1000, n*1000)
	if !ok || math.Abs(share-0.1) > 1e-3 || math.Abs(recent-0.1) > 1e-9 {
		t.Errorf("the shares are %v and %v, want 0.1", share, recent)
	}
}

// link is a pausable link.
type pausableLink struct {
	attached        bool
	pauses, resumes int
	err             error
}

func (l *pausableLink) Close() error  { return nil }
func (l *pausableLink) Pause() error  { l.attached, l.pauses = false, l.pauses+1; return l.err }
func (l *pausableLink) Resume() error { l.attached, l.resumes = true, l.resumes+1; return l.err }

// The links of traps are attached in windows; others always.
func TestWindows(t *testing.T) {
	l := &pausableLink{attached: true}
	other := closerFunc(func() error { t.Error("another link is closed"); return nil })
	r := &request{attached: []*attached{{links: []io.Closer{l, other}}}}
	s := &Session{batches: []*batch{{requests: []*request{r}}}}
	var err error
	if s.windows, err = openWindows(Burst{On: 20 * time.Millisecond, Period: 100 * time.Millisecond}, s); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(context.Background(), nil, AddOptions{}); err == nil || !strings.Contains(err.Error(), "the session is attached a part of the time: nothing can be added") {
		t.Errorf("adding: %v", err)
	}
	began := now()
	waitForWindow := func(nth int) {
		for resumes := 0; resumes < nth; time.Sleep(time.Millisecond) {
			s.change(func() error { resumes = l.resumes; return nil })
		}
	}
	waitForWindow(3)
	s.change(func() error { l.err = errors.New("busy"); return nil })
	waitForWindow(5)
	s.windows.end()
	share, ok := s.Share(began, now())
	if n := l.pauses - l.resumes; n < 0 || n > 1 {
		t.Errorf("it is detached %d times and attached %d times again", l.pauses, l.resumes)
	}
	if !ok || share <= 0 || share >= 1 {
		t.Errorf("the share is %v", share)
	}
	if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, "--burst: a window could not be opened or closed: busy") {
		t.Errorf("it notes %q", notes)
	}
	(*windows)(nil).end()
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// Uprobes are traps, nothing else is: verbs:open has none.
func TestIsTrap(t *testing.T) {
	h, err := Detect(load(t), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range h.catalog.Probes() {
		if got, want := h.IsTrap(p), p.Group == "verbs" && p.Name != "open"; got != want {
			t.Errorf("%s: %t, want %t", p, got, want)
		}
	}
}

// Programs that are always attached know nothing of windows: not one instruction is for them, and nothing is attached for them.
func TestWithoutWindows(t *testing.T) {
	c := load(t)
	for _, p := range c.Match("verbs:*") {
		for _, in := range []bool{false, true} {
			req, _ := (want{probe: p, fields: p.Fields}).request(0)
			r := c.request(req)
			r.inWindows = in
			object, err := c.objects[p.Group].whole()
			if err != nil {
				t.Fatal(err)
			}
			spec, controlled := object.Copy(), 0
			for name, prog := range spec.Programs {
				if _, err := specialize(prog, uprobe{}, []*request{r}, constantsFor(object, hostConstants{}, r)); err != nil {
					t.Fatal(err)
				}
				if refersTo(prog.Instructions, controlSection) {
					controlled++
				}
				if name == "uprobe_verbs_built__wr_start" && rewrite.Idle(prog.Instructions) == in {
					t.Errorf("%s, in windows %t: %s is attached: %t", p, in, name, !in)
				}
			}
			if (controlled > 0) != in {
				t.Errorf("%s, in windows %t: %d programs ask for a window", p, in, controlled)
			}
		}
	}
}

// What is kept by thread is forgotten between windows: without that, the return of a poll could find the arguments of another one.
func TestSlotTablesAreEmptied(t *testing.T) {
	object, err := load(t).objects["verbs"].whole()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for name, spec := range object.Maps {
		if isSlotTable(spec) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	want := []string{"verbs_poll_calls", "verbs_pollers", "verbs_polls", "verbs_post_recv_chains", "verbs_post_recv_posts", "verbs_post_send_chains",
		"verbs_post_send_posts", "verbs_posted_chains"}
	if !slices.Equal(found, want) {
		t.Errorf("tables by thread: %q, want %q", found, want)
	}
	if err := detect(t).kernel.Permits(kernel.PerfCaps()); err != nil {
		t.Skip(err)
	}
	m, err := ebpf.NewMap(object.Maps["verbs_polls"])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, slot := range []uint32{0, 5, m.MaxEntries() - 1} {
		if err := m.Put(slot, bytes.Repeat([]byte{1}, int(m.ValueSize()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&gate{tables: []slotTable{newSlotTable(m)}}).empty(); err != nil {
		t.Fatal(err)
	}
	var slot uint32
	var value []byte
	for all := m.Iterate(); all.Next(&slot, &value); {
		if slices.ContainsFunc(value, func(b byte) bool { return b != 0 }) {
			t.Errorf("slot %d has %x", slot, value)
		}
	}
}
