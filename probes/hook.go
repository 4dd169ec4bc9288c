package probes

import (
	"context"

	"trace/probes/kernel"
)

// A hook is a set of programs that belong together, under one name in the C source. There is one for each probe, and helpers that
// are attached when a field NEEDS them.
type hook struct {
	name string
	// place is where its programs run.
	place place
	// module is where its functions are, if not in the module of the object.
	module *kernel.Module
	// selector is [event.Probe.Selector].
	selector string
	// unless names a type of the kernel; where it is known the hook is not needed.
	unless string
	// entries says how many the maps whose names begin with that of the hook have to hold on this host, if more than the C source says.
	entries func() uint32
	// seed is how what was there before is told, of a probe whose events say that objects come and go.
	seed *seed
}

// A seed is how a probe that tells of objects, as they come and go, tells of those that are there when it is attached, and of what the
// kernel skips later (SEEDED in bpf/trace.h).
type seed struct {
	// visit is a hook on the kernel's way over its objects.
	visit hook
	// lost is the program that tells that an object has gone. It is attached to nothing; we run it.
	lost string
	// objects says how many there are, about.
	objects func() uint32
	// counts says how many objects there are of the classes that the kernel counts.
	counts func(context.Context) (map[class]int, error)
	// walk sends the kernel over all of them. gone counts objects that went away meanwhile, so that it can go again where it may
	// have skipped one.
	walk func(ctx context.Context, gone func() (uint32, error)) (walked, error)
}
