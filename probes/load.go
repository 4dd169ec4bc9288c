//go:build linux

package probes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/probes/rewrite"
)

// openRing creates the ring buffer. Where no code refers to it, it is as small as can be: the usual size takes the kernel 2 ms.
func (s *Session) openRing(o AttachOptions) (*ebpf.Map, error) {
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. Where it cannot be raised it may still suffice: map creation tells.
	_ = rlimit.RemoveMemlock()
	size := o.RingBytes
	if size == 0 {
		size = DefaultRingBytes
	}
	delivers := slices.ContainsFunc(s.requests, func(r *request) bool {
		return refersTo(r.Code.Filter, RingName) || refersTo(r.Code.Action, RingName)
	})
	if !delivers {
		size = os.Getpagesize()
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: RingName, Type: ebpf.RingBuf, MaxEntries: uint32(size)})
	if err != nil {
		return nil, fmt.Errorf("ring buffer of %d bytes: %w", size, explain(err))
	}
	s.maps = append(s.maps, ring)
	if s.ring, err = ringbuf.NewReader(ring); err != nil {
		return nil, fmt.Errorf("ring buffer: %w", err)
	}
	return ring, nil
}

// loader loads the programs of one object.
type loader struct {
	spec *ebpf.CollectionSpec
	maps map[string]*ebpf.Map
	// idle programs have nothing to do: nobody wants what they would see.
	idle map[string]bool
	// tells holds the programs that tell of events.
	tells map[string]bool
	// types of the kernel, and the same with those of the records in tracefs.
	types, typesAndRecords func() (*btf.Spec, error)
}

// newLoader prepares the object: what is wanted of each event, the functions that the programs call, and the maps, some of which
// are shared with others.
func (s *Session) newLoader(group string, requests []*request, shared map[string]*ebpf.Map) (*loader, error) {
	object, err := s.host.catalog.objects[group]()
	if err != nil {
		return nil, err
	}
	spec := object.Copy()
	for name, m := range shared {
		spec.Maps[name] = specOf(name, m)
	}
	controller := s.host.cgroupController(requests...)
	values := constantsFor(spec, controller, requests...)
	used := make(map[string]bool)
	for _, r := range requests {
		if sd := r.source.hook.seed; sd != nil {
			sd.size(spec, r)
			used[sd.lost] = true
		}
		for _, hk := range r.allHooks() {
			if hk.entries != nil {
				entries := hk.entries()
				for name, m := range spec.Maps {
					if strings.HasPrefix(name, hk.name) {
						m.MaxEntries = max(m.MaxEntries, entries)
					}
				}
			}
			for _, v := range s.host.variants(group, hk) {
				for _, p := range v.programs {
					used[p.name] = true
				}
			}
		}
	}
	idlers, tells := make(map[string]bool), make(map[string]bool)
	for name, p := range spec.Programs {
		if !used[name] {
			delete(spec.Programs, name)
			continue
		}
		delivers := slices.ContainsFunc(requests, func(r *request) bool { return rewrite.Calls(p.Instructions, actionName(r.Probe)) })
		if err := specialize(p, requests, values); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		idlers[name] = !delivers && rewrite.Idle(p.Instructions)
		tells[name] = delivers
	}
	keepMaps(spec)
	kernelTypes := func(r relocation) func() (*btf.Spec, error) {
		return sync.OnceValues(func() (*btf.Spec, error) { return s.host.kernelTypes(group, r) })
	}
	l := &loader{
		spec:            spec,
		idle:            idlers,
		tells:           tells,
		types:           kernelTypes(relocation{cgroups: controller != 0}),
		typesAndRecords: kernelTypes(relocation{cgroups: controller != 0, records: true}),
	}
	return l, s.createMaps(l, shared)
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
	if p.kind == "fentry" || p.kind == "fexit" {
		spec.AttachTo = p.target
	}
	return spec
}

// specOf describes a map that is there, so that programs can refer to it.
func specOf(name string, m *ebpf.Map) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: name, Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags(),
	}
}

// constantSection holds the constants of the C source.
const constantSection = ".rodata"

// constantsFor returns the contents of the constants' section for some requests; controller is cgroup_controller of trace.h.
func constantsFor(object *ebpf.CollectionSpec, controller byte, requests ...*request) []byte {
	values := bytes.Clone(object.Maps[constantSection].Contents[0].Value.([]byte))
	values[object.Variables["cgroup_controller"].Offset] = controller
	for _, r := range requests {
		copy(values[object.Variables[structName(r.Probe)+"_want"].Offset:], r.wanted())
		if entry := object.Variables[structName(r.Probe)+"_entry"]; entry != nil && r.wantsEntry() {
			values[entry.Offset] = 1
		}
		if begins := object.Variables[structName(r.Probe)+"_begins"]; begins != nil {
			values[begins.Offset] = r.Code.begins(r.source)
		}
		if r.Counted {
			values[object.Variables[structName(r.Probe)+"_counted"].Offset] = 1
		}
	}
	return values
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

// createMaps creates the maps of an object, but those that are shared.
func (s *Session) createMaps(l *loader, shared map[string]*ebpf.Map) error {
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
	for _, m := range c.Maps {
		s.maps = append(s.maps, m)
	}
	return nil
}

// rejects tells whether an error is the verifier's answer to a program, rather than that of a policy or limit: these refuse a
// program before anything is written into the verifier's log.
func rejects(err error) bool {
	var answer *ebpf.VerifierError
	return errors.As(err, &answer) && (len(answer.Log) > 0 || !errors.Is(err, unix.EPERM))
}

// explain says what a refusal of bpf(2) means. The capabilities that a variant needs were checked before, so what is left is the
// limit on locked memory, which kernels before 5.11 count maps against, or a policy.
func explain(err error) error {
	if !errors.Is(err, unix.EPERM) || rejects(err) {
		return err
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("%w: the limit on locked memory is %d KiB, which may be too low (raise it with ulimit -l), or a lockdown or seccomp policy forbids it",
			unix.EPERM, limit.Cur>>10)
	}
	return fmt.Errorf("%w (a lockdown or seccomp policy forbids it)", err)
}
