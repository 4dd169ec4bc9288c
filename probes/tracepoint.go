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
	symbols := kernel.TracepointSymbols(tp.name)
	if tp.alias != "" {
		symbols = append(symbols, kernel.TracepointSymbols(tp.alias)...)
	}
	return symbols
}

func (tracepoint) accepts(a Arg) error { return acceptsNone(a) }

// variants are raw_tp and tracepoint, of which the object has one or both. If nothing is wanted of the program of raw_tp for which the
// kernel's types are needed, it is the best: each event costs the same, and to read these types takes longer than all the rest of the
// start (15 of 24 ms).
func (tp tracepoint) variants(s *site) []variant {
	target := tp.nameIn(s)
	record, hasRecord := tp.byRecord(s, target)
	raw, hasRaw := tp.byArguments(s, target, hasRecord)
	switch {
	case !hasRaw:
		return []variant{record}
	case !hasRecord:
		return []variant{raw.unlessTyped(s)}
	}
	best := s.leastSkipped([]variant{raw, record})
	if best[0].way == raw.way {
		best[0] = raw.unlessTyped(s)
	}
	return best
}

// nameIn returns the name that the tracepoint has in a kernel.
func (tp tracepoint) nameIn(s *site) string {
	if tp.alias == "" {
		return tp.name
	}
	if there, err := s.HasTracepoint(s.object.module, tp.alias); err == nil && there {
		return tp.alias
	}
	return tp.name
}

// A record is a program of a tracepoint that reads the record which the kernel formats for ftrace, attached as a perf event. tracefs
// shows its layout, so it needs no BTF: it is there where the arguments of the tracepoint are structs that nobody describes.
type record struct{}

func (record) String() string { return "tracepoint" }

func (record) needs(*kernel.Kernel, []string) []string { return kernel.PerfCaps() }

func (record) prepare(*ebpf.ProgramSpec, string) {}

func (record) attach(prog *ebpf.Program, target string, _ Arg) ([]io.Closer, error) {
	group, name, _ := strings.Cut(target, "/")
	lk, err := link.Tracepoint(group, name, prog, nil)
	return []io.Closer{lk}, err
}

// exclusive: no program runs on a CPU while one of a perf event does (trace_call_bpf, kernel/trace/bpf_trace.c).
func (record) exclusive(*kernel.Kernel) bool { return true }

// preempted: the handlers of perf events run with preemption off.
func (record) preempted(*kernel.Kernel) bool { return false }

func (record) missed(io.Closer) uint64 { return 0 }

// frames: the stack is of the registers at the tracepoint.
func (record) frames() (inProgram, inFunction int) { return 0, 0 }

func (record) records() bool { return true }

func (record) vanishes() bool { return false }

// recordPrefix begins the name of the C struct that stands for the record of the hook with the rest of the name.
const recordPrefix = "tracefs_"

// byRecord is the variant that reads records, if the object has one.
func (tp tracepoint) byRecord(s *site, name string) (v variant, ok bool) {
	prog := record{}.String() + "_" + s.hook.name
	fn := s.object.program(prog)
	if fn == nil {
		return variant{}, false
	}
	target := s.object.module.Events + "/" + name
	v = variant{way: record{}, programs: []program{{name: prog, way: record{}, target: target}}, caps: record{}.needs(s.Kernel, nil)}
	v.check = func() error {
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		if _, err := kernel.ReadRecord(target); err != nil {
			return s.object.module.Explain(err)
		}
		return checkHelpers(fn.Tags)
	}
	return v, true
}

// checkHelpers asks the kernel for what the program of a record calls beyond what every kernel has, as a tag says: "calls:task_pt_regs".
func checkHelpers(tags []string) error {
	if tagged(tags, "calls:") == "" {
		return nil
	}
	if err := features.HaveProgramHelper(ebpf.TracePoint, asm.FnTaskPtRegs); err != nil {
		return fmt.Errorf("registers of a task: %w", err)
	}
	return nil
}
