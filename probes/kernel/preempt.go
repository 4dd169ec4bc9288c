//go:build linux

package kernel

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel does not run a program of a trampoline (fentry, fexit) or raw tracepoint on a CPU where an instance of it is under way
// (bpf_prog.active: kernel/bpf/trampoline.c, kernel/trace/bpf_trace.c). A task that is preempted inside the program keeps it under way
// until it runs again, and the kernel skips the program for every other task on that CPU: up to two thirds of the calls of many processes
// on one CPU. The handlers of kprobes and of perf events run with preemption off, so that no call by a task is skipped.
//
// Calls by interrupts may be. All programs of kprobes and of perf events share one counter on each CPU (bpf_prog_active: trace_call_bpf in
// kernel/trace/bpf_trace.c). If an interrupt comes while one of them runs, its programs are skipped. NVMe commands end in interrupts, so
// raw tracepoints report these everywhere. The table shows what the kernel skipped when fio read with one, four or eight processes on one
// CPU. Seen and skipped events together are as many as fio counted.
//
//	                                                   7.2 (lazy and full)    6.12 (preempt=full)
//	                                                   beginnings  ends       beginnings  ends
//	raw tracepoints                                    1.2 %       0          0           0
//	kprobes                                            0           2.5 %      0           1.6 %
//	kprobes, and the system calls by perf events       0           3.2 %      0           6.8 %
//	the same, with two more processes that make some   0           20 %       0           19 %
//
// Beginnings by kprobe and ends by raw tracepoint would lose none. But nvme_setup_cmd fills the command in: the event needs what is there
// when it returns, and then its arguments are gone. That needs two programs for each, and a map of the calls in progress.
//
// So functions that interrupts call are better hooked by fentry: an interrupt is not preempted, and each fentry program has its own
// counter. These are the calls of nvme_irq, by fentry and by kprobe at once, while four processes read with fio on one CPU. The additional
// processes do only system calls, which programs of perf events count.
//
//	                                         7.2 (lazy)               6.12 (preempt=full)
//	                                         calls  fentry  kprobe    calls  fentry  kprobe
//	nobody counts the system calls           5239   all     all       8868   all     all
//	no more processes                        6793   all     -4.0 %    9041   all     -1.3 %
//	two more                                 7565   all     -12.1 %   4798   all     -2.9 %
//
// Real-time kernels run the handlers of interrupts in tasks.

// Preemption is how the kernel preempts tasks that run in it.
type Preemption struct {
	Model  string // none, voluntary, full, lazy or real-time; "" if it is unknown
	Source string // where it was read
}

// preempts reports whether a task may be preempted inside a program. If it is unknown, it counts as if it may: that loses nothing.
func (p Preemption) preempts() bool { return !slices.Contains([]string{"none", "voluntary"}, p.Model) }

// kernelText is how the kernel describes itself.
type kernelText struct {
	version string                // uname -v
	dynamic func() (string, bool) // sched/preempt in debugfs
	cmdline string
	config  func() (name, text string)
}

// model returns the model of preemption. A kernel built for one model names it in its version; PREEMPT_DYNAMIC supports all of them.
func (k kernelText) model() Preemption {
	flag := ""
	for _, word := range strings.Fields(k.version) {
		if strings.HasPrefix(word, "PREEMPT") {
			flag = word
		}
	}
	byVersion := func(model string) Preemption { return Preemption{model, "uname -v"} }
	switch flag {
	case "":
		return byVersion("none")
	case "PREEMPT_RT":
		return byVersion("real-time")
	case "PREEMPT_LAZY":
		return byVersion("lazy")
	case "PREEMPT_DYNAMIC":
		return k.chosen()
	default:
		return byVersion("full")
	}
}

// chosen returns the model in force where there are several: from debugfs, the kernel's command line, or its configuration.
func (k kernelText) chosen() Preemption {
	if text, ok := k.dynamic(); ok {
		_, rest, _ := strings.Cut(text, "(")
		model, _, _ := strings.Cut(rest, ")")
		return Preemption{model, "sched/preempt in debugfs"}
	}
	name, config := k.config()
	// Kernels that know only full and lazy do not accept the others on the command line. Their configuration does not name them.
	offered := func(model string) bool {
		return strings.Contains(config, "CONFIG_PREEMPT_"+strings.ToUpper(model)) || model == "full"
	}
	chosen := ""
	for _, word := range strings.Fields(k.cmdline) {
		if model, ok := strings.CutPrefix(word, "preempt="); ok && offered(model) {
			chosen = model
		}
	}
	if chosen != "" {
		return Preemption{chosen, "/proc/cmdline"}
	}
	for model, option := range map[string]string{"none": "_NONE", "voluntary": "_VOLUNTARY", "full": "", "lazy": "_LAZY"} {
		if strings.Contains("\n"+config, "\nCONFIG_PREEMPT"+option+"=y\n") {
			return Preemption{model, name}
		}
	}
	return Preemption{}
}

// readPreemption asks the running kernel.
func readPreemption() Preemption {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return Preemption{}
	}
	cmdline, _ := os.ReadFile("/proc/cmdline") // without it, the configuration decides
	release := unix.ByteSliceToString(name.Release[:])
	return kernelText{
		version: unix.ByteSliceToString(name.Version[:]),
		dynamic: readDynamicPreemption,
		cmdline: string(cmdline),
		config:  func() (string, string) { return readConfig(configFiles(release), readPreemptConfig) },
	}.model()
}

// readDynamicPreemption reads debugfs.
func readDynamicPreemption() (string, bool) {
	text, err := ReadDebugfs("sched/preempt")
	return text, err == nil
}

// readPreemptConfig reads no further than it must: the choice of a model (kernel/Kconfig.preempt) is in one place near the beginning, and
// the whole text takes ten times as long to unpack.
func readPreemptConfig(file io.Reader) (text string, err error) {
	const option, place = "CONFIG_PREEMPT", 100 // lines
	var b strings.Builder
	lines := bufio.NewScanner(file)
	for left := -1; left != 0 && lines.Scan(); left-- {
		if line := lines.Text(); strings.Contains(line, option) {
			b.WriteString(line + "\n")
			left = place
		}
	}
	return b.String(), lines.Err()
}

// PreemptsTasks reports whether a task may be preempted inside the program of a trampoline.
func (k *Kernel) PreemptsTasks() bool { return k.preemption().preempts() }

// PreemptsInterrupts reports whether the handler of an interrupt may be preempted inside the program of a trampoline.
func (k *Kernel) PreemptsInterrupts() bool {
	return slices.Contains([]string{"real-time", ""}, k.preemption().Model)
}

// PreemptsTracepoints reports whether a task may be preempted inside the programs of raw tracepoints. It may, since the kernel guards their
// calls by SRCU instead of disabled preemption (include/linux/tracepoint.h). The types of such a kernel have that guard; without types, it
// counts as if it may.
func (k *Kernel) PreemptsTracepoints() bool { return k.preemption().preempts() && k.guards() }

// tracepointGuard is a type that DEFINE_LOCK_GUARD_1(srcu_fast_notrace, …) defines in include/linux/srcu.h.
const tracepointGuard = "class_srcu_fast_notrace_t"
