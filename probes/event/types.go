package event

import (
	"fmt"
	"strings"
)

// Kind says how a value is represented and compared.
type Kind uint8

const (
	// Int is a signed integer, held as int64.
	Int Kind = iota
	// Uint is an unsigned integer, held as uint64.
	Uint
	// Bool is held as bool.
	Bool
	// String is a byte string up to its first NUL, held as string.
	String
	// GID is the 128-bit RDMA global identifier (IBTA spec 4.1.1), or an IP address, held as a string of its 16 raw bytes in network
	// order.
	GID
)

// Unit is what a number counts or means; it drives how the number is printed and which literals fit it.
type Unit uint8

const (
	// None is a plain number.
	None Unit = iota
	// Nanoseconds is a duration (ns_t).
	Nanoseconds
	// Bytes is a size (bytes_t).
	Bytes
	// Errno is 0 or more for success and -errno for failure (errno_t).
	Errno
	// Cgroup is the id of a cgroup, the inode of its directory, whose name is its path (cgroup_t).
	Cgroup
	// Hex is a number that is read in hexadecimal: flags, masks, addresses (hex8_t … hex64_t).
	Hex
	// IP is a GID that is an IP address, an IPv4 one as ::ffff:a.b.c.d (ip_t16).
	IP
)

// Type is the type of a field.
type Type struct {
	Kind Kind
	// Size is the width in the event, in bytes.
	Size int
	Unit Unit
	// Enum names the values of an Int or Uint; nil if they have no names.
	Enum *Enum
}

// Enum is a set of named values: one namespace. That of cgroups, whose names are their paths, changes with the host's cgroups.
type Enum struct {
	// Name of the enum, like qp_state.
	Name string
	// Names in order of their values.
	Names  []string
	Values []int64
	// Flags says that the values are bits, of which a number may have several (FLAGS in trace.h).
	Flags bool
	// Classes are what the codes of a value's lowest byte belong to, by the byte above it (CLASSES in trace.h); nil if all are of one kind.
	Classes []string

	cgroups CgroupNames // name the values in place of Names and Values
}

// CgroupNames know the paths of cgroups by their ids.
type CgroupNames interface {
	// ID returns the id of the cgroup that has a path now.
	ID(path string) (id uint64, ok bool)
	// Path returns the path of the cgroup with an id, "" if it is not known.
	Path(id uint64) string
}

// NewCgroupEnum makes the enum of cgroups that have these names.
func NewCgroupEnum(names CgroupNames) *Enum { return &Enum{Name: "cgroup", cgroups: names} }

// Value returns the value called name.
func (e *Enum) Value(name string) (int64, bool) {
	if e.cgroups != nil {
		id, ok := e.cgroups.ID(name)
		return int64(id), ok
	}
	for i, n := range e.Names {
		if n == name {
			return e.Values[i], true
		}
	}
	return 0, false
}

// NameOf returns the name of v, or "" if it has none. Flags are the names of their bits, like LOCAL_WRITE|REMOTE_READ, with the bits
// that have none as a number; "" is none of them.
func (e *Enum) NameOf(v int64) string {
	if e.cgroups != nil {
		return e.cgroups.Path(uint64(v))
	}
	if e.Flags {
		return e.flagsOf(v)
	}
	for i, x := range e.Values {
		if x == v {
			return e.Names[i]
		}
	}
	return ""
}

// Unknown is what is printed for a value without a name: unknown(0x1d), or with its class unknown(admin:0xc1).
func (e *Enum) Unknown(v uint64) string {
	if class := v >> 8; class < uint64(len(e.Classes)) && e.Classes[class] != "-" {
		return fmt.Sprintf("unknown(%s:%#x)", e.Classes[class], v&0xff)
	}
	return fmt.Sprintf("unknown(%#x)", v)
}

func (e *Enum) flagsOf(v int64) string {
	var names []string
	for i, bit := range e.Values {
		if v&bit != 0 {
			names = append(names, e.Names[i])
			v &^= bit
		}
	}
	if v != 0 {
		names = append(names, fmt.Sprintf("%#x", uint64(v)))
	}
	return strings.Join(names, "|")
}

// EnumOf returns the names that stand for values of a type, or nil.
func EnumOf(t *Type) *Enum {
	switch {
	case t == nil:
		return nil
	case t.Unit == Errno:
		return ErrnoNames()
	}
	return t.Enum
}
