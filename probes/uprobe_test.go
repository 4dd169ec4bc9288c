//go:build linux

package probes

import (
	"testing"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
)

// The kernel accepts the programs of a data path. They need no RDMA device, unlike attaching them.
func TestDatapathLoads(t *testing.T) {
	h := detect(t)
	if err := h.kernel.Permits(kernel.PerfCaps()); err != nil {
		t.Skip(err)
	}
	for _, p := range h.catalog.Match("verbs:*") {
		t.Run(p.String(), func(t *testing.T) {
			for _, w := range wantAll(t, h, p).ways() {
				loadDatapath(t, h, w)
			}
		})
	}
}

func loadDatapath(t *testing.T, h *Host, w want) {
	t.Helper()
	r, l, err := loaderOf(t, h, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, hk := range r.hooks {
		if _, ok := hk.place.(datapath); !ok {
			continue
		}
		for _, v := range h.hostHook(r.origin.object, hk).variants() {
			specs := make(map[string]*ebpf.ProgramSpec)
			for _, program := range l.busy(v.programs) {
				specs[program.instance()] = l.program(program)
			}
			spec, options := l.collection(specs)
			if options.Programs.KernelTypes, err = l.types(); err != nil {
				t.Fatal(err)
			}
			c, err := ebpf.NewCollectionWithOptions(spec, options)
			if err != nil {
				t.Fatalf("%s: %+v", hk.name, err)
			}
			c.Close()
		}
	}
}
