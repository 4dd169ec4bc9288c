//go:build linux

package probes

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// An answer is what a set of cgroups has of each, struct answer of bpf/cgroups.bpf.c: the column of a boolean that may be absent.
type answer struct{ Yes, Known uint64 }

// settle makes a set from a cgroup and all cgroups below it.
func (h *Host) settle(path string) (*set, error) {
	s, err := h.newCgroups()
	if err != nil {
		return nil, err
	}
	if err := s.addBelow(h, path, func(uint64) answer { return answer{1, 1} }); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// newCgroups makes an empty set of cgroups.
func (h *Host) newCgroups() (*set, error) {
	number, err := h.catalog.cgroups.Hierarchy()
	if err != nil {
		return nil, err
	}
	return h.newSet(cgroups, map[string]int32{hierarchyConstant: number})
}

// addBelow adds a cgroup and all below it. It adds each cgroup before it looks for those inside: a cgroup made meanwhile is either reported
// by the kernel or in the directory. The directory has it a moment after the kernel's report, so the search is repeated until it finds no
// new cgroup.
func (s *set) addBelow(h *Host, path string, of func(id uint64) answer) error {
	for added := true; added; {
		added = false
		err := h.catalog.cgroups.Below(path, func(id uint64) error {
			switch err := s.members.Update(id, of(id), ebpf.UpdateNoExist); {
			case err == nil:
				added = true
			case !errors.Is(err, ebpf.ErrKeyExist):
				return fmt.Errorf("note a cgroup: %w", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
