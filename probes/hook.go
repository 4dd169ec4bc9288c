package probes

import (
	"context"

	"trace/probes/kernel"
)

// A hook is a set of programs that belong together, under one name in the C code. There is one for each probe, and helpers that
// are attached when a field NEEDS them.
type hook struct {
	name string
	// place is where its programs run.
	place place
	// module is where its functions are, if not in the module of the object.
	module *kernel.Module
	// selector is [event.Probe.Selector].
	selector string
	// unless names a type of the kernel; the hook is not needed if the type is known.
	unless string
	// needs names helpers that every event of the probe needs, whatever its code reads.
	needs []string
	// room returns how many keys the maps whose names begin with the hook's name must hold on this host; nil: as many as in the C file.
	room func() uint32
	// seed reports existing objects, for a probe that reports objects as they come and go.
	seed *seed
	// elsewhere is [event.Probe.Elsewhere].
	elsewhere bool
	// dense is [event.Probe.Dense].
	dense string
	// inquiry reports existing objects, for a probe that reports the calls of a function that describes an object.
	inquiry *inquiry
}

// A seed is how a probe that reports objects as they come and go reports those that exist when it is attached, and what the kernel skips
// later (SEEDED in bpf/trace.h).
type seed struct {
	// visit is a hook on the kernel's walk over its objects.
	visit hook
	// lost is the program that reports that an object has gone. It is attached to nothing; we run it.
	lost string
	// objects returns about how many objects there are.
	objects func() uint32
	// counts returns the number of objects of the classes that the kernel counts.
	counts func(context.Context) (map[class]int, error)
	// walk makes the kernel walk over all objects. gone counts objects that went meanwhile, so that walk can repeat where the kernel may
	// have skipped one.
	walk func(ctx context.Context, gone func() (uint32, error)) (walked, error)
}

// An inquiry is how a probe of a function that describes an object reports the objects that exist when it is attached: the kernel is made to
// call the function for each.
type inquiry struct {
	// mark is the program that marks the calls of this process, from when it runs with 1 until it runs with 0. It is attached to nothing.
	mark string
	// ask makes the calls. The notes describe what was not reached, and why.
	ask func(context.Context) (notes []string, err error)
}
