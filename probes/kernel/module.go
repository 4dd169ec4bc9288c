package kernel

import (
	"errors"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// ErrNotLoaded means that a module is not loaded.
var ErrNotLoaded = errors.New("not loaded")

// A Module is where functions, tracepoints and types belong. One without a name is the kernel itself.
type Module struct {
	Name string
	// Others are modules with functions of the same subsystem, but no types of their own that are read.
	Others []string
	// Types are prefixes of the names of the types that belong to the module: an out-of-tree module may have changed them.
	Types []string
	// DescribedBy is the module whose BTF has these types, if it is another.
	DescribedBy string
	// Headers declare these types, for those who compile them.
	Headers []string
	// Load is the command that loads it.
	Load string
	// Events is the folder of its tracepoints in tracefs, if their ftrace events are read.
	Events string
}

// All returns the names of the module and the others.
func (m Module) All() []string { return append([]string{m.Name}, m.Others...) }

// Owns reports whether a type belongs to the module.
func (m Module) Owns(typeName string) bool {
	for _, prefix := range m.Types {
		if strings.HasPrefix(typeName, prefix) {
			return true
		}
	}
	return false
}

// Describer returns the name of the module whose BTF has the types that belong to m.
func (m Module) Describer() string {
	if m.DescribedBy == "" {
		return m.Name
	}
	return m.DescribedBy
}

// NameOf returns the kernel's name of the type that a view is of: without its flavour.
func NameOf(view btf.Type) string {
	name, _, _ := strings.Cut(view.TypeName(), "___")
	return name
}
