package probes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

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

// attachWants attaches the code for what is wanted. It fails the test if that fails, and skips it only without the privileges.
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

// A job is a workload that runs on demand, in the process pid; that is 0 if it is many processes.
type job struct {
	pid int
	run func()
}

// waiting starts a process that makes system calls on demand, under a pid that is known before.
func waiting(t *testing.T) job {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo ready; read go; exec true")
	in, out := startPiped(t, cmd)
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
		// Not by opening it: an array of programs that is closed is freed by a worker, and this would start another one (prog_array_map_clear,
		// kernel/bpf/arraymap.c).
		if next, err := ebpf.MapGetNextID(id - 1); err == nil && next == id {
			names = append(names, fmt.Sprintf("map %d", id))
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

// allMaps are the maps of a session that are its own.
func (s *Session) allMaps() []*ebpf.Map {
	all := []*ebpf.Map{s.ring.buffer}
	for _, b := range s.batches {
		all = append(all, b.maps...)
	}
	return all
}

// attachOnly attaches one variant of a probe, and the helpers that it needs: by the same variant if they have it. Where nothing is read that types
// would save, tp_btf is not there, and the best variant takes its place.
func attachOnly(h *Host, index int, req Request, o AttachOptions) (_ *Session, err error) {
	r, err := h.serve(req)
	if err != nil {
		return nil, err
	}
	b := &batch{requests: []*request{r}}
	s := &Session{host: h, requests: b.requests, batches: []*batch{b}, silence: newSilence(nil)}
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
	defer func() { _ = l.release() }()
	b.maps = slices.Collect(maps.Values(l.maps))
	r.counts = l.maps[countsName(r.Probe)]
	chosen := h.variantsOf(r.Probe)[index]
	for _, hk := range r.allHooks() {
		variants := slices.DeleteFunc(h.hostHookFor(r, hk).variants(), func(v variant) bool { return v.check() != nil })
		same := slices.IndexFunc(variants, func(v variant) bool {
			return v.name() == chosen.name() && (hk.name != r.origin.hook.name || slices.EqualFunc(v.programs, chosen.programs, func(a, b program) bool { return a.instance() == b.instance() }))
		})
		if len(variants) == 0 {
			continue
		}
		if err := attachVariant(context.Background(), h, l, r, hk, variants[max(same, 0)]); err != nil {
			return nil, fmt.Errorf("%s: %w", hk.name, err)
		}
	}
	return s, nil
}

// startPiped starts a command, and returns its standard input and output.
func startPiped(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}
