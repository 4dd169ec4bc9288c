package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

func detect(t testing.TB) *Host {
	t.Helper()
	h, err := Detect(load(t), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// attach fails the test if the probes cannot be attached, and skips it only where this process may not.
func attach(t testing.TB, h *Host, reqs ...Request) *Session {
	t.Helper()
	s, err := Attach(context.Background(), h, reqs, AttachOptions{})
	var denied *PermissionError
	if errors.As(err, &denied) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func requests(found []*Probe) []Request {
	var reqs []Request
	for _, p := range found {
		reqs = append(reqs, Request{Probe: p, Fields: p.Fields})
	}
	return reqs
}

// snapshot is an event with its values written out; "-" is absent.
type snapshot map[string]string

// collect runs the workload under the session and returns the events of the probe.
func collect(t *testing.T, s *Session, workload func()) []snapshot {
	t.Helper()
	var events []snapshot
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan error, 1)
	go func() {
		read <- s.Read(ctx, func(e *Event) error {
			values := make(snapshot)
			for _, r := range s.requests {
				if r.Probe != e.Probe {
					continue
				}
				for _, f := range r.Fields {
					values[f.Name] = "-"
					if v, ok := e.Get(f); ok {
						values[f.Name] = fmt.Sprint(v)
					}
				}
			}
			events = append(events, values)
			return nil
		})
	}()
	workload()
	cancel()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	checkNoneLost(t, s)
	return events
}

func checkNoneLost(t *testing.T, s *Session) {
	t.Helper()
	losses, err := s.Losses()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		if l.Lost() > 0 {
			t.Errorf("lost events: %+v", l)
		}
	}
}

// momentary fields differ between two programs that see the same event.
var momentary = []string{"nsecs", "latency", "device_latency"}

// compareAlone captures each field of a probe alone and beside all the others; the values must be the same. The verifier lets a
// program of root read what it never wrote, so nothing else would notice a field that is delivered but not captured.
//
// with are fields that tell the workload's events from others'; keep is that choice.
func compareAlone(t *testing.T, h *Host, p *Probe, with []string, keep func(snapshot) bool, workload func()) {
	t.Helper()
	// A kernel function takes at most 38 programs (BPF_MAX_TRAMP_LINKS), so not all fields at once.
	for fields := range slices.Chunk(p.Fields, 8) {
		compareFieldsAlone(t, h, p, fields, with, keep, workload)
	}
}

func compareFieldsAlone(t *testing.T, h *Host, p *Probe, fields []*Field, with []string, keep func(snapshot) bool, workload func()) {
	t.Helper()
	reference := attach(t, h, Request{Probe: p, Fields: p.Fields})
	var want []snapshot
	run := func() { want = collect(t, reference, workload) }
	got := make([][]snapshot, len(fields))
	for i, f := range fields {
		wanted := []*Field{f}
		for _, name := range with {
			if name != f.Name {
				wanted = append(wanted, p.Field(name))
			}
		}
		alone, inner := attach(t, h, Request{Probe: p, Fields: wanted}), run
		run = func() { got[i] = collect(t, alone, inner) }
	}
	run()
	for i, f := range fields {
		a, b := valuesOf(f.Name, got[i], keep), valuesOf(f.Name, want, keep)
		if len(b) == 0 {
			t.Errorf("%s %s: the workload caused no event", p, f.Name)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s %s alone:\n%v\nwith others:\n%v", p, f.Name, a, b)
		}
	}
}

func valuesOf(field string, events []snapshot, keep func(snapshot) bool) []string {
	var values []string
	for _, e := range events {
		if !keep(e) {
			continue
		}
		v := e[field]
		if slices.Contains(momentary, field) && v != "-" && v != "0" {
			v = "a time"
		}
		values = append(values, v)
	}
	slices.Sort(values)
	return values
}

// objectIDs returns what a session holds in the kernel.
type objectIDs struct {
	programs []ebpf.ProgramID
	maps     []ebpf.MapID
	links    []link.ID
}

func idsOf(t *testing.T, s *Session) objectIDs {
	t.Helper()
	var ids objectIDs
	for _, r := range s.requests {
		for _, p := range r.programs {
			info, err := p.Info()
			if err != nil {
				t.Fatal(err)
			}
			id, _ := info.ID()
			ids.programs = append(ids.programs, id)
		}
		for _, l := range r.links {
			// Kernels before 5.15 attach kprobes without a BPF link.
			if info, err := l.Info(); err == nil {
				ids.links = append(ids.links, info.ID)
			}
		}
	}
	for _, m := range s.maps {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		ids.maps = append(ids.maps, id)
	}
	return ids
}

// left names the objects that still exist.
func (ids objectIDs) left() []string {
	var names []string
	for _, id := range ids.programs {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			names = append(names, p.String())
			p.Close()
		}
	}
	for _, id := range ids.maps {
		if m, err := ebpf.NewMapFromID(id); err == nil {
			names = append(names, m.String())
			m.Close()
		}
	}
	for _, id := range ids.links {
		if l, err := link.NewFromID(id); err == nil {
			names = append(names, fmt.Sprintf("link %d", id))
			l.Close()
		}
	}
	return names
}

// checkGone waits a little: the kernel frees after a grace period.
func (ids objectIDs) checkGone(t *testing.T) {
	t.Helper()
	for range 100 {
		if len(ids.left()) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left behind: %v", ids.left())
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestSyscallFieldsAlone(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Match("syscall:*") {
		t.Run(p.Name, func(t *testing.T) {
			var pid string
			compareAlone(t, h, p, []string{"pid"}, func(e snapshot) bool { return e["pid"] == pid }, func() {
				cmd := exec.Command("true")
				if err := cmd.Run(); err != nil {
					t.Fatal(err)
				}
				pid = fmt.Sprint(cmd.Process.Pid)
			})
		})
	}
}

// A session leaves nothing behind, however often: no descriptor, program, map or link.
func TestAttachDetachCycles(t *testing.T) {
	h := detect(t)
	reqs := requests(h.catalog.Match("syscall:*"))
	attach(t, h, reqs...) // skips without privileges
	cycle(t, 1000, func() (*Session, error) { return Attach(context.Background(), h, reqs, AttachOptions{}) })
}

func cycle(t *testing.T, times int, attach func() (*Session, error)) {
	t.Helper()
	before := openFiles(t)
	var ids []objectIDs
	for range times {
		s, err := attach()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, idsOf(t, s))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, session := range ids {
		session.checkGone(t)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// What the ring buffer has no room for is counted: lost and delivered are all that there was.
func TestLossIsCounted(t *testing.T) {
	h := detect(t)
	attach(t, h, Request{Probe: h.catalog.Match("syscall:enter")[0]}) // skips without privileges
	p := h.catalog.Match("syscall:enter")[0]
	s, err := Attach(context.Background(), h, []Request{{Probe: p, Fields: p.Fields}}, AttachOptions{RingBytes: os.Getpagesize()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// Nobody reads while this runs.
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var delivered uint64
	if err := s.Read(ctx, func(*Event) error { delivered++; return nil }); err != nil {
		t.Fatal(err)
	}
	losses, err := s.Losses()
	if err != nil {
		t.Fatal(err)
	}
	l := losses[0]
	if l.RingBuffer == 0 || l.RingBuffer+delivered != l.Events {
		t.Errorf("delivered %d, counted %+v", delivered, l)
	}
}
