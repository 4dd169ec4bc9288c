//go:build linux

package probes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
	"trace/probes/rewrite"
)

// loader loads the programs of one object.
type loader struct {
	spec *ebpf.CollectionSpec
	maps map[string]*ebpf.Map
	// cache has the types of the kernel for the library.
	cache *btf.Cache
	// readers are the requests whose failed reads of memory programs count, by the programs' names: their place among the requests, from 1 on.
	readers map[string]byte
	// idle programs have no effect: no request wants what they would see.
	idle map[string]bool
	// delivering holds the programs that deliver events.
	delivering map[string]bool
	kernel     *kernel.Kernel
	// modules have the functions and tracepoints that programs are bound to.
	modules []kernel.Module
	// described are the types of modules that programs were bound to.
	described map[string]*btf.Handle
	// types of the kernel, without and with the types of ftrace events.
	types, typesAndFtrace func() (*btf.Spec, error)
}

// newLoader prepares the object for some requests: which fields of each event are wanted, the functions that the programs call, and the
// maps; some maps are shared with other batches.
func newLoader(h *Host, requests []*request, shared map[string]*ebpf.Map) (*loader, error) {
	o := requests[0].origin.object
	ways, readers := used(h, requests)
	object, err := o.load(slices.Collect(maps.Keys(ways))...)
	if err != nil {
		return nil, err
	}
	spec := object.Copy()
	for name, m := range shared {
		spec.Maps[name] = specOf(name, m)
	}
	constants := h.constants(o.module, requests...)
	tasks := constants.controller != 0 || slices.ContainsFunc(requests, (*request).readsTasks)
	kernelTypes := func(r relocation) func() (*btf.Spec, error) {
		return sync.OnceValues(func() (*btf.Spec, error) { return kernelTypes(h.kernel, o, r) })
	}
	l := &loader{
		spec:           spec,
		cache:          h.kernel.Cache(),
		kernel:         h.kernel,
		modules:        o.modules(),
		described:      make(map[string]*btf.Handle),
		readers:        readers,
		idle:           make(map[string]bool),
		delivering:     make(map[string]bool),
		types:          kernelTypes(relocation{tasks: tasks}),
		typesAndFtrace: kernelTypes(relocation{tasks: tasks, ftrace: true}),
	}
	size(spec, requests)
	if err := l.specialize(requests, ways, constantsFor(spec, constants, requests...)); err != nil {
		return nil, err
	}
	keepMaps(spec)
	return l, l.createMaps(shared)
}

// size sizes the maps of an object for this host.
func size(spec *ebpf.CollectionSpec, requests []*request) {
	for _, r := range requests {
		if sd := r.origin.hook.seed; sd != nil {
			spec.Maps[structName(r.Probe)+"_known"].MaxEntries = min(2*sd.objects()+seedSlack, maxSeeds)
		}
		for _, hk := range r.allHooks() {
			if hk.room == nil {
				continue
			}
			room := hk.room()
			for name, m := range spec.Maps {
				if strings.HasPrefix(name, hk.name) && m.Type != ebpf.Array { // what a table has no room for is in a hash (KEPT in bpf/trace.h)
					m.MaxEntries = max(m.MaxEntries, room)
				}
			}
		}
	}
}

// seedSlack is how many objects there may be besides twice the number at the start.
const seedSlack = 1 << 14

// used returns the programs of all variants of the hooks of the requests, and how they are attached. Programs that user space runs have a
// nil way. Readers are as in a loader.
func used(h *Host, requests []*request) (used map[string]way, readers map[string]byte) {
	used, readers = make(map[string]way), make(map[string]byte)
	for i, r := range requests {
		if sd := r.origin.hook.seed; sd != nil {
			used[sd.lost] = rawTracepoint{}
		}
		if in := r.origin.hook.inquiry; in != nil {
			used[in.mark] = rawTracepoint{}
		}
		for _, hk := range r.allHooks() {
			for _, v := range h.hostHookFor(r, hk).variants() {
				for _, p := range v.programs {
					used[p.name] = p.way
					if r.CountsFailures && readers[p.name] == 0 {
						readers[p.name] = byte(placeOf(i))
					}
				}
			}
		}
	}
	return used, readers
}

// specialize keeps the used programs of the object, and in these what is wanted.
func (l *loader) specialize(requests []*request, used map[string]way, constants rewrite.Constants) error {
	hidden := sync.OnceValue(kernel.HidesAddresses)
	for name, p := range l.spec.Programs {
		if used[name] == nil {
			delete(l.spec.Programs, name)
			continue
		}
		delivers, err := specialize(p, used[name], requests, l.asReader(name, constants))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if slices.ContainsFunc(p.Instructions, loadsAddress) && hidden() {
			p.Instructions = withoutAddresses(p.Instructions)
		}
		l.idle[name] = !delivers && rewrite.Idle(p.Instructions)
		l.delivering[name] = delivers
	}
	return nil
}

// failedReadsName is the map that counts reads of a process's memory that failed (bpf/user_memory.h).
const failedReadsName = "failed_reads"

// placeOf returns the place in it of a request, by its place among those that are loaded together.
func placeOf(i int) uint32 { return uint32(i + 1) }

// asReader returns the constants for a program: whose reads it counts (bpf/user_memory.h).
func (l *loader) asReader(program string, constants rewrite.Constants) rewrite.Constants {
	if place := l.spec.Variables["reader"]; place != nil && l.readers[program] != 0 {
		constants.Values = bytes.Clone(constants.Values)
		constants.Values[place.Offset] = l.readers[program]
	}
	return constants
}

// loadsAddress reports whether an instruction loads the address of a symbol of the kernel, __ksym in C.
func loadsAddress(ins asm.Instruction) bool {
	return ins.OpCode.IsDWordLoad() && ins.Src == asm.R0 && ins.Reference() != ""
}

// withoutAddresses makes these addresses 0, as they are for a symbol that the kernel does not show. The library would fail if all are hidden.
func withoutAddresses(insns asm.Instructions) asm.Instructions {
	out := slices.Clone(insns)
	for i, ins := range out {
		if loadsAddress(ins) {
			out[i] = asm.LoadImm(ins.Dst, 0, asm.DWord).WithSymbol(ins.Symbol())
		}
	}
	return out
}

// needs returns what a program needs for these requests.
func (l *loader) needs(program string) needs { return needsOf(l.spec.Programs[program].Instructions) }

// busy leaves out the idle programs.
func (l *loader) busy(programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool { return l.idle[p.name] })
}

// unattached loads a program that user space runs.
func (l *loader) unattached(name string) (*ebpf.Program, error) {
	spec, o := l.collection(map[string]*ebpf.ProgramSpec{name: l.spec.Programs[name].Copy()})
	c, err := ebpf.NewCollectionWithOptions(spec, o)
	if err != nil {
		return nil, explain(err)
	}
	defer c.Close() // what is left in it
	return c.DetachProgram(name), nil
}

// program returns the spec to load for one target: a shared program is loaded for each of its targets.
func (l *loader) program(p program) *ebpf.ProgramSpec {
	spec := l.spec.Programs[p.name].Copy()
	p.way.prepare(spec, p.target)
	return spec
}

// collection returns the spec to load for programs, under the names that they have in it, and the options to load them.
func (l *loader) collection(programs map[string]*ebpf.ProgramSpec) (*ebpf.CollectionSpec, ebpf.CollectionOptions) {
	return &ebpf.CollectionSpec{
		Maps: l.spec.Maps, Programs: programs, Types: l.spec.Types, ByteOrder: l.spec.ByteOrder,
	}, ebpf.CollectionOptions{MapReplacements: l.maps, Cache: l.cache}
}

// verified loads programs for their targets, with these types of the kernel if they need some.
func (l *loader) verified(specs map[string]*ebpf.ProgramSpec, types *btf.Spec) (loaded map[string]*ebpf.Program, err error) {
	loaded = make(map[string]*ebpf.Program)
	defer func() {
		if err != nil {
			_ = closeAll(slices.Collect(maps.Values(loaded)))
		}
	}()
	// What cannot be loaded here is the library's: its errors have more of the verifier's log.
	others := make(map[string]*ebpf.ProgramSpec)
	refused := false
	for name, spec := range specs {
		if !refused {
			p, ok, err := l.loadBound(spec, types)
			if errors.Is(err, unix.E2BIG) {
				// A verifier's error without a source begins with a colon.
				return loaded, fmt.Errorf("program %s: load program%w", name, withoutStatistics(err))
			}
			if refused = err != nil; ok && !refused {
				loaded[name] = p
				continue
			}
		}
		others[name] = spec
	}
	if len(others) == 0 {
		return loaded, nil
	}
	spec, o := l.collection(others)
	o.Programs.KernelTypes = types
	c, err := verified(spec, o)
	if err != nil {
		return loaded, err
	}
	defer c.Close() // what is left in it
	for name := range others {
		loaded[name] = c.DetachProgram(name)
	}
	return loaded, nil
}

// verified loads programs by the library. It would let the verifier try what it rejects once more, for its log. A program with too many paths
// takes seconds each time, and the log with the statistics alone has that reason.
func verified(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
	o.Programs.LogLevel = ebpf.LogLevelStats
	c, err := ebpf.NewCollectionWithOptions(spec, o)
	var answer *ebpf.VerifierError
	switch {
	case !rejects(err):
		return c, err
	case errors.Is(err, unix.E2BIG) && errors.As(err, &answer):
		// The text of an error has the last line of the log.
		place, _, _ := strings.Cut(err.Error(), answer.Error())
		return nil, fmt.Errorf("%s%w", place, withoutStatistics(answer))
	}
	o.Programs.LogLevel = ebpf.LogLevelBranch
	return ebpf.NewCollectionWithOptions(spec, o)
}

// withoutStatistics returns a verifier's error with the reasons in its log only.
func withoutStatistics(err error) error {
	var answer *ebpf.VerifierError
	if errors.As(err, &answer) {
		answer.Log = slices.DeleteFunc(answer.Log, isStatistic)
	}
	return err
}

// isStatistic reports whether a line of the verifier's log is one of print_verification_stats() (kernel/bpf/verifier.c).
func isStatistic(line string) bool {
	return slices.ContainsFunc([]string{"verification time ", "stack depth ", "processed "}, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

// callItself puts a program into the arrays that it calls itself by (ITSELF in bpf/verbs.bpf.c). If several programs of a hook refer to one, the
// last of them is called.
func (l *loader) callItself(p program, loaded *ebpf.Program) error {
	for name, m := range l.maps {
		if m.Type() != ebpf.ProgramArray || !refersTo(l.spec.Programs[p.name].Instructions, name) {
			continue
		}
		if err := m.Put(uint32(0), loaded); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	return nil
}

// specOf describes an existing map, so that programs can refer to it.
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

// refersTo reports whether code refers to a map.
func refersTo(insns asm.Instructions, mapName string) bool {
	return slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return ins.IsLoadFromMap() && ins.Reference() == mapName })
}

// createMaps creates the maps of the object, except for the shared ones.
func (l *loader) createMaps(shared map[string]*ebpf.Map) error {
	only := l.spec.Copy()
	only.Programs = nil
	// The library would map the variables into memory, and keep their maps until the next garbage collection.
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
