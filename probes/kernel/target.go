//go:build linux

package kernel

import (
	"github.com/cilium/ebpf/btf"
)

// A Target is a function or a tracepoint in the kernel's types: what a program of BTF is attached to.
type Target struct {
	ID btf.TypeID
	// Module is the name of the module that describes it, "" for the kernel itself.
	Module string
}

// Function returns the target of a function of the kernel or of one of these modules; ok is false if none of them describes exactly one
// function of that name, or if the types are not read from the running kernel.
func (k *Kernel) Function(name string, modules []Module) (t Target, ok bool) {
	return k.target(modules, func(im *image) uint32 { return im.function(name) })
}

// Tracepoint does the same for a tracepoint: its typedef is btf_trace_NAME.
func (k *Kernel) Tracepoint(name string, modules []Module) (t Target, ok bool) {
	return k.target(modules, func(im *image) uint32 { return im.tracepoint(name) })
}

// target looks into the kernel's types, then into the modules'.
func (k *Kernel) target(modules []Module, find func(*image) uint32) (t Target, ok bool) {
	taken := k.taken.Load()
	places := []Target{{}}
	for _, m := range modules {
		for _, name := range m.All() {
			if name != "" {
				places = append(places, Target{Module: name})
			}
		}
	}
	for _, t := range places {
		described := taken.described
		if t.Module != "" {
			described = taken.describedBy[t.Module]
		}
		types, err := described()
		im, own := types.(*image)
		if err != nil || !own {
			continue
		}
		if id := find(im); id != 0 {
			t.ID = btf.TypeID(id)
			return t, true
		}
	}
	return Target{}, false
}

// tracepoint returns the id of the typedef of a tracepoint, 0 if there is none.
func (im *image) tracepoint(name string) uint32 {
	return im.lookup(im.named, kindTypedef, []byte("btf_trace_"+name))
}

// function returns the id of the function of that name, 0 unless there is exactly one.
func (im *image) function(name string) uint32 {
	all, shared := im.functions()
	id := im.lookup(all, kindFunc, []byte(name))
	if shared[im.of(id).name] {
		return 0
	}
	return id
}

// listFunctions returns the functions, and which names several of them share.
func (im *image) listFunctions() (all table, shared map[uint32]bool) {
	all, shared = newTable(len(im.offsets)/2), make(map[uint32]bool)
	for i, at := range im.offsets {
		if t := im.head(int(at)); t.kind() == kindFunc && !im.remember(&all, im.first+uint32(i), t) {
			shared[t.name] = true
		}
	}
	return all, shared
}
