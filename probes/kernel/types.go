//go:build linux

package kernel

import (
	"errors"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// taskFlavour ends the names of the views in trace.h of the way from a task to its common fields.
const taskFlavour = "___way"

// Views returns the types that an object may relocate against: its named structs, unions and enums, except flavours (name___flavour). With
// tasks, the views of the way from a task are included.
func Views(types *btf.Spec, tasks bool) []btf.Type {
	var found []btf.Type
	seen := make(map[string]bool)
	for t, err := range types.All() {
		if err != nil {
			break
		}
		if !tasks && strings.HasSuffix(t.TypeName(), taskFlavour) {
			continue
		}
		name := NameOf(t)
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

// Type returns the kernel's own version of a type for a view of it.
//
// Each type comes from one place. Types of the module come from --btf, or else from the module's BTF, or else from vmlinux unless the
// module has no BTF and was built out of tree. Other types come from vmlinux, otherwise from --btf. So the BTF of other modules is never
// read, and one type never has two candidates.
func (k *Kernel) Type(m Module, view btf.Type) (btf.Type, error) {
	name := NameOf(view)
	sources, err := k.descriptions(m, name)
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		t, err := source.find(name, view)
		if !errors.Is(err, btf.ErrNotFound) {
			return t, err
		}
	}
	return nil, btf.ErrNotFound
}

// description is a collection of types.
type description interface {
	// find returns the type of that name and of the view's kind.
	find(name string, view btf.Type) (btf.Type, error)
	// parameters returns how many parameters a function has that the type of that name points to; ok is false if there is none.
	parameters(typedef string) (n int, ok bool)
}

// descriptions returns where a type may come from, best first.
func (k *Kernel) descriptions(m Module, name string) ([]description, error) {
	files, err := k.given()
	if err != nil {
		return nil, err
	}
	var given []description
	for _, f := range files {
		given = append(given, library{f})
	}
	types, err := k.taken.Load().described()
	if !m.Owns(name) {
		if err != nil {
			return given, nil
		}
		return append([]description{types}, given...), nil
	}
	m = Module{Name: m.Describer()}
	own, noBTF := k.taken.Load().describedBy[m.Name]()
	if noBTF == nil {
		given = append(given, own)
	}
	// The BTF of a module leaves out what vmlinux already has.
	if err == nil && (noBTF == nil || !m.outOfTree()) {
		given = append(given, types)
	}
	return given, nil
}

// library is a description with the library's index.
type library struct{ *btf.Spec }

func indexed(spec *btf.Spec, err error) (description, error) { return library{spec}, err }

func (l library) find(name string, view btf.Type) (btf.Type, error) {
	return lookup(l.Spec, name, view)
}

func (l library) parameters(typedef string) (n int, ok bool) {
	var t *btf.Typedef
	if l.TypeByName(typedef, &t) != nil {
		return 0, false
	}
	pointer, ok := btf.UnderlyingType(t).(*btf.Pointer)
	if !ok {
		return 0, false
	}
	proto, ok := btf.UnderlyingType(pointer.Target).(*btf.FuncProto)
	if !ok {
		return 0, false
	}
	return len(proto.Params), true
}

// Describes reports whether the known BTF has all types of a module: the describing module's BTF, or the kernel's if that module is built
// in.
func (k *Kernel) Describes(m Module) bool {
	describer := Module{Name: m.Describer()}
	if describer.builtIn() {
		_, err := k.taken.Load().described()
		return err == nil
	}
	_, err := k.taken.Load().describedBy[describer.Name]()
	return err == nil
}

// lookup finds the type with a name that is of the same kind as the view of it.
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
	case *btf.Typedef:
		_, ok := b.(*btf.Typedef)
		return ok
	}
	return false
}

// A Selection is a subset of the kernel's types. A process that needs few of them starts sooner: task_struct alone is hundreds of types.
type Selection struct {
	builder *btf.Builder
	pruner  pruner
}

// NewSelection returns an empty selection.
func NewSelection() (*Selection, error) {
	b, err := btf.NewBuilder(nil, nil)
	return &Selection{b, pruner{done: make(map[btf.Type]btf.Type)}}, err
}

// Add adds a type with everything inside it.
func (s *Selection) Add(t btf.Type) error {
	_, err := s.builder.Add(s.pruner.prune(t))
	return err
}

// Spec returns the added types.
func (s *Selection) Spec() (*btf.Spec, error) { return s.builder.Spec() }

// pruner copies types without what pointers point to: a relocation follows members inside a struct, never a pointer. With everything behind
// its pointers, struct request is most of the kernel; without, it is a hundred types.
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
