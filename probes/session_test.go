package probes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
)

// The filter decides what passes, and both are counted.
func TestFilter(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	j := waiting(t)
	reqs, o := requestsFor(want{probe: p, fields: []*event.Field{p.Field("pid"), p.Field("nr")}, operand: p.Field("nr"), pid: j.pid})
	reqs[0].Counted = true
	s := attachWith(t, h, reqs, o)
	events := collect(t, s, j.run)
	for _, e := range events {
		if e["pid"] != fmt.Sprint(j.pid) || e[passed] != e[foldOf("nr")] {
			t.Errorf("event %v, want pid %d", e, j.pid)
		}
	}
	l := lossesOf(t, s)[0]
	if len(events) == 0 || l.Delivered != uint64(len(events)) || !l.Counted || l.Passed != l.Delivered || l.Rejected == 0 || l.Events != l.Passed+l.Rejected {
		t.Errorf("%d events, counted %+v", len(events), l)
	}
}

// Generated code may use all the stack that StackLeft returns, whatever registers it uses.
func TestAllOfTheStack(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Match("syscall:*") {
		for _, w := range wantAll(t, h, p).ways() {
			attachWants(t, h, w)
		}
	}
}

// Where nothing of the kernel's types is wanted they are not read, and the best variant is attached without them; the kernel itself reports
// whether it has the tracepoint.
func TestTypelessVariant(t *testing.T) {
	h := detect(t)
	for _, glob := range []string{"syscall:*", "nvme:async_event"} {
		for _, p := range h.catalog.Match(glob) {
			if h.Status(p).Variant == "" {
				continue
			}
			fresh, err := newHost(load(t), kernel.Options{Types: func() (*btf.Spec, error) {
				t.Errorf("%s: the kernel's types are read", p)
				return nil, kernel.ErrNoBTF
			}})
			if err != nil {
				t.Fatal(err)
			}
			reqs, o := requestsFor(want{probe: p, fields: []*event.Field{p.Field("comm"), p.Field("nsecs")}})
			expected, _ := fresh.VariantFor(reqs[0])
			if got := attachWith(t, fresh, reqs, o).Attached()[0]; got.Variant != expected || expected == "tp_btf" {
				t.Errorf("attached %v, expected by %s", got, expected)
			}
		}
	}
	if err := checkRawTracepoint("no_such_tracepoint"); err == nil || !strings.Contains(err.Error(), "no tracepoint") {
		t.Errorf("%v, want that error", err)
	}
}

// wantAll wants all fields, and as much stack as there is.
func wantAll(t testing.TB, h *Host, p *event.Probe) want {
	t.Helper()
	left, err := h.catalog.StackLeft(p)
	if err != nil {
		t.Fatal(err)
	}
	return want{probe: p, fields: p.Fields, stack: left}
}

// What is in the buffer after the end is known before it is read, also where the buffer is filled up for the second time, and what is not
// handled is lost.
func TestLeft(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	reqs, o := requestsFor(want{probe: p, fields: []*event.Field{p.Field("nr")}, operand: p.Field("pid"), pid: os.Getpid()})
	o.RingBytes = 64 << 10
	s := attachWith(t, h, reqs, o)
	call := func() {
		for range 1000 {
			unix.Getppid()
		}
	}
	handled, left := 0, 0
	ctx, end := context.WithCancel(t.Context())
	err := s.Read(ctx, func(e *event.Event) error {
		if handled++; handled == 1 {
			call()
			return nil
		}
		if handled < 1000 {
			return nil
		}
		if handled == 1000 {
			call()
			end()
			if err := s.Detach(); err != nil {
				return err
			}
			var err error
			left, err = s.Left()
			return err
		}
		return ErrUnhandled
	})
	if err != nil {
		t.Fatal(err)
	}
	l := lossesOf(t, s)[0]
	if left < 1000 || l.Unhandled != uint64(left) || l.Delivered != 1000 || l.Lost() < l.Unhandled {
		t.Errorf("%d left in the buffer, counted %+v", left, l)
	}
	if after, err := s.Left(); after != 0 || err != nil {
		t.Errorf("%d left in the buffer at the end: %v", after, err)
	}
}

// A call that was entered before tracing began comes without a latency, and is counted.
func TestUnmatched(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("syscall:exit")[0]
	j := waiting(t) // in read(2)
	s := attachWants(t, h, want{probe: p, fields: []*event.Field{p.Field("latency")}, pid: j.pid})
	events := collect(t, s, j.run)
	if len(events) < 2 || events[0]["latency"] != "-" || events[1]["latency"] == "-" {
		t.Errorf("events %v, want the first without latency, the next with", events)
	}
	if l := lossesOf(t, s)[0]; l.Unmatched == 0 {
		t.Errorf("counted %+v, want some unmatched", l)
	}
	checkNoneLost(t, s)
}

// After Release nothing keeps the programs of the catalog and the kernel's types, and attached programs continue.
func TestRelease(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	h, err := Detect(c, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Match("syscall:exit")[0]
	j := waiting(t)
	s := attachWants(t, h, want{probe: p, fields: []*event.Field{p.Field("nr")}, pid: j.pid})
	object, err := c.objects[p.Group].whole()
	if err != nil {
		t.Fatal(err)
	}
	described, err := h.kernel.Types()
	if err != nil && !errors.Is(err, kernel.ErrNoBTF) {
		t.Fatal(err)
	}
	programs, types := weak.Make(object), weak.Make(described)
	h.Release()
	runtime.GC()
	if programs.Value() != nil || types.Value() != nil {
		t.Errorf("kept: the catalog's programs %t, the kernel's types %t", programs.Value() != nil, types.Value() != nil)
	}
	if events := collect(t, s, j.run); len(events) == 0 {
		t.Error("no event after Release")
	}
	checkNoneLost(t, s)
}

// Where no more beginnings can be remembered, that is counted, as are the ends that lack them.
func TestInFlightFull(t *testing.T) {
	h, err := Detect(load(t), HostOptions{FullTables: true})
	if err != nil {
		t.Fatal(err)
	}
	p := h.catalog.Match("syscall:exit")[0]
	// A call that returns elsewhere makes room for another one, and a process with many threads that ends, for many.
	for range 10 {
		j := waiting(t)
		s := attachWants(t, h, want{probe: p, fields: []*event.Field{p.Field("latency")}, pid: j.pid})
		fill(t, s, "syscall_starts")
		events := collect(t, s, j.run)
		without := slices.DeleteFunc(events, func(e snapshot) bool { return e["latency"] != "-" })
		l := lossesOf(t, s)[0]
		if l.Unmatched < uint64(len(without)) {
			t.Errorf("%d events without latency, counted %+v", len(without), l)
		}
		checkNoneLost(t, s)
		if len(without) > 0 && l.InFlightFull > 0 {
			return
		}
	}
	t.Error("each call found room")
}

// fill puts unused keys into a hash map of a session until it is full.
func fill(t *testing.T, s *Session, name string) {
	t.Helper()
	for _, m := range s.allMaps() {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != name {
			continue
		}
		key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		for i := range m.MaxEntries() {
			binary.LittleEndian.PutUint32(key, ^i)
			// What is there already takes the place of one of these.
			if err := m.Put(key, value); err != nil && !errors.Is(err, unix.E2BIG) {
				t.Fatal(err)
			}
		}
		return
	}
	t.Fatalf("no map %s", name)
}

// Two requests for samples, at two rates; what runs is sampled.
func TestProfile(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("profile:hz")[0]
	reqs, o := requestsFor(want{probe: p, fields: p.Fields}, want{probe: p, fields: p.Fields})
	reqs[0].Arg, reqs[1].Arg = Rate(20), Rate(200)
	s := attachWith(t, h, reqs, o)
	var samples, own [2]int
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
		}
	}()
	err := s.Read(ctx, func(e *event.Event) error {
		samples[e.Layout().ID]++
		if pid, _ := e.Get(p.Field("pid")); pid == uint64(os.Getpid()) {
			own[e.Layout().ID]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if samples[0] == 0 || samples[1] < 4*samples[0] || samples[1] > 20*samples[0] {
		t.Errorf("%v samples at 20 and 200 Hz", samples)
	}
	if own[1] == 0 {
		t.Error("no sample of this process, which is busy")
	}
	if l := lossesOf(t, s); len(l) != 1 || l[0].Delivered != uint64(samples[0]+samples[1]) || l[0].Lost() != 0 {
		t.Errorf("samples %v, counted %+v", samples, l)
	}
}

// The rate is checked here, where it is missing, and by the kernel, where it is too high; then the error has the limit.
func TestProfileRate(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("profile:hz")[0]
	attach(t, h, Request{Probe: p, Code: rejectAll(), Arg: Rate(1)}) // skips without privileges
	for hz, want := range map[Rate]string{0: "at least 1", 1 << 30: "perf_event_max_sample_rate"} {
		_, err := Attach(context.Background(), h, []Request{{Probe: p, Code: rejectAll(), Arg: hz}}, AttachOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d Hz: %v, want an error with %q", hz, err, want)
		}
	}
}

// A session leaves nothing behind, however often: no descriptor, program, map or link.
func TestAttachDetachCycles(t *testing.T) {
	h := detect(t)
	var wants []want
	for _, p := range h.catalog.Match("syscall:*") {
		wants = append(wants, want{probe: p, fields: p.Fields})
	}
	wants = append(wants, want{probe: h.catalog.Match("profile:hz")[0]})
	reqs, o := requestsFor(wants...)
	attachWith(t, h, reqs, o) // skips without privileges
	cycle(t, 1000, func() (*Session, error) { return Attach(context.Background(), h, reqs, o) })
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
	p := h.catalog.Match("syscall:enter")[0]
	reqs, o := requestsFor(want{probe: p, fields: p.Fields})
	o.RingBytes = os.Getpagesize()
	reqs[0].Counted = true
	s := attachWith(t, h, reqs, o)
	// Nobody reads while this runs.
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	delivered := uint64(len(collect(t, s, func() {})))
	if l := lossesOf(t, s)[0]; l.RingBuffer == 0 || l.RingBuffer+delivered != l.Passed || l.Delivered != delivered {
		t.Errorf("delivered %d, counted %+v", delivered, l)
	}
}
