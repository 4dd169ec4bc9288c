//go:build linux

package probes

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Fact is something about the host that decides what can be traced.
type Fact struct {
	Name, Value string
	// OK is false if it keeps a probe from working, or from working fully.
	OK bool
	// Advice says what to do if it is not.
	Advice string
}

// Facts returns what doctor tells about the host, most general first.
func (h *Host) Facts() []Fact {
	facts := []Fact{
		kernelFact(), h.typesFact(), h.capabilityFact(), lockdownFact(), h.symbolsFact(), tracefsFact(), paranoidFact(), h.preemptionFact(), h.cgroupFact(),
	}
	for _, object := range []string{"ib", "mlx5", "cm", "nvme"} {
		for _, module := range modulesOf(object) {
			facts = append(facts, h.moduleFact(object, module))
		}
	}
	return facts
}

func kernelFact() Fact {
	release, err := KernelRelease()
	if err != nil {
		return Fact{Name: "kernel", Value: err.Error()}
	}
	return Fact{Name: "kernel", Value: release + " " + runtime.GOARCH, OK: true}
}

// KernelRelease is what uname -r prints.
func KernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

func (h *Host) typesFact() Fact {
	f := Fact{Name: "BTF", Value: "/sys/kernel/btf/vmlinux", OK: true}
	_, err := h.vmlinux()
	if err != nil {
		f.Value, f.OK = err.Error(), len(h.given) > 0
	}
	switch {
	case len(h.given) > 0:
		f.Value += fmt.Sprintf("; %d given by --btf", len(h.given))
	case err != nil:
		f.Advice = "give a file with the kernel's types: --btf FILE"
	}
	return f
}

func (h *Host) capabilityFact() Fact {
	held, err := h.capability()
	if err != nil {
		return Fact{Name: "capabilities", Value: err.Error()}
	}
	var names []string
	for _, name := range []string{capBPF, capPerfmon, capSysAdmin} {
		if held&(1<<capabilityBits[name]) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{"none of CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN"}
	}
	f := Fact{Name: "capabilities", Value: strings.Join(names, " ")}
	f.OK = len(h.lacking([]string{capBPF, capPerfmon})) == 0
	if !f.OK {
		f.Advice = "run as root, or grant CAP_BPF and CAP_PERFMON (and CAP_SYS_ADMIN for fexit in modules)"
	}
	return f
}

// lockdownFact: see kernel_lockdown(7); the level in force stands in brackets.
func lockdownFact() Fact {
	data, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return Fact{Name: "lockdown", Value: whyNoLockdown(), OK: true}
	}
	_, level, _ := strings.Cut(string(data), "[")
	level, _, _ = strings.Cut(level, "]")
	f := Fact{Name: "lockdown", Value: level, OK: level != "confidentiality"}
	if !f.OK {
		f.Advice = "the kernel refuses programs that read its memory; only booting without lockdown=confidentiality helps"
	}
	return f
}

// whyNoLockdown explains why the level is not shown. The kernel makes the directory for securityfs, which is empty until it is mounted
// (security/inode.c).
func whyNoLockdown() string {
	entries, err := os.ReadDir("/sys/kernel/security")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "this kernel has no securityfs that shows it"
	case err != nil:
		return err.Error()
	case len(entries) == 0:
		return "not known: mount -t securityfs securityfs /sys/kernel/security shows it"
	default:
		return "this kernel has none"
	}
}

func (h *Host) symbolsFact() Fact {
	if _, err := h.symbols(); err != nil {
		return Fact{Name: "symbols", Value: err.Error(), Advice: "mount /proc; without /proc/kallsyms no function can be found"}
	}
	return Fact{Name: "symbols", Value: "/proc/kallsyms", OK: true}
}

func tracefsFact() Fact {
	if dir := tracefs(); dir != "" {
		return Fact{Name: "tracefs", Value: dir, OK: true}
	}
	return Fact{Name: "tracefs", Value: "not mounted or not readable; only cm: without the types of rdma_cm needs it", OK: true}
}

func paranoidFact() Fact {
	level := perfParanoid()
	f := Fact{Name: "perf_event_paranoid", Value: fmt.Sprint(level), OK: true}
	if level > 2 {
		f.Value += ": kprobes and profile:hz need CAP_SYS_ADMIN"
	}
	return f
}

func (h *Host) moduleFact(object, module string) Fact {
	m := modules[module]
	f := Fact{Name: "module " + m.name, Value: "loaded", OK: true}
	switch _, err := h.moduleTypes[m.name](); {
	case m.builtIn():
		f.Value = "built into the kernel"
	case !m.loaded():
		return Fact{Name: f.Name, Value: "not loaded", Advice: m.load}
	case err == nil:
		f.Value += ", with BTF"
	default:
		f.Value += ", without BTF"
	}
	if m.outOfTree() {
		f.Value += ", built out of the kernel's tree"
	}
	if types := h.missingTypes(object, module); len(types) > 0 {
		f.OK = false
		f.Advice = "types that are missing: " + strings.Join(types, " ") + "; give them with --btf FILE"
	}
	return f
}
