//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Fact is a finding about the host that decides what can be traced.
type Fact struct {
	Name, Value string
	// OK is false if it keeps a probe from working fully.
	OK bool
	// Advice is what to do if OK is false.
	Advice string
}

// Facts returns the facts about the kernel, most general first.
func (k *Kernel) Facts(cgroups *Cgroups) []Fact {
	return []Fact{
		versionFact(), k.typesFact(), k.capabilityFact(), lockdownFact(), k.symbolsFact(), tracefsFact(), paranoidFact(), k.preemptionFact(), k.cgroupFact(cgroups),
	}
}

func versionFact() Fact {
	release, err := Version()
	if err != nil {
		return Fact{Name: "kernel", Value: err.Error()}
	}
	return Fact{Name: "kernel", Value: release + " " + runtime.GOARCH, OK: true}
}

func (k *Kernel) typesFact() Fact {
	f := Fact{Name: "BTF", Value: "/sys/kernel/btf/vmlinux", OK: true}
	_, err := k.taken.Load().described()
	given, _ := k.given() // an error here is reported when the types are needed
	if err != nil {
		f.Value, f.OK = err.Error(), len(given) > 0
	}
	switch {
	case len(given) > 0:
		f.Value += fmt.Sprintf("; %d given by --btf", len(given))
	case err != nil:
		f.Advice = "provide a file with the kernel's types: --btf FILE"
	}
	return f
}

func (k *Kernel) capabilityFact() Fact {
	held, err := k.capability()
	if err != nil {
		return Fact{Name: "capabilities", Value: err.Error()}
	}
	var names []string
	for _, name := range []string{CapBPF, CapPerfmon, CapSysAdmin} {
		if held&capabilityBits[name] != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{"none of CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN"}
	}
	f := Fact{Name: "capabilities", Value: strings.Join(names, " ")}
	f.OK = len(k.Lacking([]string{CapBPF, CapPerfmon})) == 0
	if !f.OK {
		f.Advice = "run as root, or grant CAP_BPF and CAP_PERFMON (and CAP_SYS_ADMIN for fexit in modules)"
	}
	return f
}

// lockdownFact: see kernel_lockdown(7); the level in force is in brackets.
func lockdownFact() Fact {
	data, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return Fact{Name: "lockdown", Value: whyNoLockdown(), OK: true}
	}
	return lockdownOf(string(data))
}

// lockdownOf is the fact about a text like "none [integrity] confidentiality".
func lockdownOf(levels string) Fact {
	level := levelOf(levels)
	f := Fact{Name: "lockdown", Value: level, OK: level != confidentiality}
	if !f.OK {
		f.Advice = "the kernel refuses kprobes, and programs that read its memory; " + onlyBooting
	}
	return f
}

// whyNoLockdown explains why the level is unknown. The kernel makes the directory for securityfs, which is empty until it is mounted
// (security/inode.c).
func whyNoLockdown() string {
	entries, err := os.ReadDir("/sys/kernel/security")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "this kernel has no securityfs that shows it"
	case err != nil:
		return err.Error()
	case len(entries) == 0:
		return "unknown: mount -t securityfs securityfs /sys/kernel/security shows it"
	default:
		return "this kernel has none"
	}
}

func (k *Kernel) symbolsFact() Fact {
	if _, err := k.symbols(); err != nil {
		return Fact{Name: "symbols", Value: err.Error(), Advice: "mount /proc; without /proc/kallsyms no function can be found"}
	}
	return Fact{Name: "symbols", Value: "/proc/kallsyms", OK: true}
}

func tracefsFact() Fact {
	if dir := tracefs(); dir != "" {
		return Fact{Name: "tracefs", Value: dir, OK: true}
	}
	return Fact{Name: "tracefs", Value: "not mounted or not readable; cm: and vm:rss may need it, and syscall: where the kernel preempts BPF programs (mount -t tracefs tracefs /sys/kernel/tracing)", OK: true}
}

func paranoidFact() Fact {
	data, err := os.ReadFile(paranoidFile)
	if err != nil {
		return Fact{Name: "perf_event_paranoid", Value: err.Error(), OK: true}
	}
	return paranoidOf(strings.TrimSpace(string(data)))
}

// paranoidOf is the fact about a level.
func paranoidOf(text string) Fact {
	f := Fact{Name: "perf_event_paranoid", Value: text, OK: true}
	if level, err := strconv.Atoi(text); err == nil && level > 2 {
		f.Value += ": kprobes and profile:hz need CAP_SYS_ADMIN"
	}
	return f
}

func (k *Kernel) preemptionFact() Fact {
	p := k.preemption()
	f := Fact{Name: "preemption", Value: p.Model, OK: true}
	if p.Model == "" {
		f.Value = "not shown by this kernel"
	} else {
		f.Value += fmt.Sprintf(" (%s)", p.Source)
	}
	switch {
	case k.PreemptsTracepoints():
		f.Value += ": tasks are preempted inside BPF programs, and the kernel then skips these for other tasks; so functions are traced by kprobe, and tracepoints by perf events where these have the same fields"
	case p.preempts():
		f.Value += ": tasks are preempted inside BPF programs of fexit, and the kernel then skips these for other tasks; so functions are traced by kprobe"
	}
	return f
}

// cgroupFact describes what the field cgroup shows.
func (k *Kernel) cgroupFact(cgroups *Cgroups) Fact {
	dir, controller, ok := cgroups.Mount()
	if !ok {
		return Fact{Name: "cgroup", Value: "not mounted: cgroup is shown as a number", OK: true, Advice: "mount -t cgroup2 none /sys/fs/cgroup"}
	}
	return cgroupFactOf(dir, controller, controller == "" || k.ControllerNumber(controller) != CgroupUnknown)
}

// cgroupFactOf is the fact about a mounted tree. known is set if the kernel numbers the controller.
func cgroupFactOf(dir, controller string, known bool) Fact {
	f := Fact{Name: "cgroup", Value: dir + " (cgroup v2)", OK: known}
	if controller != "" {
		f.Value = dir + " (cgroup v1)"
	}
	if !known {
		f.Advice = "without BTF of the kernel the field cgroup is 0 here"
	}
	return f
}

// moduleState is what a host shows of a module.
type moduleState struct{ builtIn, loaded, hasBTF, outOfTree bool }

// ModuleFact describes a module. missing are the wanted types of the module that no BTF has.
func (k *Kernel) ModuleFact(m Module, missing []string) Fact {
	_, err := k.moduleTypes(m.Name)
	return moduleFactOf(m, moduleState{m.builtIn(), m.loaded(), err == nil, m.outOfTree()}, missing)
}

func moduleFactOf(m Module, is moduleState, missing []string) Fact {
	f := Fact{Name: "module " + m.Name, Value: "loaded", OK: true}
	switch {
	case is.builtIn:
		f.Value = "built into the kernel"
	case !is.loaded:
		return Fact{Name: f.Name, Value: "not loaded", Advice: m.Load}
	case is.hasBTF:
		f.Value += ", with BTF"
	default:
		f.Value += ", without BTF"
	}
	if is.outOfTree {
		f.Value += ", built out of tree"
	}
	if len(missing) > 0 {
		f.OK = false
		f.Advice = "missing types: " + strings.Join(missing, " ") + "; provide them with --btf FILE"
	}
	return f
}
