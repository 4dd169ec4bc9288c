package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// wrong is a request whose code the verifier rejects on every kernel.
func wrong(p *event.Probe) Request {
	passes := asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}
	noMap := asm.Instructions{asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0), asm.FnMapDeleteElem.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()}
	return Request{Probe: p, Code: &Code{Filter: passes, Action: noMap}, IfAvailable: true, Reduced: true}
}

// What the kernel refuses stops nothing else, if the program can do without it. Code that was not reduced yet is tried again, and what is required is an
// error.
func TestRefusedIsLeftOut(t *testing.T) {
	h := detect(t)
	enter, exit := h.catalog.Match("syscall:enter")[0], h.catalog.Match("syscall:exit")[0]
	j := waiting(t)
	reqs, o := requestsFor(want{probe: exit, fields: []*event.Field{exit.Field("pid"), exit.Field("latency")}, pid: j.pid})
	s := attachWith(t, h, append([]Request{wrong(enter)}, reqs...), o)
	if got := fmt.Sprint(s.Attached()[0].Probe, len(s.Attached())); got != "syscall:exit 1" {
		t.Errorf("attached %s", got)
	}
	if left := s.Skipped(); len(left) != 1 || left[0].Names() != "syscall:enter" || !left[0].Refused || !strings.Contains(left[0].Reason, "R1 type=") {
		t.Errorf("left out: %v", left)
	}
	if events := collect(t, s, j.run); len(events) == 0 {
		t.Error("the other probe has no event")
	}
	checkNoneLost(t, s)

	// Helpers that a refused request has attached stay for the others that need them, and go with the last one.
	two := attachWith(t, h, []Request{withLatency(exit), reqs[0]}, o)
	if l := lossesOf(t, two); len(two.Attached()) != 1 || len(two.Skipped()) != 1 || len(l) != 1 {
		t.Errorf("attached %v, left out %v, counted %v", two.Attached(), two.Skipped(), l)
	}

	for name, change := range map[string]func(*Request){
		"the only one": func(r *Request) { r.OrNone = true }, "required": func(r *Request) { r.IfAvailable = false }, "not reduced": func(r *Request) { r.Reduced = false },
	} {
		r := wrong(enter)
		change(&r)
		all := []Request{r}
		if name != "the only one" {
			all = append(all, reqs...)
		}
		s, err := Attach(context.Background(), h, all, o)
		var rejected *RejectedError
		var refused *UnavailableError
		if err == nil || errors.As(err, &rejected) == (name == "the only one") && !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// What was left out is attached as soon as the kernel accepts it. What was attached loses nothing.
func TestRetry(t *testing.T) {
	h := detect(t)
	enter, exit := h.catalog.Match("syscall:enter")[0], h.catalog.Match("syscall:exit")[0]
	j := waiting(t)
	reqs, o := requestsFor(want{probe: enter, fields: []*event.Field{enter.Field("pid")}, pid: j.pid}, want{probe: exit, fields: []*event.Field{exit.Field("pid")}, pid: j.pid})
	right := *reqs[0].Code
	reqs[0] = wrong(enter)
	reqs[0].Code.Action = append(slices.Clone(reqs[0].Code.Action), right.Action...)
	reqs[1].Code, reqs[1].Counted = noClause(), true // it writes no record: the buffer has room all the same
	s := attachWith(t, h, reqs, o)
	for range 2 {
		if err := s.Retry(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := s.Skipped(); len(left) != 1 || left[0].Of(enter).Names() != "syscall:enter" || !left[0].Refused || len(s.Attached()) != 1 {
			t.Fatalf("left out: %v, attached: %v", left, s.Attached())
		}
	}
	before := lossesOf(t, s)
	*reqs[0].Code = right
	if err := s.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.Skipped()) != 0 || len(s.Attached()) != 2 {
		t.Errorf("left out: %v, attached: %v", s.Skipped(), s.Attached())
	}
	if events := collect(t, s, j.run); len(events) == 0 {
		t.Error("there are no events of what was attached later")
	}
	after := lossesOf(t, s)
	if i := slices.IndexFunc(after, func(l Losses) bool { return l.Probe == exit }); len(after) != 2 || after[i].Rejected <= before[0].Rejected {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := s.Retry(t.Context()); err != nil { // nothing is left
		t.Error(err)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	s.left = reqs[:1]
	if err := s.Retry(t.Context()); !errors.Is(err, errDetached) {
		t.Error(err)
	}
}

// withLatency is a request that needs a helper, and whose code the verifier rejects.
func withLatency(p *event.Probe) Request {
	r := wrong(p)
	f := p.Field("latency")
	r.Code.Before = []Span{{f.Offset, f.Type.Size}}
	return r
}

// What Try calls available attaches in a run with all its fields or, if it reports that some cannot be read, with none. What it refuses does not.
func TestTried(t *testing.T) {
	if os.Getuid() == 0 && os.Getenv("TRACEFS_MOUNTED") == "" {
		inNamespace(t)
		return
	}
	h := detect(t)
	all := h.catalog.Probes()
	found, err := h.Try(t.Context(), all)
	requirePermitted(t, err)
	available, refused := 0, 0
	for i, s := range found {
		if s.Probe != all[i] {
			t.Fatalf("%s is %s", all[i], s.Probe)
		}
		code := readsAll
		if slices.ContainsFunc(s.Notes, func(n string) bool { return strings.HasPrefix(n, "some fields cannot be read: ") }) {
			code = func(*event.Probe) *Code { return noClause() }
		}
		if h.Status(s.Probe).Variant == "" {
			if s.Variant != "" || s.Reason == "" {
				t.Errorf("%s: %+v, though this kernel does not have it", s.Probe, s)
			}
			continue
		}
		session, err := Attach(t.Context(), h, []Request{{Probe: s.Probe, Code: code(s.Probe), Arg: leastArg(s.Probe)}}, AttachOptions{})
		switch {
		case err == nil && s.Variant != "":
			available++
			if got := session.Attached()[0].Variant; got != s.Variant {
				t.Errorf("%s is attached by %s, not %s", s.Probe, got, s.Variant)
			}
		case err != nil && s.Variant == "":
			refused++
			if s.Reason == "" {
				t.Errorf("%s: no reason is given", s.Probe)
			}
		default:
			t.Errorf("%s: %q (%s), and a run: %v", s.Probe, s.Variant, s.Reason, err)
		}
		if err == nil {
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d probes are available, %d refused", available, refused)
	const least = 22 // by tracepoints and clocks, on every kernel with BTF
	if available < least {
		t.Errorf("%d probes are available, want at least %d", available, least)
	}
}

// inNamespace runs the test again where tracefs is mounted.
func inNamespace(t *testing.T) {
	t.Helper()
	again := exec.Command("/bin/sh", "-c", "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec \"$0\" -test.v -test.run '^"+t.Name()+"$'", os.Args[0])
	again.Env = append(os.Environ(), "TRACEFS_MOUNTED=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := again.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Error(err)
	}
}
