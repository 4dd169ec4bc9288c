//go:build linux

package probes

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
)

// A gate opens and closes the windows of a batch: window.h.
type gate struct {
	controls *ebpf.Map
	at       uint32
	// kept is what programs keep for others, tables what they keep from a beginning to an end (SLOTTED, bpf/trace.h).
	kept   []*ebpf.Map
	tables []slotTable
}

// A slotTable is an array whose buckets are empty if they are 0.
type slotTable struct {
	slots *ebpf.Map
	all   []uint32
	empty any // a slice of arrays of bytes, one for each slot
}

func newSlotTable(slots *ebpf.Map) slotTable {
	n := int(slots.MaxEntries())
	t := slotTable{slots: slots, all: make([]uint32, n)}
	for i := range t.all {
		t.all[i] = uint32(i)
	}
	slot := reflect.ArrayOf(int(slots.ValueSize()), reflect.TypeFor[byte]())
	t.empty = reflect.MakeSlice(reflect.SliceOf(slot), n, n).Interface()
	return t
}

// newGate returns the gate of a loaded object, nil if it has none. Maps that others share, fill or read are not emptied.
func newGate(spec *ebpf.CollectionSpec, controls *ebpf.Map, maps map[string]*ebpf.Map, others func(name string) bool) *gate {
	open := spec.Variables["window_open"]
	if open == nil || controls == nil {
		return nil
	}
	g := &gate{controls: controls, at: open.Offset}
	for name, m := range maps {
		switch {
		case others(name):
		case m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash:
			g.kept = append(g.kept, m)
		case isSlotTable(spec.Maps[name]):
			g.tables = append(g.tables, newSlotTable(m))
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
	for _, t := range g.tables {
		if _, err := t.slots.BatchUpdate(t.all, t.empty, nil); err != nil {
			return err
		}
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
