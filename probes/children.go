//go:build linux

package probes

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/bpf"
	"trace/probes/kernel"
)

// family is a set of processes in the kernel: some, and all that they fork while the program is attached. The nil family is none.
type family struct {
	members *ebpf.Map
	program *ebpf.Program
	forks   link.Link // nil after detaching
}

// follow makes a family of processes.
func (h *Host) follow(roots []int) (_ *family, err error) {
	if err := h.kernel.Permits([]string{kernel.CapBPF, kernel.CapPerfmon}); err != nil {
		return nil, err
	}
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. Where it cannot be raised it may still suffice: map creation tells.
	_ = rlimit.RemoveMemlock()
	spec, err := bpf.Load(childrenObject)
	if err != nil {
		return nil, err
	}
	delete(spec.Maps, constantSection) // no constant is used
	spec.Variables = nil
	types, err := h.taskType()
	if err != nil {
		return nil, err
	}
	f := &family{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}, Cache: h.kernel.Cache()})
	if err != nil {
		return nil, explain(err)
	}
	defer c.Close() // what is left in it
	f.members, f.program = c.DetachMap(MembersName), c.DetachProgram(forkProgram)
	if err := f.add(roots); err != nil {
		return nil, err
	}
	f.forks, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: forkTracepoint, Program: f.program})
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", forkTracepoint, explain(err))
	}
	return f, nil
}

// taskType is what the program reads of the kernel's types.
func (h *Host) taskType() (*btf.Spec, error) {
	if err := h.kernel.Described(); err != nil {
		return nil, err
	}
	task, err := h.kernel.Type(kernel.Module{}, &btf.Struct{Name: "task_struct"})
	if err != nil {
		return nil, fmt.Errorf("struct task_struct: %w", err)
	}
	selection, err := kernel.NewSelection()
	if err != nil {
		return nil, err
	}
	if err := selection.Add(task); err != nil {
		return nil, fmt.Errorf("struct task_struct: %w", err)
	}
	return selection.Spec()
}

// add puts processes into the family. The map is written through memory: a system call would write all of its only value, and so undo
// what the program notes meanwhile.
func (f *family) add(pids []int) (err error) {
	members, err := unix.Mmap(f.members.FD(), 0, PIDs, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map memory of %s: %w", MembersName, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(members)) }()
	for _, pid := range pids {
		if pid <= 0 || pid >= PIDs {
			return fmt.Errorf("%d is no process id", pid)
		}
		members[pid] = 1
	}
	return nil
}

// skipped is how many forks the kernel did not run the program for: the family lacks these processes, with all that they fork, or has
// some that do not belong to it.
func (f *family) skipped() (uint64, error) {
	if f == nil {
		return 0, nil
	}
	stats, err := f.program.Stats()
	if err != nil {
		return 0, err
	}
	return stats.RecursionMisses, nil
}

// detach leaves the family as it is.
func (f *family) detach() error {
	if f == nil || f.forks == nil {
		return nil
	}
	err := f.forks.Close()
	f.forks = nil
	return err
}

func (f *family) close() error {
	if f == nil {
		return nil
	}
	return errors.Join(f.detach(), f.program.Close(), f.members.Close())
}
