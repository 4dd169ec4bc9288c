//go:build linux

package probes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// relocation says which types programs may be relocated against, beyond those of the object's own code. A process that needs none of
// them starts sooner: task_struct alone is hundreds of types.
type relocation struct {
	records bool // of tracefs
	cgroups bool // of the way from a task to its cgroup in a v1 tree, see current_cgroup in trace.h
}

// kernelTypes returns the kernel's own version of every type that the programs of an object read, as far as this kernel describes it.
//
// Each type is taken from one place: what belongs to the module from --btf, else from the module's BTF, else from vmlinux, unless
// the module has no BTF and was built out of the kernel's tree; anything else from vmlinux, else from --btf. So the BTF of other modules is never
// read, and one type never has two candidates.
func (h *Host) kernelTypes(object string, r relocation) (*btf.Spec, error) {
	keys := modulesOf(object)
	b, err := btf.NewBuilder(nil, nil)
	if err != nil {
		return nil, err
	}
	p := pruner{done: make(map[btf.Type]btf.Type)}
	for _, view := range views(h.catalog.types[object], r.cgroups) {
		isRecord := strings.HasPrefix(view.TypeName(), recordPrefix)
		if isRecord && !r.records {
			continue
		}
		t, err := h.kernelType(ownerAmong(keys, view), view)
		if isRecord {
			t, err = h.recordType(object, view.TypeName())
		}
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := b.Add(p.prune(t)); err != nil {
			return nil, fmt.Errorf("type %s: %w", view.TypeName(), err)
		}
	}
	return b.Spec()
}

// ownerAmong returns the module that a type belongs to; the first one stands for those that belong to none.
func ownerAmong(keys []string, view btf.Type) module {
	for _, key := range keys {
		if modules[key].owns(view.TypeName()) {
			return modules[key]
		}
	}
	return modules[keys[0]]
}

// cgroupFlavour ends the names of the views in trace.h of the way to a cgroup.
const cgroupFlavour = "___cgroup"

// views are the types that an object may relocate against: its named structs, unions and enums, flavours (name___flavour) aside. Those
// of the way to a cgroup are among them if cgroups says so.
func views(types *btf.Spec, cgroups bool) []btf.Type {
	var found []btf.Type
	seen := make(map[string]bool)
	for t, err := range types.All() {
		if err != nil {
			break
		}
		if !cgroups && strings.HasSuffix(t.TypeName(), cgroupFlavour) {
			continue
		}
		name, _, _ := strings.Cut(t.TypeName(), "___")
		switch t.(type) {
		case *btf.Struct, *btf.Union, *btf.Enum:
			if name != "" && !seen[name] {
				seen[name] = true
				found = append(found, t)
			}
		}
	}
	return found
}

func (h *Host) kernelType(m module, view btf.Type) (btf.Type, error) {
	name, _, _ := strings.Cut(view.TypeName(), "___")
	for _, source := range h.sources(m, name) {
		t, err := lookup(source, name, view)
		if !errors.Is(err, btf.ErrNotFound) {
			return t, err
		}
	}
	return nil, btf.ErrNotFound
}

// sources returns where a type may come from, best first.
func (h *Host) sources(m module, name string) []*btf.Spec {
	var sources []*btf.Spec
	vmlinux, err := h.vmlinux()
	if !m.owns(name) {
		if err == nil {
			sources = append(sources, vmlinux)
		}
		return append(sources, h.given...)
	}
	sources = append(sources, h.given...)
	m = m.describer()
	own, noBTF := h.moduleTypes[m.name]()
	if noBTF == nil {
		sources = append(sources, own)
	}
	// The BTF of a module leaves out what vmlinux already has.
	if err == nil && (noBTF == nil || !m.outOfTree()) {
		sources = append(sources, vmlinux)
	}
	return sources
}

// lookup finds the type of a name that is of the same kind as the view of it.
func lookup(spec *btf.Spec, name string, view btf.Type) (btf.Type, error) {
	types, err := spec.AnyTypesByName(name)
	if err != nil {
		return nil, err
	}
	for _, t := range types {
		if sameKind(t, view) {
			return t, nil
		}
	}
	return nil, btf.ErrNotFound
}

func sameKind(a, b btf.Type) bool {
	switch a.(type) {
	case *btf.Struct:
		_, ok := b.(*btf.Struct)
		return ok
	case *btf.Union:
		_, ok := b.(*btf.Union)
		return ok
	case *btf.Enum:
		_, ok := b.(*btf.Enum)
		return ok
	}
	return false
}

// pruner copies types without what pointers point to: a relocation follows members that lie inside a struct, never a pointer. A
// struct request with all that hangs on it is most of the kernel; without, it is a hundred types.
type pruner struct {
	done map[btf.Type]btf.Type
}

func (p pruner) prune(t btf.Type) btf.Type {
	if c, ok := p.done[t]; ok {
		return c
	}
	switch t := t.(type) {
	case *btf.Pointer:
		return &btf.Pointer{Target: (*btf.Void)(nil)}
	case *btf.Struct:
		c := &btf.Struct{Name: t.Name, Size: t.Size}
		p.done[t] = c
		c.Members = p.members(t.Members)
		return c
	case *btf.Union:
		c := &btf.Union{Name: t.Name, Size: t.Size}
		p.done[t] = c
		c.Members = p.members(t.Members)
		return c
	case *btf.Array:
		return &btf.Array{Index: t.Index, Type: p.prune(t.Type), Nelems: t.Nelems}
	case *btf.Typedef:
		c := &btf.Typedef{Name: t.Name}
		p.done[t] = c
		c.Type = p.prune(t.Type)
		return c
	case *btf.Volatile:
		return &btf.Volatile{Type: p.prune(t.Type)}
	case *btf.Const:
		return &btf.Const{Type: p.prune(t.Type)}
	case *btf.Restrict:
		return &btf.Restrict{Type: p.prune(t.Type)}
	case *btf.TypeTag:
		return p.prune(t.Type)
	default:
		return t
	}
}

func (p pruner) members(members []btf.Member) []btf.Member {
	pruned := make([]btf.Member, len(members))
	for i, m := range members {
		pruned[i] = btf.Member{Name: m.Name, Type: p.prune(m.Type), Offset: m.Offset, BitfieldSize: m.BitfieldSize}
	}
	return pruned
}
