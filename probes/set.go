//go:build linux

package probes

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"trace/bpf"
	"trace/probes/kernel"
)

// A set is kept in the kernel, for look-ups by generated code: what user space adds, and what programs on tracepoints find to descend from
// it. A nil set is empty.
type set struct {
	members *ebpf.Map
	// full counts what did not fit; nil: everything fits.
	full     *ebpf.Map
	programs []*ebpf.Program
	links    []link.Link // none after detaching
}

// A setKind is what a set consists of, with the names in the C code.
type setKind struct {
	object, members, full string
	programs              []setProgram
	// views of the kernel's types that the programs read.
	views []string
}

type setProgram struct{ name, tracepoint string }

// processes are added by user space; the program adds all that they fork while it is attached.
var processes = setKind{
	object: "children", members: MembersName, views: []string{"task_struct"},
	programs: []setProgram{{"raw_tp_children", "sched_process_fork"}},
}

// cgroups are added by user space; the program adds all that are made below them.
var cgroups = setKind{
	object: "cgroups", members: CgroupsName, full: "cgroups_full", views: []string{"cgroup", "cgroup_subsys_state", "cgroup_root", "kernfs_node"},
	programs: []setProgram{{"raw_tp_cgroups_made", "cgroup_mkdir"}, {"raw_tp_cgroups_released", "cgroup_release"}},
}

// hierarchyConstant is the number of the tree of cgroups in which a set looks for new ones.
const hierarchyConstant = "cgroups_hierarchy"

// newSet makes an empty set and attaches its programs, which have some constants of 32 bits.
func (h *Host) newSet(kind setKind, constants map[string]int32) (_ *set, err error) {
	if err := h.kernel.Permits([]string{kernel.CapBPF, kernel.CapPerfmon}); err != nil {
		return nil, err
	}
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. If it cannot be raised it may still suffice; otherwise the map cannot be
	// created.
	_ = rlimit.RemoveMemlock()
	object, err := bpf.Open(kind.object)
	if err != nil {
		return nil, err
	}
	spec, err := object.Load(object.Programs()...)
	if err != nil {
		return nil, err
	}
	if len(constants) == 0 {
		delete(spec.Maps, constantSection)
	}
	for name, value := range constants {
		values := spec.Maps[constantSection].Contents[0].Value.([]byte)
		binary.NativeEndian.PutUint32(values[spec.Variables[name].Offset:], uint32(value))
	}
	spec.Variables = nil // see createMaps
	types, err := h.described(kind.views)
	if err != nil {
		return nil, err
	}
	s := &set{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}, Cache: h.kernel.Cache()})
	if err != nil {
		return nil, explain(err)
	}
	defer c.Close() // what is left in it
	s.members, s.full = c.DetachMap(kind.members), c.DetachMap(kind.full)
	for _, p := range kind.programs {
		s.programs = append(s.programs, c.DetachProgram(p.name))
	}
	for i, p := range kind.programs {
		lk, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.tracepoint, Program: s.programs[i]})
		if err != nil {
			return nil, fmt.Errorf("attach to %s: %w", p.tracepoint, explain(err))
		}
		s.links = append(s.links, lk)
	}
	return s, nil
}

// described returns types of the kernel.
func (h *Host) described(names []string) (*btf.Spec, error) {
	if err := h.kernel.Described(); err != nil {
		return nil, err
	}
	selection, err := kernel.NewSelection()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		t, err := h.kernel.Type(kernel.Module{}, &btf.Struct{Name: name})
		if err == nil {
			err = selection.Add(t)
		}
		if err != nil {
			return nil, fmt.Errorf("struct %s: %w", name, err)
		}
	}
	return selection.Spec()
}

// skipped returns how often the kernel did not run a program of the set, or what it found did not fit. The set lacks that and its
// descendants, or has some that do not belong to it.
func (s *set) skipped() (uint64, error) {
	if s == nil {
		return 0, nil
	}
	var n uint64
	if s.full != nil {
		if err := s.full.Lookup(uint32(0), &n); err != nil {
			return 0, err
		}
	}
	for _, p := range s.programs {
		stats, err := p.Stats()
		if err != nil {
			return 0, err
		}
		n += stats.RecursionMisses
	}
	return n, nil
}

// detach stops the updates; the set stays as it is.
func (s *set) detach() error {
	if s == nil {
		return nil
	}
	err := closeAll(s.links)
	s.links = nil
	return err
}

func (s *set) close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.detach(), closeAll(s.programs), s.members.Close(), s.full.Close())
}
