//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

// A trampoline calls a program at the entry of a function, or at its return.
type trampoline struct{ atReturn bool }

func (t trampoline) String() string {
	if t.atReturn {
		return "fexit"
	}
	return "fentry"
}

// needs: a reference to the BTF of a module needs CAP_SYS_ADMIN (BPF_BTF_GET_FD_BY_ID).
func (trampoline) needs(k *kernel.Kernel, functions []string) []string {
	for _, f := range functions {
		if !k.BuiltIn(f) {
			return []string{kernel.CapSysAdmin}
		}
	}
	return []string{kernel.CapBPF, kernel.CapPerfmon}
}

func (trampoline) prepare(spec *ebpf.ProgramSpec, function string) { spec.AttachTo = function }

func (trampoline) attach(prog *ebpf.Program, _ string, _ Arg) ([]io.Closer, error) {
	lk, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if errors.Is(err, unix.EBUSY) && ftraceIsOff() { // on 5.10; newer kernels attach it, and do not call it
		err = fmt.Errorf("%w: %s: %s", err, ftraceOff, ftraceOn)
	}
	return []io.Closer{lk}, err
}

// exclusive: trampolines skip since 5.12, before raw tracepoints did (__bpf_prog_enter, kernel/bpf/trampoline.c).
func (trampoline) exclusive(k *kernel.Kernel) bool { return k.SkipsRecursion() }

func (trampoline) preempted(k *kernel.Kernel) bool { return k.PreemptsTasks() }

func (trampoline) missed(io.Closer) uint64 { return 0 }

// frames: the program has one, and so has the trampoline that calls it. If the function calls the trampoline, its own frame follows; kernel
// 7.2 jumps to the trampoline at the function's beginning, and the caller's frame follows.
func (trampoline) frames() int { return 2 }

func (trampoline) readsFtrace() bool { return false }

func (trampoline) traps() bool { return false }

// vanishes: its module cannot be unloaded.
func (trampoline) vanishes() bool { return false }
