//go:build linux

package probes

import (
	"io"
	"slices"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
)

// attachable is what a place has on Linux.
type attachable interface {
	// variants of attaching the programs of a hook there, best first.
	variants(s *site) []variant
	// symbols of the kernel that show whether the place is there.
	symbols() []string
	// accepts says why the argument of a request cannot be, nil if it can.
	accepts(a Arg) error
}

// A way is how a program is attached, and what the kernel makes of it there. Each way answers for itself: what is not true of one of
// them may lose events if it is taken for granted.
type way interface {
	// String begins the names of its programs in the C source.
	String() string
	// needs are the capabilities that it takes to attach to targets.
	needs(k *kernel.Kernel, targets []string) []string
	// prepare completes a program that is to be loaded for a target.
	prepare(spec *ebpf.ProgramSpec, target string)
	// attach runs a program at a target until all that it returns is closed.
	attach(prog *ebpf.Program, target string, a Arg) ([]io.Closer, error)
	// exclusive reports whether the kernel runs a program on no CPU where a run of it is under way. Then runs cannot overlap there.
	exclusive(k *kernel.Kernel) bool
	// preempted reports whether a task may be preempted inside of a program: then the kernel may skip it for other tasks.
	preempted(k *kernel.Kernel) bool
	// missed is how many runs the kernel has skipped that it counts at a link, and not at the program, where it counts those of every way.
	missed(link io.Closer) uint64
	// frames are how many frames of its own a kernel stack begins with: for code in the program, and in a function that it calls. It
	// matters where the traced function is not on the stack, see [FramesOfTracing].
	frames() (inProgram, inFunction int)
	// records reports whether its programs read records of tracefs, rather than the types of a module.
	records() bool
	// vanishes reports whether the kernel takes it along with a module that is unloaded, so that it has to be attached again.
	vanishes() bool
}

// A variant is one way to attach a hook: which programs of the object go where.
type variant struct {
	// way of the variant; some of its programs may need another one.
	way      way
	programs []program
	// caps are the capabilities that it needs.
	caps []string
	// check says why it cannot be used on this host, nil if it can. It may take a while, so it is asked only when it matters.
	check func() error
}

func (v variant) name() string { return v.way.String() }

// A program of a variant, in the order of attaching: what sees a beginning comes before what sees its end, so that no end lacks
// its beginning.
type program struct {
	name     string // in the object
	way      way
	target   string        // tracepoint, kernel function or clock
	module   kernel.Module // where the function is
	optional bool          // left out where there is no target
}

// instance names the program for its target.
func (p program) instance() string { return p.name + " on " + p.target }

// A site is where programs of a hook are to run: the object that has them, and the kernel.
type site struct {
	*kernel.Kernel
	object *object
	hook   hook
	// typeless tells whether a program of the object reads, for the requests at hand, nothing whose place in memory only the kernel's
	// types tell; nil if no request is at hand.
	typeless func(program string) bool
}

// variants returns the ways to attach the hook, best first.
func (s *site) variants() []variant { return s.hook.place.variants(s) }

// module is where the hook's targets are.
func (s *site) module() kernel.Module { return s.object.moduleOf(s.hook) }

// check finds the first reason against a variant: the kernel's types, its module, its target, the capabilities.
func (s *site) check(caps []string, target func() error) error {
	if err := s.Described(); err != nil {
		return err
	}
	if err := target(); err != nil {
		return s.module().Explain(err)
	}
	return s.Permits(caps)
}

// leastSkipped puts the variants first that the kernel does not skip where tasks are preempted inside programs, although they cost
// more: none of their events is lost.
func (s *site) leastSkipped(variants []variant) []variant {
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

// present leaves out the optional programs whose target is not there.
func present(k *kernel.Kernel, programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		if !p.optional {
			return false
		}
		there, err := k.HasFunction(p.module, p.target)
		return err != nil || !there
	})
}
