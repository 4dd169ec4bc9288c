//go:build !vm

package probes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// A caller is a process that calls getppid.
type caller struct {
	pid int
	in  io.Writer
	out *bufio.Reader
}

// newCaller compiles and starts testdata/calls.c.
func newCaller(t *testing.T) *caller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calls")
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("needs a C compiler, as package gcc has it: %v", err)
	}
	if out, err := exec.Command("cc", "-Wall", "-Werror", "-O2", "-o", path, "testdata/calls.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(path)
	in, out := startPiped(t, cmd)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &caller{cmd.Process.Pid, in, bufio.NewReader(out)}
}

// call has getppid called, and returns how often the process means that it did.
func (c *caller) call(t *testing.T, times int) (made int) {
	t.Helper()
	fmt.Fprintln(c.in, times)
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if made, err = strconv.Atoi(line[:len(line)-1]); err != nil {
		t.Fatal(err)
	}
	return made
}

// calls counts the events of a probe that are of getppid.
func calls(events []probed) map[*event.Probe]int {
	counts := make(map[*event.Probe]int)
	for _, e := range events {
		if e.nr == unix.SYS_GETPPID {
			counts[e.probe]++
		}
	}
	return counts
}

// probed is an event of a system call.
type probed struct {
	probe *event.Probe
	nr    uint64
}

// reading reads a session until the returned function is called, which returns what was read.
func reading(t *testing.T, s *Session) (stop func() []probed) {
	t.Helper()
	var events []probed
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan error, 1)
	go func() {
		read <- s.Read(ctx, func(e *event.Event) error {
			nr, _ := e.Get(e.Probe.Field("nr"))
			n, _ := nr.(uint64)
			events = append(events, probed{e.Probe, n})
			return nil
		})
	}()
	return sync.OnceValue(func() []probed {
		cancel()
		if err := <-read; err != nil {
			t.Error(err)
		}
		return events
	})
}

// A probe that comes to a running session sees what happens from then until it is removed, and nothing else; the others see everything.
// Requests may come and go repeatedly. Their counts stay.
func TestAddAndRemove(t *testing.T) {
	h := detect(t)
	c := newCaller(t)
	enter, exit := h.catalog.Match("syscall:enter")[0], h.catalog.Match("syscall:exit")[0]
	reqs, o := requestsFor(
		want{probe: enter, fields: []*event.Field{enter.Field("nr")}, pid: c.pid},
		want{probe: exit, fields: []*event.Field{exit.Field("nr"), exit.Field("latency")}, pid: c.pid})
	for i := range reqs {
		reqs[i].Counted = true
	}
	s, err := Attach(t.Context(), h, reqs[:1], AttachOptions{Layouts: o.Layouts[:1]})
	requirePermitted(t, err)
	defer s.Close()
	before, files := idsOf(t, s), openFiles(t)
	h.Release() // what an addition needs is taken again
	stop := reading(t, s)
	defer stop()

	made := make(map[*event.Probe]int)
	for turn := range 5 {
		made[enter] += c.call(t, 300)
		if err := s.Add(t.Context(), reqs[1:], AddOptions{Layouts: o.Layouts[1:]}); err != nil {
			t.Fatal(err)
		}
		n := c.call(t, 1000+turn)
		made[enter] += n
		made[exit] += n
		if got := s.Attached(); len(got) != 2 {
			t.Errorf("attached %v, want both", got)
		}
		if err := s.Remove(reqs[1]); err != nil {
			t.Fatal(err)
		}
		if got := s.Attached(); len(got) != 1 || got[0].Probe != enter {
			t.Errorf("attached %v after removing, want %s", got, enter)
		}
	}
	made[enter] += c.call(t, 300)
	if after := openFiles(t); after > files+2 { // of the reader
		t.Errorf("%d descriptors before, %d after", files, after)
	}
	if got := idsOf(t, s); !slices.Equal(got.programs, before.programs) {
		t.Errorf("programs %v before, %v after", before.programs, got.programs)
	}
	events := stop()
	missed := int(checkNoneLost(t, s))
	got := calls(events)
	for _, p := range []*event.Probe{enter, exit} {
		if got[p] > made[p] || got[p] < made[p]-missed {
			t.Errorf("%d events of %s, the process made %d calls meanwhile; the kernel skipped %d", got[p], p, made[p], missed)
		}
	}
	delivered := make(map[*event.Probe]uint64)
	for _, e := range events {
		delivered[e.probe]++
	}
	for _, l := range lossesOf(t, s) {
		if l.Delivered != delivered[l.Probe] || l.Passed != l.Delivered+l.RingBuffer || l.Rejected == 0 {
			t.Errorf("%d events, counted %+v", delivered[l.Probe], l)
		}
	}
}

// A failed addition or removal leaves the session unchanged.
func TestAddFails(t *testing.T) {
	h := detect(t)
	enter, exit := h.catalog.Match("syscall:enter")[0], h.catalog.Match("syscall:exit")[0]
	reqs, o := requestsFor(want{probe: enter, fields: enter.Fields}, want{probe: exit, fields: exit.Fields})
	s, err := Attach(t.Context(), h, reqs[:1], AttachOptions{Layouts: o.Layouts[:1]})
	requirePermitted(t, err)
	defer s.Close()
	files := openFiles(t)
	bad := rejectAll()
	bad.Filter = writeToNull()
	var rejected *RejectedError
	if err := s.Add(t.Context(), []Request{{Probe: enter, Code: bad}}, AddOptions{}); !errors.As(err, &rejected) || rejected.Probe != enter {
		t.Errorf("%v, want the refusal of %s", err, enter)
	}
	other := event.NewLayout(0, exit, exit.Fields, nil)
	if err := s.Add(t.Context(), reqs[1:], AddOptions{Layouts: []*event.Layout{other}}); err == nil {
		t.Error("two layouts have one ID")
	}
	if err := s.Remove(reqs[1]); err == nil || err.Error() != "syscall:exit is not attached for this request" {
		t.Errorf("%v after removing what is not attached", err)
	}
	if after := openFiles(t); after != files {
		t.Errorf("%d descriptors before, %d after", files, after)
	}
	if got := s.Attached(); len(got) != 1 {
		t.Errorf("attached %v", got)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Add(t.Context(), reqs[1:], AddOptions{}), s.Remove(reqs[0])} {
		if err == nil || err.Error() != "the session is detached" {
			t.Errorf("%v after detaching", err)
		}
	}
}

// A session without records has no room for any; one that has a layout of a probe which comes later has.
func TestAddRecords(t *testing.T) {
	h := detect(t)
	exit := h.catalog.Match("syscall:exit")[0]
	attach(t, h, Request{Probe: exit, Code: rejectAll()}) // skips without privileges
	reqs, o := requestsFor(want{probe: exit, fields: exit.Fields})
	for _, layouts := range [][]*event.Layout{nil, o.Layouts} {
		s, err := Attach(t.Context(), h, nil, AttachOptions{Layouts: layouts})
		requirePermitted(t, err)
		err = s.Add(t.Context(), reqs, AddOptions{Layouts: o.Layouts})
		const want = "the session has no room for records: it was attached without layouts"
		if (err == nil) != (layouts != nil) || err != nil && err.Error() != want {
			t.Errorf("with %d layouts: %v", len(layouts), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Concurrent callers see a session before or after a change; the counts never fall.
func TestChangesAndQuestions(t *testing.T) {
	h := detect(t)
	enter, exit := h.catalog.Match("syscall:enter")[0], h.catalog.Match("syscall:exit")[0]
	reqs, o := requestsFor(want{probe: enter, fields: enter.Fields}, want{probe: exit, fields: exit.Fields})
	for i := range reqs {
		reqs[i].Counted = true
	}
	s, err := Attach(t.Context(), h, reqs[:1], o)
	requirePermitted(t, err)
	stop := reading(t, s)
	var asking sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	asking.Go(func() {
		seen := make(map[*event.Probe]uint64)
		for ctx.Err() == nil {
			losses, err := s.Losses()
			if err != nil {
				t.Error(err)
				return
			}
			for _, l := range losses {
				if l.Events < seen[l.Probe] {
					t.Errorf("%d events of %s, %d before", l.Events, l.Probe, seen[l.Probe])
				}
				seen[l.Probe] = l.Events
			}
		}
	})
	asking.Go(func() {
		for ctx.Err() == nil {
			if n := len(s.Attached()); n != 1 && n != 2 {
				t.Errorf("%d probes are attached", n)
			}
			s.Refused()
			s.Skipped()
			s.Notes()
			s.Correct(ctx)
		}
	})
	for range 20 {
		if err := errors.Join(s.Add(ctx, reqs[1:], AddOptions{}), s.Remove(reqs[1])); err != nil {
			t.Error(err)
		}
	}
	asking.Go(func() {
		for errors.Join(s.Add(ctx, reqs[1:], AddOptions{}), s.Remove(reqs[1])) == nil {
		}
	})
	stop() // detaches
	cancel()
	asking.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
