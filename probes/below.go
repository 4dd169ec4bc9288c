//go:build linux

package probes

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// settle makes a set of a cgroup and all below it.
func (h *Host) settle(path string) (*set, error) {
	number, err := h.catalog.cgroups.Hierarchy()
	if err != nil {
		return nil, err
	}
	s, err := h.newSet(cgroups, map[string]int32{hierarchyConstant: number})
	if err != nil {
		return nil, err
	}
	if err := s.addBelow(h, path); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// addBelow adds a cgroup and all below it. Each is added before those in it are looked for: of what is made meanwhile the kernel tells, or
// the directory has it. It has it a moment after the kernel has told, so all are looked for until there are no new ones.
func (s *set) addBelow(h *Host, path string) error {
	for added := true; added; {
		added = false
		err := h.catalog.cgroups.Below(path, func(id uint64) error {
			switch err := s.members.Update(id, uint8(1), ebpf.UpdateNoExist); {
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
