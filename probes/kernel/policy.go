//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A policy is what may forbid this process to trace although it has the capabilities.
type policy struct {
	// lockdown is the level in force, kernel_lockdown(7); "" if there is none, or it is unknown.
	lockdown string
	// modules are the security modules, /sys/kernel/security/lsm; "" if they are unknown.
	modules string
	// filtered means that seccomp filters the system calls of this process.
	filtered bool
	// locked is the limit on locked memory in bytes if maps and programs count against it, RLIM_INFINITY otherwise.
	locked uint64
}

// readPolicy asks the running kernel.
func readPolicy() policy {
	p := policy{lockdown: lockdownLevel(), locked: unix.RLIM_INFINITY}
	modules, _ := os.ReadFile("/sys/kernel/security/lsm") // unknown if it is not there
	p.modules = strings.TrimSpace(string(modules))
	status, _ := os.ReadFile("/proc/self/status")
	p.filtered = strings.Contains(string(status), "\nSeccomp:\t2\n")
	if version, err := features.LinuxVersionCode(); err == nil && version < countedByCgroup && rlimit.RemoveMemlock() != nil {
		var limit unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
			p.locked = limit.Cur
		}
	}
	return p
}

// lockdownLevel returns the level in force, "" if it is unknown.
func lockdownLevel() string {
	data, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	return levelOf(string(data))
}

// levelOf returns the level of a text like "none [integrity] confidentiality".
func levelOf(levels string) string {
	_, level, _ := strings.Cut(levels, "[")
	level, _, _ = strings.Cut(level, "]")
	return level
}

// countedByCgroup is the version since which the memory of maps is counted by cgroup, not by RLIMIT_MEMLOCK: 5.11 (commit 3ac1f01b43b6).
const countedByCgroup = 5<<16 | 11<<8

const (
	confidentiality = "confidentiality"
	// onlyBooting is what helps against a lockdown, whose level cannot be lowered.
	onlyBooting = "only booting without lockdown=confidentiality helps"
)

// Refused adds to EPERM and EACCES of bpf(2) and perf_event_open(2) what may forbid the call here, and what to do. Other errors stay as they are. The
// caller has checked the capabilities.
func Refused(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	return readPolicy().refused(err)
}

func (p policy) refused(err error) error {
	cause := unix.EPERM
	if errors.Is(err, unix.EACCES) {
		cause = unix.EACCES
	}
	if p.lockdown == confidentiality {
		return fmt.Errorf("%w: the kernel is locked down (confidentiality in /sys/kernel/security/lockdown): %s", cause, onlyBooting)
	}
	var may []string
	if p.locked != unix.RLIM_INFINITY {
		may = append(may, fmt.Sprintf("the limit on locked memory, %d KiB, is too low (ulimit -l unlimited)", p.locked>>10))
	}
	if p.filtered {
		may = append(may, "a seccomp filter forbids it (run without the container's: --security-opt seccomp=unconfined)")
	}
	if modules := p.deciding(); modules != "" {
		may = append(may, fmt.Sprintf("a security module forbids it (%s of /sys/kernel/security/lsm: see the audit log)", modules))
	}
	if p.modules == "" {
		may = append(may, "a security module forbids it (mount -t securityfs securityfs /sys/kernel/security, and its file lsm names them)")
	}
	if may == nil {
		return fmt.Errorf("%w: no policy that can be seen here forbids it", cause)
	}
	return fmt.Errorf("%w: %s", cause, strings.Join(may, ", or "))
}

// deciding returns the security modules that may forbid a process with all capabilities to trace. The others never do.
func (p policy) deciding() string {
	names := strings.Split(p.modules, ",")
	return strings.Join(slices.DeleteFunc(names, func(name string) bool {
		return !slices.Contains([]string{"selinux", "smack", "tomoyo", "apparmor", "bpf", "ipe"}, name)
	}), ", ")
}

// ReadsForbidden is the error of a program that the kernel lets read none of its memory: it then has no bpf_probe_read_kernel (LOCKDOWN_BPF_READ_KERNEL,
// kernel/bpf/helpers.c).
func ReadsForbidden() error { return readPolicy().readsForbidden() }

func (p policy) readsForbidden() error {
	if p.lockdown == confidentiality {
		return fmt.Errorf("%w: programs may not read the kernel's memory: the kernel is locked down (confidentiality in /sys/kernel/security/lockdown): %s",
			unix.EPERM, onlyBooting)
	}
	return fmt.Errorf("%w: programs may not read the kernel's memory: probably lockdown=confidentiality (mount -t securityfs securityfs /sys/kernel/security, and its file lockdown shows it)", unix.EPERM)
}

// kprobePMU is there if perf_event_open(2) makes kprobes (create_local_trace_kprobe, kernel/trace/trace_kprobe.c).
const kprobePMU = "/sys/bus/event_source/devices/kprobe/type"

// HasKprobes returns nil if this kernel has kprobes that this process can reach, otherwise why not.
func (k *Kernel) HasKprobes() error { return k.kprobes() }

func hasKprobes() error {
	if _, err := os.Stat(kprobePMU); err == nil {
		return nil
	}
	if dir := tracefs(); dir != "" {
		if _, err := os.Stat(dir + "/kprobe_events"); err == nil {
			return nil
		}
	}
	return noKprobes(runningConfig())
}

// noKprobes is the error of a kernel without kprobes, or of a process that does not see them, by the files of the configuration.
func noKprobes(config []string) error {
	for _, option := range []string{"CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS"} {
		if file := notConfigured(config, option); file != "" {
			return fmt.Errorf("this kernel has no kprobes: %s is not set in %s", option, file)
		}
	}
	return fmt.Errorf("kprobes cannot be reached: neither %s nor tracefs is here (mount -t tracefs tracefs /sys/kernel/tracing), or this kernel has none", strconv.Quote(kprobePMU))
}
