package exec

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// fence waits for BPF programs. It is an array of maps. The kernel returns from a change of it only when all BPF programs that ran
// have ended, so that none uses the old map (kernel/bpf/syscall.c, maybe_wait_bpf_programs, since 5.0).
type fence struct{ outer, inner *ebpf.Map }

func newFence() (*fence, error) {
	spec := &ebpf.MapSpec{Name: "fenced", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", spec.Name, err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "fence", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map fence: %w", err), inner.Close())
	}
	return &fence{outer, inner}, nil
}

// wait returns when all BPF programs that ran have ended.
func (f *fence) wait() error {
	if f == nil { // nothing runs in the kernel
		return nil
	}
	if err := f.outer.Put(uint32(0), f.inner); err != nil {
		return fmt.Errorf("wait for BPF programs: %w", err)
	}
	return nil
}

func (f *fence) close() error {
	if f == nil {
		return nil
	}
	return errors.Join(f.outer.Close(), f.inner.Close())
}
