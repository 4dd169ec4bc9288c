//go:build linux

package probes

import (
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"trace/probes/kernel"
)

func (tp tracepoint) symbols() []string {
	names := tp.targets()
	if tp.alias != "" {
		names = append(names, tp.alias)
	}
	var symbols []string
	for _, name := range names {
		symbols = append(symbols, kernel.TracepointSymbols(name)...)
	}
	return symbols
}

func (tracepoint) accepts(a Arg) error { return acceptsNone(a) }

// variants are tp_btf, raw_tp and tracepoint; the object has one or more. If the program of raw_tp needs no types of the kernel and no reads, it is the best:
// each event costs the same, and reading these types takes as long as the rest of the start.
func (tp tracepoint) variants(s *hostHook) []variant {
	target := tp.nameIn(s)
	byFtrace, hasFtrace := tp.byFtrace(s, target)
	all := tp.byArguments(s, target, hasFtrace)
	if hasFtrace {
		all = s.leastSkipped(append(all, byFtrace))
	}
	for i, v := range all {
		if v.way.readsFtrace() {
			break // what follows is for a kernel that refuses this one, with all its types
		}
		all[i] = v.lightly(s)
	}
	return all
}

// nameIn returns the name that the tracepoint has in a kernel.
func (tp tracepoint) nameIn(s *hostHook) string {
	if tp.alias == "" {
		return tp.name
	}
	if there, err := s.HasTracepoint(s.object.module, tp.alias); err == nil && there {
		return tp.alias
	}
	return tp.name
}

// ftraceEvent is the way of a program that reads the event which the kernel formats for ftrace, attached as a perf event. tracefs describes
// its layout, so it needs no BTF: it works where the arguments of the tracepoint are structs without BTF.
type ftraceEvent struct{}

func (ftraceEvent) String() string { return "tracepoint" }

func (ftraceEvent) needs(*kernel.Kernel, []string) []string { return kernel.PerfCaps() }

func (ftraceEvent) prepare(*ebpf.ProgramSpec, string) {}

func (ftraceEvent) attach(prog *ebpf.Program, target string, _ Arg) ([]io.Closer, error) {
	group, name, _ := strings.Cut(target, "/")
	lk, err := link.Tracepoint(group, name, prog, nil)
	return []io.Closer{lk}, err
}

// exclusive: no program runs on a CPU while one of a perf event does (trace_call_bpf, kernel/trace/bpf_trace.c).
func (ftraceEvent) exclusive(*kernel.Kernel) bool { return true }

// preempted: the handlers of perf events run with preemption off.
func (ftraceEvent) preempted(*kernel.Kernel) bool { return false }

func (ftraceEvent) missed(io.Closer) uint64 { return 0 }

// frames: the stack belongs to the registers at the tracepoint.
func (ftraceEvent) frames() int { return 0 }

func (ftraceEvent) readsFtrace() bool { return true }

func (ftraceEvent) traps() bool { return false }

func (ftraceEvent) vanishes() bool { return false }

// ftracePrefix begins the name of the C struct for a hook's ftrace event; the hook's name follows.
const ftracePrefix = "tracefs_"

// byFtrace is the variant that reads ftrace events, if the object has one.
func (tp tracepoint) byFtrace(s *hostHook, name string) (v variant, ok bool) {
	prog := ftraceEvent{}.String() + "_" + s.hook.name
	fn := s.object.program(prog)
	if fn == nil {
		return variant{}, false
	}
	target := s.object.module.Events + "/" + name
	v = variant{way: ftraceEvent{}, programs: []program{{name: prog, way: ftraceEvent{}, target: target}}, caps: ftraceEvent{}.needs(s.Kernel, nil)}
	v.check = func() error {
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		if _, err := kernel.ReadFormat(target); err != nil {
			return s.object.module.Explain(err)
		}
		return checkHelpers(fn.Tags)
	}
	return v, true
}

// checkHelpers asks the kernel for the helpers that a program calls and not every kernel has; a tag names them: "calls:task_pt_regs".
func checkHelpers(tags []string) error {
	if tagged(tags, "calls:") == "" {
		return nil
	}
	if err := features.HaveProgramHelper(ebpf.TracePoint, asm.FnTaskPtRegs); err != nil {
		return fmt.Errorf("registers of a task: %w", err)
	}
	return nil
}
