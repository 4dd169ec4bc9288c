package event

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is how a value is represented and compared.
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

// Unit is what a number counts or means. It determines how the number is printed and which literals can be compared with it.
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
	// Hex is a number that is printed in hexadecimal: flags, masks, addresses (hex8_t … hex64_t).
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
	// Enum names the values of an Int or Uint; nil if they have no names. The enum of a String makes it of a number: see
	// [Type.NamesWorkload].
	Enum *Enum
}

// Enum is a set of named values: one namespace. The enum of cgroups, whose names are their paths, changes with the host's cgroups.
type Enum struct {
	// Name of the enum, like qp_state.
	Name string
	// Names in order of their values.
	Names  []string
	Values []int64
	// Flags means that the values are bits; a number may have several of them (FLAGS in trace.h).
	Flags bool
	// Classes are names for the byte above the lowest byte of a value (CLASSES in trace.h); nil if there are no classes.
	Classes []string

	cgroups CgroupNames // replace Names and Values
	// names are the enums that have names of the workload in place of the path, each with its name.
	names map[string]*Enum
	name  func(*Workload) *string
}

// CgroupNames maps ids of cgroups to paths and back, and to workloads.
type CgroupNames interface {
	// ID returns the id of the cgroup that has a path now.
	ID(path string) (id uint64, ok bool)
	// Path returns the path of the cgroup with an id, "" if it is not known.
	Path(id uint64) string
	// Ended reports whether no cgroup has a path now; false if that is not known.
	Ended(path string) bool
	// Workload returns what the cgroup with an id runs.
	Workload(id uint64) Workload
}

// NewCgroupEnum makes the enum of cgroups with these names.
func NewCgroupEnum(names CgroupNames) *Enum {
	e := &Enum{Name: "cgroup", cgroups: names, names: make(map[string]*Enum)}
	for _, n := range workloadNames {
		e.names[n.name] = &Enum{Name: n.name, cgroups: names, name: n.of}
	}
	return e
}

// Value returns the value called name, where the case of letters makes no difference unless two names differ in it alone.
func (e *Enum) Value(name string) (int64, bool) {
	if e.cgroups != nil {
		id, ok := e.cgroups.ID(name)
		return int64(id), ok
	}
	if i := e.index(name); i >= 0 {
		return e.Values[i], true
	}
	return 0, false
}

// Spelled returns the name that a word means as the enum has it, "" if it means none. Paths of cgroups are no such names.
func (e *Enum) Spelled(word string) string {
	if i := e.index(word); i >= 0 {
		return e.Names[i]
	}
	return ""
}

// index returns the place of the name that a word means: the word itself, or else the only name that differs from it in case alone. It
// returns -1 if there is none.
func (e *Enum) index(word string) int {
	if i := slices.Index(e.Names, word); i >= 0 {
		return i
	}
	same := func(name string) bool { return strings.EqualFold(name, word) }
	i := slices.IndexFunc(e.Names, same)
	if i >= 0 && slices.ContainsFunc(e.Names[i+1:], same) {
		return -1
	}
	return i
}

// NameOf returns the name of v, or "" if it has none. Flags give the names of their bits, like LOCAL_WRITE|REMOTE_READ, and a number for
// unnamed bits; no bit gives "".
func (e *Enum) NameOf(v int64) string {
	switch {
	case e.name != nil:
		w := e.cgroups.Workload(uint64(v))
		return *e.name(&w)
	case e.cgroups != nil:
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

// Ended reports whether a name is the path of a cgroup that has ended.
func (e *Enum) Ended(path string) bool {
	return e != nil && e.cgroups != nil && e.name == nil && e.cgroups.Ended(path)
}

// Unknown returns the text for a value without a name: unknown(0x1d), or with its class unknown(admin:0xc1).
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

// EnumOf returns the names for values of a type, or nil.
func EnumOf(t *Type) *Enum {
	switch {
	case t == nil, t.Kind == String: // the names that a string is one of are strings
		return nil
	case t.Unit == Errno:
		return ErrnoNames()
	}
	return t.Enum
}
