//go:build linux

package kernel

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// What the kernel returns about a link is a union of unnamed structs.
func TestReportsMissed(t *testing.T) {
	number := &btf.Int{Name: "unsigned long long", Size: 8}
	for _, last := range []string{"missed", "addr"} {
		kprobe := &btf.Struct{Size: 8, Members: []btf.Member{{Name: last, Type: number}}}
		perf := &btf.Struct{Size: 8, Members: []btf.Member{{Type: &btf.Union{Size: 8, Members: []btf.Member{{Name: "kprobe", Type: kprobe}}}}}}
		info := &btf.Struct{Name: "bpf_link_info", Size: 16, Members: []btf.Member{
			{Name: "id", Type: number},
			{Type: &btf.Union{Size: 8, Members: []btf.Member{{Name: "perf_event", Type: perf}}}, Offset: 64},
		}}
		b, err := btf.NewBuilder([]btf.Type{info}, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := b.Spec()
		if err != nil {
			t.Fatal(err)
		}
		k, err := New(Options{Types: func() (*btf.Spec, error) { return spec, nil }, Symbols: func() map[string]bool { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		if got := k.ReportsMissed(); got != (last == "missed") {
			t.Errorf("with %s: %v", last, got)
		}
	}
}
