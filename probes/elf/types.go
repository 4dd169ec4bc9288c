package elf

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Type is a type of the file's BTF.
type Type struct {
	ID   uint32 `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Size is in bytes; 0 where the kind has none.
	Size int `json:"size,omitempty"`
	// Of is the type that it is made of, or a function's prototype.
	Of string `json:"of,omitempty"`
	// Members of a struct or union, or the variables of a section.
	Members []Member `json:"members,omitempty"`
	// Values of an enum.
	Values []Value  `json:"values,omitempty"`
	Tags   []string `json:"tags,omitempty"`
}

// Member is a member of a struct. Its offset is in bytes, and also, of a bit field, in bits from there.
type Member struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Offset uint32   `json:"offset"`
	Bit    uint32   `json:"bit,omitempty"`
	Bits   uint32   `json:"bits,omitempty"`
	Tags   []string `json:"tags,omitempty"`
}

// Value is a value of an enum.
type Value struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// addTypes adds all types, by their ids.
func (o *Object) addTypes(spec *btf.Spec) error {
	for t, err := range spec.All() {
		if err != nil {
			return err
		}
		if _, void := t.(*btf.Void); void {
			continue
		}
		id, err := spec.TypeID(t)
		if err != nil {
			return err
		}
		o.Types = append(o.Types, describe(uint32(id), t))
	}
	return nil
}

// describe describes a type.
func describe(id uint32, t btf.Type) Type {
	out := Type{ID: id, Kind: kind(t), Name: t.TypeName()}
	switch t := t.(type) {
	case *btf.Struct:
		out.Size, out.Tags, out.Members = int(t.Size), t.Tags, members(t.Members)
	case *btf.Union:
		out.Size, out.Tags, out.Members = int(t.Size), t.Tags, members(t.Members)
	case *btf.Enum:
		out.Size = int(t.Size)
		for _, v := range t.Values {
			out.Values = append(out.Values, Value{v.Name, int64(v.Value)})
		}
	case *btf.Int:
		out.Size = int(t.Size)
	case *btf.Float:
		out.Size = int(t.Size)
	case *btf.Func:
		out.Of, out.Tags = prototype(t.Type, t.Name, 0), t.Tags
	case *btf.Typedef:
		out.Of, out.Tags = typeName(t.Type), t.Tags
	case *btf.Var:
		out.Of, out.Tags = typeName(t.Type), t.Tags
	case *btf.Datasec:
		out.Size = int(t.Size)
		for _, v := range t.Vars {
			out.Members = append(out.Members, Member{Name: v.Type.TypeName(), Type: variableType(v.Type), Offset: v.Offset})
		}
	default:
		out.Of = typeName(t)
	}
	return out
}

// variableType returns the type of a variable or of a function in a section.
func variableType(t btf.Type) string {
	if v, is := t.(*btf.Var); is {
		return typeName(v.Type)
	}
	return kind(t)
}

func members(all []btf.Member) (out []Member) {
	for _, m := range all {
		bits := uint32(m.Offset)
		one := Member{Name: m.Name, Type: typeName(m.Type), Offset: bits / 8, Bits: uint32(m.BitfieldSize), Tags: m.Tags}
		if one.Bits > 0 {
			one.Bit = bits % 8
		}
		out = append(out, one)
	}
	return out
}

// kind returns the word for the kind of a type.
func kind(t btf.Type) string {
	name := fmt.Sprintf("%T", t)
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}

// deepest is how many types the name of a type may have: damaged types may never end.
const deepest = 32

// typeName returns a type as C writes it: struct x *, or u32[8].
func typeName(t btf.Type) string { return nameAt(t, 0) }

func nameAt(t btf.Type, depth int) string {
	if depth > deepest {
		return "…"
	}
	of := func(t btf.Type) string { return nameAt(t, depth+1) }
	switch t := t.(type) {
	case nil:
		return ""
	case *btf.Void:
		return "void"
	case *btf.Pointer:
		if f, is := t.Target.(*btf.FuncProto); is {
			return prototype(f, "(*)", depth+1)
		}
		return of(t.Target) + " *"
	case *btf.Array:
		return fmt.Sprintf("%s[%d]", of(t.Type), t.Nelems)
	case *btf.Const:
		return "const " + of(t.Type)
	case *btf.Volatile:
		return "volatile " + of(t.Type)
	case *btf.Restrict:
		return "restrict " + of(t.Type)
	case *btf.TypeTag:
		return of(t.Type)
	case *btf.Struct, *btf.Union, *btf.Enum:
		return strings.TrimSpace(kind(t) + " " + t.TypeName())
	case *btf.Fwd:
		return t.Kind.String() + " " + t.Name
	case *btf.FuncProto:
		return prototype(t, "", depth+1)
	}
	return t.TypeName()
}

// prototype returns a function as C declares it.
func prototype(t btf.Type, name string, depth int) string {
	f, is := t.(*btf.FuncProto)
	if !is || depth > deepest {
		return name
	}
	var params []string
	for _, p := range f.Params {
		params = append(params, strings.TrimSpace(nameAt(p.Type, depth+1)+" "+p.Name))
	}
	return fmt.Sprintf("%s %s(%s)", nameAt(f.Return, depth+1), name, strings.Join(params, ", "))
}
