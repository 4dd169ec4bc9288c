package probes

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/bpf"
)

func (s *Session) openRing(o AttachOptions) (*ebpf.Map, error) {
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. Where it cannot be raised it may still suffice: map creation tells.
	_ = rlimit.RemoveMemlock()
	size := o.RingBytes
	if size == 0 {
		size = DefaultRingBytes
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: ringName, Type: ebpf.RingBuf, MaxEntries: uint32(size)})
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
	spec  *ebpf.CollectionSpec
	maps  map[string]*ebpf.Map
	types *btf.Spec
}

// newLoader prepares the object: what is wanted of each event, the functions that the programs call, and the maps.
func (s *Session) newLoader(group string, requests []*request, ring *ebpf.Map) (*loader, error) {
	spec, err := bpf.Load(group)
	if err != nil {
		return nil, err
	}
	spec.Maps[ringName] = &ebpf.MapSpec{Name: ringName, Type: ebpf.RingBuf, MaxEntries: ring.MaxEntries()}
	if inflight := spec.Maps["nvme_inflight"]; inflight != nil {
		inflight.MaxEntries = max(inflight.MaxEntries, nvmeRequests())
	}
	used := make(map[string]bool)
	for _, r := range requests {
		setConstant(spec, r.Probe.event+"_want", r.wanted())
		for _, hk := range r.hooks {
			for _, v := range s.host.variants(group, hk) {
				for _, p := range v.programs {
					used[p.name] = true
				}
			}
		}
	}
	for name, p := range spec.Programs {
		if !used[name] {
			delete(spec.Programs, name)
			continue
		}
		for _, r := range requests {
			r.define(p)
		}
	}
	keepMaps(spec)
	types, _, err := s.host.kernelTypes(group)
	if err != nil {
		return nil, fmt.Errorf("types of the kernel: %w", err)
	}
	l := &loader{spec: spec, types: types}
	return l, s.createMaps(l, ring)
}

// setConstant writes a constant of the C source into the contents of the map that holds it.
func setConstant(spec *ebpf.CollectionSpec, name string, value []byte) {
	v := spec.Variables[name]
	section := spec.Maps[v.SectionName]
	data := bytes.Clone(section.Contents[0].Value.([]byte))
	copy(data[v.Offset:], value)
	section.Contents = []ebpf.MapKV{{Key: section.Contents[0].Key, Value: data}}
}

// Stages of capture, enum stage in trace.h.
const stageAfterFilter = 2

// wanted returns the content of X_want: the stage in which the member at each offset is captured.
func (r *request) wanted() []byte {
	want := make([]byte, r.Probe.size)
	for _, f := range r.Fields {
		want[f.offset] = stageAfterFilter
	}
	return want
}

// keepMaps removes the maps that no program refers to: they would cost memory.
func keepMaps(spec *ebpf.CollectionSpec) {
	used := map[string]bool{ringName: true}
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

func (s *Session) createMaps(l *loader, ring *ebpf.Map) error {
	maps := l.spec.Copy()
	maps.Programs = nil
	// The library would map the variables into memory, and keep their maps alive until the garbage collector comes by.
	maps.Variables = nil // their values are in the contents of the maps
	c, err := ebpf.NewCollectionWithOptions(maps, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{ringName: ring}})
	if err != nil {
		return fmt.Errorf("maps: %w", explain(err))
	}
	l.maps = c.Maps
	for _, m := range c.Maps {
		s.maps = append(s.maps, m)
	}
	return nil
}

// explain says what a refusal of bpf(2) means. The capabilities that a variant needs were checked before, so what is left is the
// limit on locked memory, which kernels before 5.11 count maps against, or a policy.
func explain(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("%w: the limit on locked memory is %d KiB, which may be too low (raise it with ulimit -l), or a lockdown or seccomp policy forbids it",
			unix.EPERM, limit.Cur>>10)
	}
	return fmt.Errorf("%w (a lockdown or seccomp policy forbids it)", err)
}
