//go:build linux

package probes

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/probes/kernel"
)

// Programs of typed tracepoints are loaded without the library's index, and attached. TestVMLoadBound does it with functions, which not every
// machine lets programs be attached to.
func TestBound(t *testing.T) {
	h := detect(t)
	if err := h.kernel.Permits(kernel.PerfCaps()); err != nil {
		t.Skip(err)
	}
	if err := h.kernel.Described(); err != nil {
		t.Skip(err)
	}
	if n := loadBoundOf(t, h, "syscall:*") + loadBoundOf(t, h, "sched:hung"); n < 3 {
		t.Errorf("%d programs are loaded for targets", n)
	}
}

// loadBoundOf loads the programs of some probes that have a target, attaches them, and returns how many they are.
func loadBoundOf(t *testing.T, h *Host, probes string) (n int) {
	t.Helper()
	for _, p := range h.catalog.Match(probes) {
		r, l, err := loaderOf(t, h, wantAll(t, h, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, hk := range r.allHooks() {
			for _, v := range h.hostHookFor(r, hk).variants() {
				if v.check() != nil {
					continue
				}
				n += loadAllBound(t, l, l.busy(present(h.kernel, v.programs)))
			}
		}
	}
	return n
}

// loaderOf returns a loader for what is wanted of a probe.
func loaderOf(t *testing.T, h *Host, w want) (*request, *loader, error) {
	t.Helper()
	reqs, o := requestsFor(w)
	r, err := h.serve(reqs[0])
	if err != nil {
		return nil, nil, err
	}
	ring, err := openRing(o.RingBytes, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ring.close() })
	l, err := newLoader(h, []*request{r}, map[string]*ebpf.Map{RingName: ring.buffer})
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := l.release(); err != nil {
			t.Error(err)
		}
		for name, m := range l.maps {
			if name != RingName {
				m.Close()
			}
		}
	})
	return r, l, nil
}

// loadAllBound loads the programs that have a target, and returns how many they are.
func loadAllBound(t *testing.T, l *loader, programs []program) (n int) {
	t.Helper()
	types, err := l.types()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range programs {
		spec := l.program(place)
		if spec.Type != ebpf.Tracing {
			continue
		}
		p, ok, err := l.loadBound(spec, types)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
			continue
		}
		if !ok {
			if !slices.ContainsFunc(spec.Instructions, func(ins asm.Instruction) bool { return l.isLibrarys(ins, types) }) {
				t.Errorf("%s: %s is no target", spec.Name, spec.AttachTo)
			}
			continue
		}
		n++
		links, err := place.way.attach(p, place.target, nil)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
		if err := closeAll(links); err != nil {
			t.Error(err)
		}
		p.Close()
	}
	return n
}
