//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A refusal names the policy that may be the reason, and what to do.
func TestRefused(t *testing.T) {
	unlimited := policy{locked: unix.RLIM_INFINITY, modules: "lockdown,capability,yama"}
	with := func(change func(*policy)) policy {
		p := unlimited
		change(&p)
		return p
	}
	for _, test := range []struct {
		policy policy
		err    error
		want   string
	}{
		{unlimited, unix.EINVAL, "invalid argument"},
		{unlimited, fmt.Errorf("create link: %w", unix.EPERM), "operation not permitted: no policy that can be seen here forbids it"},
		{with(func(p *policy) { p.lockdown = "integrity" }), unix.EACCES, "permission denied: no policy that can be seen here forbids it"},
		{with(func(p *policy) { p.lockdown = "confidentiality" }), unix.EACCES,
			"permission denied: the kernel is locked down (confidentiality in /sys/kernel/security/lockdown): only booting without lockdown=confidentiality helps"},
		{with(func(p *policy) { p.filtered = true }), unix.EPERM,
			"operation not permitted: a seccomp filter forbids it (run without the container's: --security-opt seccomp=unconfined)"},
		{with(func(p *policy) { p.modules = "lockdown,capability,selinux,bpf" }), unix.EPERM,
			"operation not permitted: a security module forbids it (selinux, bpf of /sys/kernel/security/lsm: see the audit log)"},
		{with(func(p *policy) { p.modules = "" }), unix.EPERM,
			"operation not permitted: a security module forbids it (mount -t securityfs securityfs /sys/kernel/security, and its file lsm names them)"},
		{with(func(p *policy) { p.locked, p.filtered = 64<<10, true }), unix.EPERM,
			"operation not permitted: the limit on locked memory, 64 KiB, is too low (ulimit -l unlimited), or a seccomp filter forbids it (run without the container's: --security-opt seccomp=unconfined)"},
	} {
		if got := test.policy.refused(test.err); errors.Is(test.err, unix.EINVAL) {
			if Refused(test.err) != test.err {
				t.Errorf("%v is explained", test.err)
			}
		} else if got.Error() != test.want || !errors.Is(got, unix.EPERM) && !errors.Is(got, unix.EACCES) {
			t.Errorf("%+v: %v, want %s", test.policy, got, test.want)
		}
	}
	for level, want := range map[string]string{
		"confidentiality": "operation not permitted: programs may not read the kernel's memory: the kernel is locked down (confidentiality in /sys/kernel/security/lockdown): only booting without lockdown=confidentiality helps",
		"":                "operation not permitted: programs may not read the kernel's memory: probably lockdown=confidentiality (mount -t securityfs securityfs /sys/kernel/security, and its file lockdown shows it)",
	} {
		if err := (policy{lockdown: level}).readsForbidden(); err.Error() != want || !errors.Is(err, unix.EPERM) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The configuration of a kernel without kprobes is the reason; without it, the place where they would be is named.
func TestNoKprobes(t *testing.T) {
	dir := t.TempDir()
	config := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	absent := filepath.Join(dir, "absent")
	without := config("without", "CONFIG_BPF=y\n# CONFIG_KPROBES is not set\nCONFIG_KPROBES_ON_FTRACE=y\n")
	untraced := config("untraced", "CONFIG_KPROBES=y\n# CONFIG_KPROBE_EVENTS is not set\n")
	with := config("with", "CONFIG_KPROBES=y\nCONFIG_KPROBE_EVENTS=y\n")
	const hidden = `kprobes cannot be reached: neither "/sys/bus/event_source/devices/kprobe/type" nor tracefs is here (mount -t tracefs tracefs /sys/kernel/tracing), or this kernel has none`
	for _, test := range []struct {
		files []string
		want  string
	}{
		{[]string{absent, without, with}, "this kernel has no kprobes: CONFIG_KPROBES is not set in " + without},
		{[]string{untraced}, "this kernel has no kprobes: CONFIG_KPROBE_EVENTS is not set in " + untraced},
		{[]string{with}, hidden},
		{[]string{absent}, hidden},
		{nil, hidden},
	} {
		if err := noKprobes(test.files); err.Error() != test.want {
			t.Errorf("%v: %v, want %s", test.files, err, test.want)
		}
	}
}
