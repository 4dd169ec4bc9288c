package exec

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"trace/lang/codegen"
	"trace/lang/ir"
)

// This file creates the maps of a run in the kernel and counts what they lost.

// createMaps creates the maps that the code refers to.
func (r *Run) createMaps() error {
	// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. If it cannot be raised it may still suffice: creating the maps shows it.
	_ = rlimit.RemoveMemlock()
	var all []*codegen.Map
	for _, m := range r.plan.Program.Maps {
		if k := r.plan.Maps[m]; k != nil {
			all = append(all, k.Code)
		}
	}
	var used []string
	for _, c := range r.plan.Codes {
		used = append(used, c.Maps...)
	}
	for _, spec := range append(codegen.MapSpecs(all, used), r.plan.StackSpace().Specs()...) {
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return tooMuch(spec, err)
		}
		r.kernel[spec.Name] = m
		if spec.InnerMap != nil {
			if err := r.createHalves(spec.Name, spec.InnerMap); err != nil {
				return err
			}
		}
	}
	r.turns = turns{word: r.kernel[codegen.TurnName], settled: true} // until the probes are attached
	if len(all) == 0 {
		return nil
	}
	var err error
	r.turns.fence, err = newFence()
	return err
}

// createHalves creates the two maps that take turns in an array of maps.
func (r *Run) createHalves(name string, spec *ebpf.MapSpec) error {
	var halves [2]*ebpf.Map
	defer func() { r.halves[name] = halves }()
	for turn := range uint32(len(halves)) {
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return tooMuch(spec, err)
		}
		halves[turn] = m
		if err := r.kernel[name].Put(turn, m); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	return nil
}

// tooMuch returns the error of a map that cannot be created. Only a lack of memory is about its size.
func tooMuch(spec *ebpf.MapSpec, err error) error {
	if errors.Is(err, syscall.EPERM) { // the library's advice is for kernels before 5.11
		return fmt.Errorf("map %s: %w: a seccomp filter, a security module, or the user namespace of a container forbids bpf(2), or before Linux 5.11 the limit on locked memory is too low (ulimit -l unlimited)", spec.Name, syscall.EPERM)
	}
	return fmt.Errorf("map %s with room for %d keys: %w (choose a smaller --map-size)", spec.Name, spec.MaxEntries, err)
}

// MapLosses count failed updates of a map.
type MapLosses struct {
	Map     string // with its @
	MaxKeys uint32 // how many keys it has room for
	Let     bool   // a let of the program declares MaxKeys
	codegen.MapCounters
}

// MapLosses returns the losses of the maps that lost something or skipped absent values.
func (r *Run) MapLosses() ([]MapLosses, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []MapLosses
	for _, m := range r.plan.Program.Maps {
		l := MapLosses{Map: m.Name, MaxKeys: r.maxKeys(m), Let: m.MaxKeys != 0}
		if k := r.plan.Maps[m]; k != nil {
			if counters := r.kernel[codegen.CountersName]; counters != nil {
				var cpus []codegen.MapCounters
				if err := counters.Lookup(uint32(k.Code.Index), &cpus); err != nil {
					return nil, fmt.Errorf("counters of %s: %w", m.Name, err)
				}
				for _, c := range cpus {
					l.add(c)
				}
			}
		}
		if s, ok := r.machine.stores[m].(interface{ counters() codegen.MapCounters }); ok {
			l.add(s.counters())
		}
		if l.MapCounters != (codegen.MapCounters{}) {
			all = append(all, l)
		}
	}
	return all, nil
}

// maxKeys returns how many keys a map has room for.
func (r *Run) maxKeys(m *ir.Map) uint32 {
	if k := r.plan.Maps[m]; k != nil {
		return k.Code.MaxKeys
	}
	return r.plan.NewMap(m).MaxKeys
}

func (l *MapLosses) add(c codegen.MapCounters) {
	l.Full += c.Full
	l.NoMemory += c.NoMemory
	l.Busy += c.Busy
	l.Absent += c.Absent
}

// Lost returns the number of lost updates.
func (l MapLosses) Lost() uint64 { return l.Full + l.NoMemory + l.Busy }
