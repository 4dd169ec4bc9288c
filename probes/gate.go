//go:build linux

package probes

import (
	"errors"

	"github.com/cilium/ebpf"
)

// A gate opens and closes the windows of a batch: window.h.
type gate struct {
	controls *ebpf.Map
	at       uint32
	// kept is what programs keep for others.
	kept []*ebpf.Map
}

// newGate returns the gate of a loaded object, nil if it has none. open is the variable that lets events pass, among the controls. Maps that
// others share, fill or read are not emptied.
func newGate(open *ebpf.VariableSpec, controls *ebpf.Map, maps map[string]*ebpf.Map, others func(name string) bool) *gate {
	if open == nil || controls == nil {
		return nil
	}
	g := &gate{controls: controls, at: open.Offset}
	for name, m := range maps {
		if !others(name) && (m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash) {
			g.kept = append(g.kept, m)
		}
	}
	return g
}

func (g *gate) set(open byte) error {
	if g == nil {
		return nil
	}
	var value []byte
	if err := g.controls.Lookup(uint32(0), &value); err != nil {
		return err
	}
	value[g.at] = open
	return g.controls.Put(uint32(0), value)
}

// empty removes what programs keep, while none is attached.
func (g *gate) empty() error {
	if g == nil {
		return nil
	}
	for _, m := range g.kept {
		var key []byte
		for {
			if err := m.NextKey(nil, &key); errors.Is(err, ebpf.ErrKeyNotExist) {
				break
			} else if err != nil {
				return err
			}
			if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
	}
	return nil
}
