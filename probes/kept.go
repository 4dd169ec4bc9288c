//go:build linux

package probes

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"trace/probes/rewrite"
)

// This file is about what programs keep from a beginning to an end: SLOTTED and KEPT of bpf/trace.h.

// isSlotTable reports whether a map was declared by SLOTTED.
func isSlotTable(spec *ebpf.MapSpec) bool {
	return spec != nil && spec.Type == ebpf.Array && spec.Value != nil && spec.Value.TypeName() == spec.Name+"_bucket"
}

// slotsSuffix ends the name of the table of a KEPT. Its hash has the name without it.
const slotsSuffix = "_slots"

// overflowSuffix ends the name of the variable that counts what was put into the hash.
const overflowSuffix = "_overflowed"

// dataSection holds the variables of the C code.
const dataSection = ".data"

// Kept returns how the beginnings of a request's events would be kept; nil if they need none.
func (h *Host) Kept(r Request) (all []Kept) {
	rq := h.request(r)
	rq.hooks = h.hooksFor(rq)
	programs, _ := used(h, []*request{rq})
	object, err := rq.origin.object.load(slices.Collect(maps.Keys(programs))...)
	if err != nil {
		return nil
	}
	constants := constantsFor(object, h.constants(rq.origin.object.module, rq), rq)
	tables := make(map[string]bool)
	for name := range programs {
		f, err := rewrite.New(object.Programs[name].Instructions)
		if err != nil {
			continue
		}
		f.Fold(constantSection, constants)
		for _, ins := range f.Insns {
			if ins.IsLoadFromMap() && isSlotTable(object.Maps[ins.Reference()]) {
				tables[ins.Reference()] = true
			}
		}
	}
	spec := object.Copy()
	size(spec, []*request{rq})
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		all = append(all, keptIn(spec, name))
	}
	return slices.Compact(all)
}

// keptIn describes a table of an object.
func keptIn(object *ebpf.CollectionSpec, table string) (k Kept) {
	spec := object.Maps[table]
	for _, tag := range spec.Tags {
		if by, ok := strings.CutPrefix(tag, "by:"); ok {
			k.By = by
		}
	}
	const slots = 4 // SLOTS of trace.h
	k.Slots = slots * spec.MaxEntries
	if name, ok := strings.CutSuffix(table, slotsSuffix); ok && object.Maps[name] != nil {
		k.Hash = object.Maps[name].MaxEntries
	}
	return k
}

// An overflow counts what a table had no room for.
type overflow struct {
	data *ebpf.Map
	at   uint32
}

// overflows returns the counts for the tables that a loaded program uses.
func (l *loader) overflows(program string) (all []overflow) {
	for name, v := range l.spec.Variables {
		hash, ok := strings.CutSuffix(name, overflowSuffix)
		if ok && l.maps[dataSection] != nil && refersTo(l.spec.Programs[program].Instructions, hash) {
			all = append(all, overflow{l.maps[dataSection], v.Offset})
		}
	}
	return all
}

// overflowed returns how many beginnings of the request were kept in a hash.
func (r *request) overflowed() (n uint64, err error) {
	for o := range r.overflows {
		var data []byte
		if err := o.data.Lookup(uint32(0), &data); err != nil {
			return 0, err
		}
		n += binary.NativeEndian.Uint64(data[o.at:])
	}
	return n, nil
}
