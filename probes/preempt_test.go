//go:build linux

package probes

import "testing"

// Where tasks are preempted inside programs, what the kernel does not skip comes first; elsewhere nothing changes.
func TestVariantsByPreemption(t *testing.T) {
	for _, test := range []struct {
		model, probe, first string
	}{
		{"voluntary", "ib:modify_qp", "fexit"},
		{"lazy", "ib:modify_qp", "kprobe"},
		{"", "mlx5:create_qp", "kprobe"},
		{"voluntary", "syscall:enter", "tp_btf"},
		{"real-time", "syscall:enter", "tp_btf"}, // the types of the kernel know no guard
		{"voluntary", "cm:send_req", "raw_tp"},
	} {
		h := hostWith(t, test.model)
		p := h.catalog.Match(test.probe)[0]
		if got := h.variantsOf(p)[0].name(); got != test.first {
			t.Errorf("%s with preemption %q by %s, want %s", p, test.model, got, test.first)
		}
	}
}

// A kernel that guards tracepoints by SRCU may preempt their programs.
func TestPreemptedTracepoints(t *testing.T) {
	for _, test := range []struct {
		model    string
		preempts bool
	}{{"lazy", true}, {"voluntary", false}} {
		h := hostKnowing(t, test.model, "class_srcu_fast_notrace_t")
		if h.kernel.PreemptsTracepoints() != test.preempts {
			t.Errorf("%s: %v", test.model, h.kernel.PreemptsTracepoints())
		}
		first := h.hostHook(h.catalog.objects["syscall"], hook{name: "syscall_exit", place: tracepoint{name: "sys_exit"}}).variants()[0]
		if (first.way == ftraceEvent{}) != test.preempts {
			t.Errorf("%s: syscall:exit by %s", test.model, first.name())
		}
	}
}
