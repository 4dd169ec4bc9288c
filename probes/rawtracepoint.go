//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

// A rawTracepoint is a program of a tracepoint that reads its arguments.
type rawTracepoint struct{}

func (rawTracepoint) String() string { return "raw_tp" }

func (rawTracepoint) needs(*kernel.Kernel, []string) []string {
	return []string{kernel.CapBPF, kernel.CapPerfmon}
}

func (rawTracepoint) prepare(*ebpf.ProgramSpec, string) {}

func (rawTracepoint) attach(prog *ebpf.Program, target string, _ Arg) ([]io.Closer, error) {
	lk, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: target, Program: prog})
	return []io.Closer{lk}, err
}

func (rawTracepoint) exclusive(k *kernel.Kernel) bool { return k.SkipsRecursion() }

func (rawTracepoint) preempted(k *kernel.Kernel) bool { return k.PreemptsTracepoints() }

func (rawTracepoint) missed(io.Closer) uint64 { return 0 }

// frames: the stack has frames of tracing, which are found by their functions, see [Tracing].
func (rawTracepoint) frames() int { return 0 }

func (rawTracepoint) readsFtrace() bool { return false }

func (rawTracepoint) traps() bool { return false }

func (rawTracepoint) vanishes() bool { return false }

// A typedTracepoint is a program of a tracepoint whose arguments have types for the verifier: it can give a task to helpers.
type typedTracepoint struct{ rawTracepoint }

func (typedTracepoint) String() string { return "tp_btf" }

func (typedTracepoint) prepare(spec *ebpf.ProgramSpec, target string) { spec.AttachTo = target }

func (typedTracepoint) attach(prog *ebpf.Program, _ string, _ Arg) ([]io.Closer, error) {
	lk, err := link.AttachTracing(link.TracingOptions{Program: prog})
	return []io.Closer{lk}, err
}

// byArguments are the variants that read arguments, with types or without; the object has one or both. If there is also one that reads ftrace events, the
// types of the arguments must be known. Where both are there, programs without types need none: the other one is better if it saves them a read.
func (tp tracepoint) byArguments(s *hostHook, target string, hasFtrace bool) (all []variant) {
	for _, w := range []way{typedTracepoint{}, rawTracepoint{}} {
		prog := w.String() + "_" + s.hook.name
		if s.object.program(prog) == nil {
			continue
		}
		v := variant{way: w, programs: []program{{name: prog, way: w, target: target}}, caps: w.needs(s.Kernel, nil)}
		for _, other := range tp.others {
			v.programs = append(v.programs, program{name: prog + "__" + other, way: w, target: other})
		}
		v.check = func() error {
			return s.check(v.caps, func() error {
				if hasFtrace {
					if err := checkTypes(s); err != nil {
						return err
					}
				}
				return v.each(func(target string) error { return checkTracepoint(s, target) })
			})
		}
		all = append(all, v)
	}
	if len(all) == 2 && s.needs != nil && !s.needs(all[1].programs[0].name).reads {
		return all[1:]
	}
	return all
}

// lightly is the variant with the check for programs that need no types of the kernel: the kernel is asked for the tracepoint, and for
// permission to attach. Loading tp_btf looks the tracepoint up.
func (v variant) lightly(s *hostHook) variant {
	if s.needs == nil || s.needs(v.programs[0].name).types {
		return v
	}
	v.check = func() error {
		if _, typed := v.way.(typedTracepoint); typed {
			if err := s.Described(); err != nil {
				return err
			}
		}
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		if err := v.each(checkRawTracepoint); err != nil {
			return s.object.module.Explain(err)
		}
		return nil
	}
	return v
}

// each calls check for the target of each program, until one fails.
func (v variant) each(check func(target string) error) error {
	for _, p := range v.programs {
		if err := check(p.target); err != nil {
			return err
		}
	}
	return nil
}

// checkTypes returns an error that names the types of its module that an object reads and this kernel does not describe.
func checkTypes(s *hostHook) error {
	if missing := missingTypes(s.Kernel, s.object, s.object.module); len(missing) > 0 {
		return fmt.Errorf("no types of %s (%s)", s.object.module.Name, strings.Join(missing, " "))
	}
	return nil
}

func checkTracepoint(s *hostHook, name string) error {
	there, err := s.HasTracepoint(s.object.module, name)
	if err != nil {
		return err
	}
	if !there {
		return kernel.NoTracepoint(name)
	}
	return nil
}

// checkRawTracepoint asks the kernel whether it has a tracepoint, with a program that it would not attach there: one that reads more
// arguments than tracepoints have. If it attached a valid one and detached it, the next attaching would wait for a grace period of RCU.
func checkRawTracepoint(name string) error {
	_ = rlimit.RemoveMemlock() // see openRing
	const beyond = 8 * 11      // the last argument that a raw tracepoint can have; those in the table have fewer
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, beyond, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		return explain(err)
	}
	defer prog.Close()
	lk, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
	switch {
	case err == nil:
		return lk.Close()
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.ENOENT):
		return kernel.NoTracepoint(name)
	default:
		return explain(err)
	}
}
