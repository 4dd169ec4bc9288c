package probes

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"trace/probes/event"
)

// What the programs of another probe keep for a field is kept without a request for that probe, once, and only while a request needs it.
func TestImplied(t *testing.T) {
	h, among := hostWith(t, voluntary), &chosen{}
	served := func(probe string, fields ...string) *request {
		t.Helper()
		p := h.catalog.Match(probe)[0]
		w := want{probe: p}
		for _, name := range fields {
			w.fields = append(w.fields, p.Field(name))
		}
		req, _ := w.request(0)
		r, err := h.serve(req)
		if err != nil {
			t.Fatal(err)
		}
		r.among = among
		return r
	}
	names := func(b *batch) (all []string) {
		for _, r := range b.requests {
			name := r.Probe.String()
			if r.implied {
				name = "implied " + name
			}
			if r.among != among {
				t.Errorf("%s is for the processes %v", name, r.among)
			}
			all = append(all, name)
		}
		return all
	}
	imply := func(requests ...*request) *batch {
		t.Helper()
		b := &batch{requests: requests}
		if err := b.imply(h); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for want, b := range map[string]*batch{
		"[verbs:post_send]":                        imply(served("verbs:post_send", "ret", "bytes")),
		"[implied verbs:complete verbs:post_send]": imply(served("verbs:post_send", "depth")),
		"[verbs:post_send verbs:complete]":         imply(served("verbs:post_send", "depth"), served("verbs:complete")),
	} {
		if got := fmt.Sprint(names(b)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	deep, other := served("verbs:post_send", "depth"), served("verbs:post_recv")
	b := imply(deep, other)
	for _, step := range []struct {
		remove *request
		want   []string
	}{{nil, []string{"implied verbs:complete", "verbs:post_send", "verbs:post_recv"}}, {deep, []string{"verbs:post_recv"}}} {
		if step.remove != nil {
			if err := b.remove(step.remove); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.removeImplied(h); err != nil {
			t.Fatal(err)
		}
		if got := names(b); !slices.Equal(got, step.want) {
			t.Errorf("%v, want %v", got, step.want)
		}
	}
}

// What is left out takes along who needs what its programs keep, whether a clause has its events or not, and nobody else.
func TestLeavesOutWithWhomItServes(t *testing.T) {
	h := hostWith(t, voluntary)
	served := func(probe string, fields ...string) *request {
		t.Helper()
		p := h.catalog.Match(probe)[0]
		w := want{probe: p}
		for _, name := range fields {
			w.fields = append(w.fields, p.Field(name))
		}
		req, _ := w.request(0)
		req.IfAvailable, req.Reduced = true, true
		r, err := h.serve(req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, asked := range []bool{true, false} {
		requests := []*request{served("verbs:post_send", "depth"), served("verbs:post_recv")}
		if asked {
			requests = append(requests, served("verbs:complete"))
		}
		b := &batch{requests: requests}
		if err := b.imply(h); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(b.requests, func(r *request) bool { return r.Probe.Name == "complete" })
		if err := b.leaveOut(t.Context(), h, b.requests[i], errors.New("refused")); err != nil {
			t.Fatal(err)
		}
		if len(b.requests) != 1 || b.requests[0].Probe.Name != "post_recv" {
			t.Errorf("asked for %v: left are %v", asked, b.requests)
		}
		want := 1
		if asked {
			want = 2
		}
		if len(b.leftOut) != want {
			t.Errorf("asked for %v: left out %v", asked, b.leftOut)
		}
	}
}

// A dense probe names one of the catalog whose events can be sent.
func TestDenseProbes(t *testing.T) {
	c := load(t)
	dense := 0
	for _, p := range c.Probes() {
		if p.Dense == "" {
			continue
		}
		dense++
		if !p.Apart || !slices.ContainsFunc(c.Probes(), func(o *event.Probe) bool { return o.String() == p.Dense && o.Dense == "" }) {
			t.Errorf("in place of %s: %s", p, p.Dense)
		}
	}
	if dense == 0 {
		t.Error("no probe is dense")
	}
}
