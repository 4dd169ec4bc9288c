//go:build linux

package probes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"trace/probes/rewrite"
)

// loader loads the programs of one object.
type loader struct {
	spec *ebpf.CollectionSpec
	maps map[string]*ebpf.Map
	// cache has the types of the kernel for the library.
	cache *btf.Cache
	// idle programs have nothing to do: nobody wants what they would see.
	idle map[string]bool
	// tells holds the programs that tell of events.
	tells map[string]bool
	// types of the kernel, and the same with those of the records in tracefs.
	types, typesAndRecords func() (*btf.Spec, error)
}

// newLoader prepares the object of some requests: what is wanted of each event, the functions that the programs call, and the maps,
// some of which are shared with others.
func newLoader(h *Host, requests []*request, shared map[string]*ebpf.Map) (*loader, error) {
	o := requests[0].source.object
	object, err := o.load()
	if err != nil {
		return nil, err
	}
	spec := object.Copy()
	for name, m := range shared {
		spec.Maps[name] = specOf(name, m)
	}
	controller := h.cgroupController(requests...)
	tasks := controller != 0 || slices.ContainsFunc(requests, (*request).readsTasks)
	kernelTypes := func(r relocation) func() (*btf.Spec, error) {
		return sync.OnceValues(func() (*btf.Spec, error) { return kernelTypes(h.kernel, o, r) })
	}
	l := &loader{
		spec:            spec,
		cache:           h.kernel.Cache(),
		idle:            make(map[string]bool),
		tells:           make(map[string]bool),
		types:           kernelTypes(relocation{tasks: tasks}),
		typesAndRecords: kernelTypes(relocation{tasks: tasks, records: true}),
	}
	l.size(requests)
	if err := l.specialize(requests, l.used(h, requests), constantsFor(spec, controller, requests...)); err != nil {
		return nil, err
	}
	keepMaps(spec)
	return l, l.createMaps(shared)
}

// size makes room in the maps for what there is on this host.
func (l *loader) size(requests []*request) {
	for _, r := range requests {
		if sd := r.source.hook.seed; sd != nil {
			l.spec.Maps[structName(r.Probe)+"_known"].MaxEntries = min(2*sd.objects()+seedSlack, maxSeeds)
		}
		for _, hk := range r.allHooks() {
			if hk.entries == nil {
				continue
			}
			entries := hk.entries()
			for name, m := range l.spec.Maps {
				if strings.HasPrefix(name, hk.name) {
					m.MaxEntries = max(m.MaxEntries, entries)
				}
			}
		}
	}
}

// seedSlack is how many objects may be there besides twice those of the start.
const seedSlack = 1 << 14

// used returns the programs of all variants of the hooks of the requests, and how they are attached. Those that we run ourselves are
// attached by none.
func (l *loader) used(h *Host, requests []*request) map[string]way {
	used := make(map[string]way)
	for _, r := range requests {
		if sd := r.source.hook.seed; sd != nil {
			used[sd.lost] = rawTracepoint{}
		}
		for _, hk := range r.allHooks() {
			for _, v := range h.site(r.source.object, hk).variants() {
				for _, p := range v.programs {
					used[p.name] = p.way
				}
			}
		}
	}
	return used
}

// specialize leaves in the object the programs that are used, and in these what is wanted.
func (l *loader) specialize(requests []*request, used map[string]way, constants []byte) error {
	for name, p := range l.spec.Programs {
		if used[name] == nil {
			delete(l.spec.Programs, name)
			continue
		}
		delivers := slices.ContainsFunc(requests, func(r *request) bool { return rewrite.Calls(p.Instructions, actionName(r.Probe)) })
		if err := specialize(p, used[name], requests, constants); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.idle[name] = !delivers && rewrite.Idle(p.Instructions)
		l.tells[name] = delivers
	}
	return nil
}

// typeless tells whether a program reads nothing whose place in memory only the kernel's types tell.
func (l *loader) typeless(program string) bool {
	return !rewrite.Relocated(l.spec.Programs[program].Instructions)
}

// busy leaves out the idle programs.
func (l *loader) busy(programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool { return l.idle[p.name] })
}

// program returns what is loaded for one target: a program that several share is loaded for each.
func (l *loader) program(p program) *ebpf.ProgramSpec {
	spec := l.spec.Programs[p.name].Copy()
	p.way.prepare(spec, p.target)
	return spec
}

// collection returns what is loaded of programs, under the names that they have in it, and what it takes to load them.
func (l *loader) collection(programs map[string]*ebpf.ProgramSpec) (*ebpf.CollectionSpec, ebpf.CollectionOptions) {
	return &ebpf.CollectionSpec{
		Maps: l.spec.Maps, Programs: programs, Types: l.spec.Types, ByteOrder: l.spec.ByteOrder,
	}, ebpf.CollectionOptions{MapReplacements: l.maps, Cache: l.cache}
}

// specOf describes a map that is there, so that programs can refer to it.
func specOf(name string, m *ebpf.Map) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: name, Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags(),
	}
}

// keepMaps removes the maps that no program refers to: they would cost memory.
func keepMaps(spec *ebpf.CollectionSpec) {
	used := make(map[string]bool)
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			if ins.IsLoadFromMap() {
				used[ins.Reference()] = true
			}
		}
	}
	for name := range spec.Maps {
		if !used[name] {
			delete(spec.Maps, name)
		}
	}
}

// refersTo tells whether code refers to a map.
func refersTo(insns asm.Instructions, mapName string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return ins.IsLoadFromMap() && ins.Reference() == mapName })
}

// createMaps creates the maps of the object, but those that are shared.
func (l *loader) createMaps(shared map[string]*ebpf.Map) error {
	only := l.spec.Copy()
	only.Programs = nil
	// The library would map the variables into memory, and keep their maps alive until the garbage collector comes by.
	only.Variables = nil // their values are in the contents of the maps
	there := maps.Clone(shared)
	maps.DeleteFunc(there, func(name string, _ *ebpf.Map) bool { return only.Maps[name] == nil })
	c, err := ebpf.NewCollectionWithOptions(only, ebpf.CollectionOptions{MapReplacements: there})
	if err != nil {
		return fmt.Errorf("maps: %w", explain(err))
	}
	l.maps = c.Maps
	return nil
}
