package probes

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
)

func detect(t testing.TB) *Host {
	t.Helper()
	h, err := Detect(load(t), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// attachWants attaches the code for what is wanted. It fails the test if that cannot be done, and skips it only where this process may not.
func attachWants(t testing.TB, h *Host, wants ...want) *Session {
	t.Helper()
	reqs, o := requestsFor(wants...)
	return attachWith(t, h, reqs, o)
}

func attach(t testing.TB, h *Host, reqs ...Request) *Session {
	t.Helper()
	return attachWith(t, h, reqs, AttachOptions{})
}

// requirePermitted skips a test that lacks capabilities; any other error fails it.
func requirePermitted(t testing.TB, err error) {
	t.Helper()
	var denied *kernel.PermissionError
	if errors.As(err, &denied) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func attachWith(t testing.TB, h *Host, reqs []Request, o AttachOptions) *Session {
	t.Helper()
	s, err := Attach(context.Background(), h, reqs, o)
	requirePermitted(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func requestsFor(wants ...want) (reqs []Request, o AttachOptions) {
	for i, w := range wants {
		r, l := w.request(i)
		reqs, o.Layouts = append(reqs, r), append(o.Layouts, l)
	}
	return reqs, o
}

// snapshot is an event with its values written out; "-" is absent.
type snapshot map[string]string

// passed is the name in a snapshot of the result of the filter; foldOf what that has to be if the field is the filter's operand.
const passed = "passed"

func foldOf(field string) string { return "fold of " + field }

func snapshotOf(e *event.Event) snapshot {
	values := make(snapshot)
	for _, place := range e.Layout().Places() {
		f := place.Field
		values[f.Name], values[foldOf(f.Name)] = "-", fmt.Sprint(fold(nil))
		if v, ok := e.Get(f); ok {
			values[f.Name], values[foldOf(f.Name)] = fmt.Sprint(v), fmt.Sprint(fold(e.Record()[place.At:place.At+f.Type.Size]))
		}
	}
	result, _ := e.Value(0)
	values[passed] = fmt.Sprint(result)
	return values
}

// collect runs the workload under the session and returns its events.
func collect(t *testing.T, s *Session, workload func()) []snapshot {
	t.Helper()
	var events []snapshot
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan error, 1)
	go func() {
		read <- s.Read(ctx, func(e *event.Event) error {
			events = append(events, snapshotOf(e))
			return nil
		})
	}()
	workload()
	cancel()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	return events
}

func lossesOf(t *testing.T, s *Session) []Losses {
	t.Helper()
	losses, err := s.Losses()
	if err != nil {
		t.Fatal(err)
	}
	return losses
}

// checkNoneLost returns what the kernel skipped. That is no fault of ours: kernels that preempt a program on a system call (seen on
// 7.2) do not run it again on that CPU for the task that comes in between.
func checkNoneLost(t *testing.T, s *Session) (missed uint64) {
	t.Helper()
	for _, l := range lossesOf(t, s) {
		skipped := l.Missed + l.MissedBeginnings
		if l.Lost() > skipped {
			t.Errorf("lost events: %+v", l)
		}
		missed += skipped
	}
	return missed
}

// A job is a workload that runs when it is told to, in the process pid; that is 0 if it is many processes.
type job struct {
	pid int
	run func()
}

// momentary fields differ between two programs that see the same event: times, and durations until then.
func momentary(f *event.Field) bool { return f.Name == "nsecs" || f.Type.Unit == event.Nanoseconds }

// compareAlone captures each field of a probe alone and beside all the others, and alone as what the filter reads; the values must
// be the same. The verifier lets a program of root read what it never wrote, so nothing else would notice a field that is delivered
// but not captured.
func compareAlone(t *testing.T, h *Host, p *event.Probe, start func() job) {
	t.Helper()
	// A kernel function takes at most 38 programs (BPF_MAX_TRAMP_LINKS), so not all fields at once.
	for fields := range slices.Chunk(p.Fields, 6) {
		tr := captureAlone(t, h, p, fields, start())
		for range 5 {
			if tr.missed == 0 || tr.complete() {
				break
			}
			tr = captureAlone(t, h, p, fields, start())
		}
		tr.compare(t, p, fields)
	}
}

// A trial is what sessions saw of one job: with all fields, with each field alone, and with each alone in the filter.
type trial struct {
	reference       []snapshot
	alone, inFilter [][]snapshot
	missed          uint64
}

func captureAlone(t *testing.T, h *Host, p *event.Probe, fields []*event.Field, j job) *trial {
	t.Helper()
	tr := &trial{alone: make([][]snapshot, len(fields)), inFilter: make([][]snapshot, len(fields))}
	run := tr.collecting(t, h, want{probe: p, fields: p.Fields, pid: j.pid}, &tr.reference, j.run)
	for i, f := range fields {
		run = tr.collecting(t, h, want{probe: p, fields: []*event.Field{f}, pid: j.pid}, &tr.alone[i], run)
		run = tr.collecting(t, h, want{probe: p, operand: f, pid: j.pid}, &tr.inFilter[i], run)
	}
	run()
	return tr
}

// collecting attaches the code for a want, and returns a workload that runs another one under it and collects its events.
func (tr *trial) collecting(t *testing.T, h *Host, w want, events *[]snapshot, workload func()) func() {
	t.Helper()
	s := attachWants(t, h, w)
	return func() {
		*events = collect(t, s, workload)
		tr.missed += checkNoneLost(t, s)
	}
}

// complete tells whether all sessions saw as many events.
func (tr *trial) complete() bool {
	return !slices.ContainsFunc(slices.Concat(tr.alone, tr.inFilter), func(events []snapshot) bool { return len(events) != len(tr.reference) })
}

func (tr *trial) compare(t *testing.T, p *event.Probe, fields []*event.Field) {
	t.Helper()
	if len(tr.reference) == 0 {
		t.Errorf("%s: the workload caused no event", p)
	}
	for i, f := range fields {
		sameValues(t, f, "alone", valuesOf(f, f.Name, tr.alone[i]), valuesOf(f, f.Name, tr.reference))
		sameValues(t, f, "in the filter", valuesOf(f, passed, tr.inFilter[i]), valuesOf(f, foldOf(f.Name), tr.reference))
	}
}

func sameValues(t *testing.T, f *event.Field, how string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s %s:\n%v\nwith others:\n%v", f.Name, how, got, want)
	}
}

// valuesOf returns what the events have under a key that is about a field, sorted.
func valuesOf(f *event.Field, key string, events []snapshot) []string {
	var values []string
	for _, e := range events {
		v := e[key]
		if momentary(f) && v != "-" && v != fmt.Sprint(fold(nil)) {
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
		for _, a := range r.attached {
			info, err := a.program.Info()
			if err != nil {
				t.Fatal(err)
			}
			id, _ := info.ID()
			ids.programs = append(ids.programs, id)
			for _, l := range a.links {
				// Kernels before 5.15 attach kprobes and clocks without a BPF link.
				if lk, ok := l.(link.Link); ok {
					if info, err := lk.Info(); err == nil {
						ids.links = append(ids.links, info.ID)
					}
				}
			}
		}
	}
	for _, m := range s.allMaps() {
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

// waiting starts a process that makes system calls when it is told to, under a pid that is known before.
func waiting(t *testing.T) job {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo ready; read go; exec true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for !asleep(t, cmd.Process.Pid) { // in read, which some sessions would see begin otherwise
		time.Sleep(time.Millisecond)
	}
	return job{pid: cmd.Process.Pid, run: func() {
		fmt.Fprintln(in, "go")
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}}
}

func asleep(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(stat), ") S ")
}

func TestSyscallFieldsAlone(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Match("syscall:*") {
		t.Run(p.Name, func(t *testing.T) { compareAlone(t, h, p, func() job { return waiting(t) }) })
	}
}

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

// The functions of the generated code may use all the stack that is said to be left, be they called or not.
func TestAllOfTheStack(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Match("syscall:*") {
		for _, w := range wantAll(t, h, p).ways() {
			attachWants(t, h, w)
		}
	}
}

// Where nothing of the kernel's types is wanted they are not read; the kernel itself tells whether it has the tracepoint.
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
			s := attachWants(t, fresh, want{probe: p, fields: []*event.Field{p.Field("comm"), p.Field("nsecs")}})
			if got := s.Variants()[0]; got != p.String()+" raw_tp" {
				t.Errorf("attached %s", got)
			}
		}
	}
	if err := checkRawTracepoint("no_such_tracepoint"); err == nil || !strings.Contains(err.Error(), "no tracepoint") {
		t.Errorf("%v, want an error that says so", err)
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

// After Release nothing keeps the programs of the catalog and the kernel's types, and what is attached goes on.
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
	object, err := c.objects[p.Group].load()
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
	h := detect(t)
	p := h.catalog.Match("syscall:exit")[0]
	j := waiting(t)
	s := attachWants(t, h, want{probe: p, fields: []*event.Field{p.Field("latency")}, pid: j.pid})
	fill(t, s, "syscall_starts")
	events := collect(t, s, j.run)
	// A call that returns elsewhere makes room for another one.
	without := slices.DeleteFunc(events, func(e snapshot) bool { return e["latency"] != "-" })
	if l := lossesOf(t, s)[0]; len(without) == 0 || l.InFlightFull == 0 || l.Unmatched < uint64(len(without)) {
		t.Errorf("%d events without latency, counted %+v", len(without), l)
	}
	checkNoneLost(t, s)
}

// fill puts keys that nobody asks for into a hash map of a session until it is full.
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

// The rate is checked here, where it is missing, and by the kernel, where it is too high; then the error tells the limit.
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

// allMaps are the maps of a session that are its own.
func (s *Session) allMaps() []*ebpf.Map {
	all := []*ebpf.Map{s.ring.buffer}
	for _, b := range s.batches {
		all = append(all, b.maps...)
	}
	return all
}

// attachOnly attaches one variant of a probe, and of the helpers that it needs those of the same name.
func attachOnly(h *Host, index int, req Request, o AttachOptions) (_ *Session, err error) {
	r, err := h.serve(req)
	if err != nil {
		return nil, err
	}
	b := &batch{requests: []*request{r}}
	s := &Session{host: h, requests: b.requests, batches: []*batch{b}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.records.add(o.Layouts); err != nil {
		return nil, err
	}
	if s.ring, err = openRing(o.RingBytes, !delivers(b.requests)); err != nil {
		return nil, err
	}
	l, err := newLoader(h, b.requests, map[string]*ebpf.Map{RingName: s.ring.buffer})
	if err != nil {
		return nil, err
	}
	b.maps = slices.Collect(maps.Values(l.maps))
	r.counts = l.maps[countsName(r.Probe)]
	name := h.variantsOf(r.Probe)[index].name()
	for _, hk := range r.allHooks() {
		for i, v := range h.site(r.source.object, hk).variants() {
			if v.check() != nil || v.name() != name || hk.name == r.source.hook.name && i != index {
				continue
			}
			if err := attachVariant(h, l, r, hk, v); err != nil {
				return nil, fmt.Errorf("%s: %w", hk.name, err)
			}
		}
	}
	return s, nil
}
