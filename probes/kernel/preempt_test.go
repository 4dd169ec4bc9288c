//go:build linux

package kernel

import "testing"

// The model of preemption as kernels of distributions show it. What is not known counts as if tasks were preempted.
func TestPreemption(t *testing.T) {
	const (
		debian  = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1 (2026-08-29)"
		options = "CONFIG_PREEMPT_BUILD=y\n# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_DYNAMIC=y\n"
		later   = "CONFIG_PREEMPT_BUILD=y\nCONFIG_ARCH_HAS_PREEMPT_LAZY=y\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_DYNAMIC=y\n"
	)
	for _, test := range []struct {
		version, dynamic, cmdline, config string
		model, source                     string
		preempts                          bool
	}{
		{version: "#1 SMP Debian 5.10.223-1 (2024-08-10)", dynamic: "", model: "none", source: "uname -v"},
		{version: "#1 SMP PREEMPT_RT Debian 6.1.176-1 (2026-07-02)", model: "real-time", source: "uname -v", preempts: true},
		{version: "#1 SMP PREEMPT Thu Jan 1", model: "full", source: "uname -v", preempts: true},
		{version: "#1 SMP PREEMPT_LAZY Thu Jan 1", model: "lazy", source: "uname -v", preempts: true},
		{version: debian, dynamic: "none (voluntary) full\n", cmdline: "preempt=full", model: "voluntary", source: "sched/preempt in debugfs"},
		{version: debian, dynamic: "none voluntary (full)\n", config: options, model: "full", source: "sched/preempt in debugfs", preempts: true},
		{version: debian, dynamic: "full (lazy) \n", model: "lazy", source: "sched/preempt in debugfs", preempts: true},
		{version: debian, cmdline: "quiet preempt=full preempt=none root=/dev/sda", config: options, model: "none", source: "/proc/cmdline"},
		{version: debian, cmdline: "quiet", config: options, model: "voluntary", source: "config"},
		{version: debian, cmdline: "preempt=voluntary", config: later, model: "lazy", source: "config", preempts: true},
		{version: debian, cmdline: "preempt=full", model: "full", source: "/proc/cmdline", preempts: true},
		{version: debian, cmdline: "preempt=voluntary", preempts: true},
	} {
		got := kernelText{
			version: test.version, cmdline: test.cmdline,
			dynamic: func() (string, bool) { return test.dynamic, test.dynamic != "" },
			config:  func() (string, string) { return "config", test.config },
		}.model()
		if want := (Preemption{test.model, test.source}); got != want || got.preempts() != test.preempts {
			t.Errorf("%+v:\ngot %+v, preempts %v", test, got, got.preempts())
		}
	}
}
