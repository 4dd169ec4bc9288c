//go:build linux

package probes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"trace/probes/event"
	"trace/probes/kernel"
)

// A switch of the kernel that silences programs is noted when they are attached, and when it changes; each time counts as a gap. Programs of
// other ways are left alone, and nothing is read for them.
func TestSilence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "switch")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened := 0
	s := newSilence([]*silencer{{
		name: "x is 0", fix: "sysctl x=1", ways: isTrampoline, spares: func(p program) bool { return p.target == "spared" },
		open: func() (*kernel.Number, error) { opened++; return kernel.OpenSysctl("../.." + file) },
	}})
	defer s.close()
	serve := func(name string, w way, target string) *request {
		return &request{
			Request:  Request{Probe: event.NewProbe("t", name, "", nil)},
			attached: []*attached{{place: program{way: w, target: target}}},
		}
	}
	fexit, spared, raw := serve("fexit", trampoline{atReturn: true}, "f"), serve("spared", trampoline{}, "spared"), serve("raw", rawTracepoint{}, "r")
	all := []*request{fexit, spared, raw}
	var n notes

	if s.look([]*request{raw}, &n); opened != 0 {
		t.Errorf("opened %d times for programs of another way", opened)
	}
	const off = "the kernel does not run programs of t:fexit, so their events are missing: x is 0: sysctl x=1"
	const on = "the kernel runs programs of t:fexit again: events from before are missing"
	for i, step := range []struct {
		text string
		note []string
		gaps uint64
	}{{"0\n", []string{off}, 1}, {"0\n", nil, 1}, {"1\n", []string{on}, 1}, {"1\n", nil, 1}, {"0\n", []string{off}, 2}, {"", nil, 2}} {
		write(step.text)
		if step.text == "" { // it cannot be understood: as if it were on, nothing is known
			step.note = []string{on}
		}
		s.look(all, &n)
		if got := n.take(); !slices.Equal(got, step.note) || fexit.gaps != step.gaps || spared.gaps+raw.gaps != 0 {
			t.Errorf("step %d: %q, %d gaps, of others %d; want %q, %d gaps", i, got, fexit.gaps, spared.gaps+raw.gaps, step.note, step.gaps)
		}
	}
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
}

// A probe hears nothing if its programs are silenced, or a helper's, also where another request has attached that.
func TestDeaf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "switch")
	s := newSilence([]*silencer{{
		name: "x is 0", fix: "sysctl x=1", ways: isTrampoline, spares: func(program) bool { return false },
		open: func() (*kernel.Number, error) { return kernel.OpenSysctl("../.." + file) },
	}})
	defer s.close()
	h := hostOf(t, "none")
	serve := func(name string, attached []*attached, hooks ...string) *request {
		r, err := h.serve(Request{Probe: h.catalog.Match(name)[0], Code: noClause(), IfAvailable: true})
		if err != nil {
			t.Fatal(err)
		}
		r.attached, r.hooks = attached, nil
		for _, hk := range hooks {
			r.hooks = append(r.hooks, hook{name: hk})
		}
		return r
	}
	fexit := func(hook string) *attached {
		return &attached{place: program{way: trampoline{atReturn: true}}, hook: hook}
	}
	raw := func(hook string) *attached { return &attached{place: program{way: rawTracepoint{}}, hook: hook} }
	first := serve("sched:runq", []*attached{fexit("helper"), raw("runq")}, "helper", "runq")
	second := serve("sched:offcpu", []*attached{raw("offcpu")}, "helper", "offcpu")
	third := serve("sched:switch", []*attached{raw("switch")}, "switch")
	b := &batch{requests: []*request{first, second, third}}
	for text, want := range map[string]int{"1\n": 0, "0\n": 2} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		why := make(map[*event.Probe]string)
		b.deaf(h, s.unheard(b.requests), why)
		const reason = "x is 0, so that the kernel does not run programs of fexit (sysctl x=1)"
		if len(why) != want || want > 0 && (why[first.Probe] != reason || why[second.Probe] != reason) {
			t.Errorf("%s: %v", text, why)
		}
	}
}

// A switch that cannot be read is not reported.
func TestSilenceUnknown(t *testing.T) {
	opened := 0
	s := newSilence([]*silencer{{ways: isTrampoline, open: func() (*kernel.Number, error) { opened++; return nil, errors.New("hidden") }}})
	r := &request{attached: []*attached{{place: program{way: trampoline{}}}}}
	var n notes
	s.look([]*request{r}, &n)
	s.look([]*request{r}, &n)
	if got := n.take(); len(got)+int(r.gaps) > 0 || opened != 1 {
		t.Errorf("%q, %d gaps, opened %d times", got, r.gaps, opened)
	}
}
