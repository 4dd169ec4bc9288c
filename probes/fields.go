package probes

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
)

// commonFields are declared by COMMON in trace.h.
var commonFields = map[string]bool{
	"nsecs": true, "pid": true, "tid": true, "uid": true, "cpu": true, "cgroup": true, "comm": true,
	"ppid": true, "pgid": true, "pidns": true, "pcomm": true,
}

// structReader reads the fields of an event struct, and their tags. Fields with the same enum share it.
type structReader struct {
	enums  map[string]*event.Enum
	fields []event.Field
	tags   [][]string
}

// read flattens the members of a struct at offset base; nested structs give dotted names.
func (r *structReader) read(members []btf.Member, prefix string, base int) error {
	has, err := presenceBits(members, base)
	if err != nil {
		return err
	}
	for _, m := range members {
		if holdsPresence(m) {
			continue
		}
		offset := base + int(m.Offset.Bytes())
		if s, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			if err := r.read(s.Members, prefix+m.Name+".", offset); err != nil {
				return err
			}
			continue
		}
		t, err := typeOf(m, r.enums)
		if err != nil {
			return fmt.Errorf("field %s%s: %w", prefix, m.Name, err)
		}
		line, err := lineOf(m.Tags, t)
		if err != nil {
			return fmt.Errorf("field %s%s: %w", prefix, m.Name, err)
		}
		f := event.Field{Name: prefix + m.Name, Doc: tagged(m.Tags, "doc:"), Type: t, Line: line, Offset: offset, Common: commonFields[prefix+m.Name]}
		f.Presence, f.Optional = has[m.Name]
		r.fields, r.tags = append(r.fields, f), append(r.tags, m.Tags)
	}
	return nil
}

// holdsPresence reports whether a member is no field, but holds the presence bits of its siblings.
func holdsPresence(m btf.Member) bool {
	return m.Name == "has" || m.Name == "has_of_task" || m.Name == "has_spent"
}

// presenceBits reads the bit fields of the members that hold them: one for each sibling that may be absent.
func presenceBits(members []btf.Member, base int) (map[string]event.Bit, error) {
	bits := make(map[string]event.Bit)
	for _, m := range members {
		if !holdsPresence(m) {
			continue
		}
		s, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
		if !ok {
			return nil, fmt.Errorf("member %s is not a struct", m.Name)
		}
		for _, b := range s.Members {
			if b.BitfieldSize != 1 {
				return nil, fmt.Errorf("presence bit %s is %d bits wide", b.Name, b.BitfieldSize)
			}
			bits[b.Name] = event.Bit{Offset: base + int(m.Offset.Bytes()) + int(b.Offset/8), Mask: 1 << (b.Offset % 8)}
		}
	}
	return bits, nil
}

// cgroupType is the typedef of cgroup ids.
const cgroupType = "cgroup_t"

// units are the meanings of the typedefs of trace.h.
var units = map[string]event.Unit{
	"ns_t": event.Nanoseconds, "bytes_t": event.Bytes, "change_t": event.Bytes, "errno_t": event.Errno, cgroupType: event.Cgroup, "ip_t16": event.IP,
	"hex8_t": event.Hex, "hex16_t": event.Hex, "hex32_t": event.Hex, "hex64_t": event.Hex,
}

func typeOf(m btf.Member, enums map[string]*event.Enum) (event.Type, error) {
	t := m.Type
	size, err := btf.Sizeof(t)
	if err != nil {
		return event.Type{}, err
	}
	typ := event.Type{Size: size}
	if def, ok := t.(*btf.Typedef); ok {
		typ.Unit = units[def.Name]
		if typ.Unit == event.Cgroup {
			typ.Enum = enums[cgroupType]
		}
		if def.Name == "gid_t16" || def.Name == "ip_t16" {
			typ.Kind = event.GID
			return typ, nil
		}
	}
	switch u := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		typ.Kind = intKind(u)
	case *btf.Enum:
		if enums[u.Name] == nil {
			enums[u.Name] = newEnum(u)
		}
		typ.Kind, typ.Enum = event.Uint, enums[u.Name]
		if u.Signed {
			typ.Kind = event.Int
		}
		if slices.Contains(m.Tags, "flags") {
			typ.Enum.Flags = true
		}
		if classes := tagged(m.Tags, "classes:"); classes != "" {
			typ.Enum.Classes = strings.Fields(classes)
		}
	case *btf.Array:
		typ.Kind = event.String
	default:
		return event.Type{}, fmt.Errorf("a field cannot have the type %s", t)
	}
	return typ, nil
}

func intKind(t *btf.Int) event.Kind {
	switch t.Encoding {
	case btf.Bool:
		return event.Bool
	case btf.Signed:
		return event.Int
	default:
		return event.Uint
	}
}

// newEnum strips the name of the enum and two underscores from each of its names: C has one namespace for all of them.
func newEnum(t *btf.Enum) *event.Enum {
	values := append([]btf.EnumValue(nil), t.Values...)
	sort.SliceStable(values, func(i, j int) bool { return int64(values[i].Value) < int64(values[j].Value) })
	e := &event.Enum{Name: t.Name}
	for _, v := range values {
		e.Names = append(e.Names, strings.TrimPrefix(v.Name, t.Name+"__"))
		e.Values = append(e.Values, int64(v.Value))
	}
	return e
}

func tagged(tags []string, prefix string) string {
	if all := allTagged(tags, prefix); len(all) > 0 {
		return all[0]
	}
	return ""
}

func allTagged(tags []string, prefix string) []string {
	var found []string
	for _, tag := range tags {
		if text, ok := strings.CutPrefix(tag, prefix); ok {
			found = append(found, text)
		}
	}
	return found
}
