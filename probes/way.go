//go:build linux

package probes

import (
	"context"
	"io"
	"slices"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
)

// attachable is the part of a place that exists only on Linux.
type attachable interface {
	// variants are the ways to attach the programs of a hook there, best first.
	variants(s *hostHook) []variant
	// symbols of the kernel that show whether the place exists.
	symbols() []string
	// accepts returns why the argument of a request is wrong, nil if it is right.
	accepts(a Arg) error
}

// A way is how a program is attached, and how the kernel runs it there. Each way implements every method: a wrong default may lose events.
type way interface {
	// String begins the names of its programs in the C code.
	String() string
	// needs are the capabilities needed to attach to targets.
	needs(k *kernel.Kernel, targets []string) []string
	// prepare completes a program before it is loaded for a target.
	prepare(spec *ebpf.ProgramSpec, target string)
	// attach makes a program run at a target until all returned closers are closed.
	attach(prog *ebpf.Program, target string, a Arg) ([]io.Closer, error)
	// exclusive reports whether the kernel skips a program on a CPU where a run of it is under way. Then runs cannot overlap there.
	exclusive(k *kernel.Kernel) bool
	// preempted reports whether a task may be preempted inside of a program: then the kernel may skip it for other tasks.
	preempted(k *kernel.Kernel) bool
	// missed returns how many skipped runs the kernel counts at a link instead of the program.
	missed(link io.Closer) uint64
	// frames is how many frames of its own a kernel stack begins with. It matters where the traced function is not on the stack, see
	// [FramesOfTracing].
	frames() int
	// readsFtrace reports whether its programs read ftrace events, rather than types of a module.
	readsFtrace() bool
	// traps reports whether it is a trap in the traced program, which each call pays for, whatever the filter. Its links are pausable.
	traps() bool
	// vanishes reports whether the kernel removes it when a module is unloaded, so that it must be attached again.
	vanishes() bool
}

// A pausable link can be detached for a while.
type pausable interface {
	io.Closer
	Pause() error
	Resume() error
}

// A variant is one way to attach a hook: which programs of the object are attached where.
type variant struct {
	// way of the variant; some of its programs may need another one.
	way      way
	programs []program
	// caps are the capabilities that it needs.
	caps []string
	// check returns why it cannot be used on this host, nil if it can. It may take a while, so it is called only when needed.
	check func() error
	// search looks for what its programs are attached to, which may take seconds, and goes on until the closer is closed; nil if that is known.
	search func(ctx context.Context) (io.Closer, error)
}

func (v variant) name() string { return v.way.String() }

// A program of a variant, in the order of attaching: the program at a beginning comes before the one at its end, so that no end lacks its
// beginning.
type program struct {
	name     string // in the object
	way      way
	target   string        // tracepoint, kernel function or clock
	module   kernel.Module // where the function is
	optional bool          // left out where there is no target
}

// instance names the program for its target.
func (p program) instance() string { return p.name + " on " + p.target }

// A hostHook is a hook on a host: the object that has its programs, and the kernel.
type hostHook struct {
	*kernel.Kernel
	object *object
	hook   hook
	finder *finder // of functions of user space
	// needs returns what a program of the object needs for the requests at hand; nil if no request is at hand.
	needs func(program string) needs
}

// variants returns the ways to attach the hook, best first.
func (s *hostHook) variants() []variant { return s.hook.place.variants(s) }

// module returns the module of the hook's targets.
func (s *hostHook) module() kernel.Module { return s.object.moduleOf(s.hook) }

// check returns the first reason against a variant: the kernel's types, its module, its target, the capabilities.
func (s *hostHook) check(caps []string, target func() error) error {
	if err := s.Described(); err != nil {
		return err
	}
	if err := target(); err != nil {
		return s.module().Explain(err)
	}
	return s.Permits(caps)
}

// leastSkipped moves the variants to the front that the kernel does not skip where tasks are preempted inside programs. They cost more, but
// lose no events.
func (s *hostHook) leastSkipped(variants []variant) []variant {
	if len(variants) < 2 {
		return variants
	}
	preempted := make(map[way]bool)
	for _, v := range variants {
		preempted[v.way] = v.way.preempted(s.Kernel)
	}
	slices.SortStableFunc(variants, func(a, b variant) int {
		switch {
		case preempted[a.way] == preempted[b.way]:
			return 0
		case preempted[a.way]:
			return 1
		default:
			return -1
		}
	})
	return variants
}

// present leaves out the optional programs whose target does not exist.
func present(k *kernel.Kernel, programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		if !p.optional {
			return false
		}
		there, err := k.HasFunction(p.module, p.target)
		return err != nil || !there
	})
}
