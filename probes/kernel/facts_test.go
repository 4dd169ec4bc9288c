//go:build linux

package kernel

import (
	"errors"
	"strings"
	"testing"
)

// Facts of hosts that the tests do not run on.
func TestFactsOfOtherHosts(t *testing.T) {
	none := &Kernel{capability: func() (uint64, error) { return 0, nil }}
	unknown := &Kernel{capability: func() (uint64, error) { return 0, errors.New("no line CapEff in /proc/self/status") }}
	module := Module{Name: "mlx5_ib", Load: "modprobe mlx5_ib"}
	for _, test := range []struct {
		fact          Fact
		value, advice string
		ok            bool
	}{
		{lockdownOf("none integrity [confidentiality]\n"), "confidentiality", "only booting without lockdown=confidentiality helps", false},
		{lockdownOf("none [integrity] confidentiality\n"), "integrity", "", true},
		{paranoidOf("4"), "4: kprobes and profile:hz need CAP_SYS_ADMIN", "", true},
		{paranoidOf("2"), "2", "", true},
		{none.capabilityFact(), "none of CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN", "run as root, or grant CAP_BPF and CAP_PERFMON", false},
		{cgroupFactOf("/sys/fs/cgroup/memory", "memory", true), "/sys/fs/cgroup/memory (cgroup v1)", "", true},
		{cgroupFactOf("/sys/fs/cgroup/memory", "memory", false), "/sys/fs/cgroup/memory (cgroup v1)", "without BTF of the kernel", false},
		{cgroupFactOf("/sys/fs/cgroup", "", true), "/sys/fs/cgroup (cgroup v2)", "", true},
		{moduleFactOf(module, moduleState{builtIn: true, hasBTF: true}, nil), "built into the kernel", "", true},
		{moduleFactOf(module, moduleState{loaded: true, hasBTF: true}, nil), "loaded, with BTF", "", true},
		{moduleFactOf(module, moduleState{loaded: true, outOfTree: true}, []string{"mlx5_ib_dev"}), "loaded, without BTF, built out of tree", "missing types: mlx5_ib_dev; provide them with --btf FILE", false},
		{moduleFactOf(module, moduleState{}, []string{"mlx5_ib_dev"}), "not loaded", "modprobe mlx5_ib", false},
		{unknown.capabilityFact(), "no line CapEff in /proc/self/status", "", false},
	} {
		if f := test.fact; f.Value != test.value || f.OK != test.ok || (f.Advice == "") != (test.advice == "") || !strings.Contains(f.Advice, test.advice) {
			t.Errorf("%+v, want %q, %v and advice with %q", f, test.value, test.ok, test.advice)
		}
	}
}
