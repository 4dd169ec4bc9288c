//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// HasTracepoint reports whether the kernel or a loaded module has a tracepoint.
func (k *Kernel) HasTracepoint(m Module, name string) (bool, error) {
	if _, ok := k.tracepoint(m, name); ok {
		return true, nil
	}
	return k.isSymbol(TracepointSymbols(name)...)
}

// tracepoint returns how many parameters the programs of a tracepoint have: a context and the arguments (bpf_raw_event_map,
// include/trace/bpf_probe.h). ok is false if BTF does not describe it.
func (k *Kernel) tracepoint(m Module, name string) (parameters int, ok bool) {
	for _, of := range append([]func() (description, error){k.taken.Load().described}, k.describers(m)...) {
		if types, err := of(); err == nil {
			if n, ok := types.parameters("btf_trace_" + name); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// Arguments returns how many arguments a raw tracepoint of the kernel or of a loaded module has, or if there is none, a function; 0 if BTF
// does not describe it.
func (k *Kernel) Arguments(m Module, name string) byte {
	if n, ok := k.tracepoint(m, name); ok {
		return byte(max(n-1, 0))
	}
	if proto, err := k.Prototype(m, name); err == nil {
		return byte(len(proto.Params))
	}
	return 0
}

// TracepointSymbols returns symbols for a tracepoint; each kernel has at least one of them.
func TracepointSymbols(name string) []string {
	return []string{"__tracepoint_" + name, "__traceiter_" + name}
}

// HasFunction reports whether the kernel or a loaded module has a function that can be probed.
func (k *Kernel) HasFunction(m Module, name string) (bool, error) {
	var f *btf.Func
	if spec, err := k.Types(); err == nil && spec.TypeByName(name, &f) == nil {
		return true, nil
	}
	for _, of := range m.All() {
		if spec, err := k.moduleTypes(of); err == nil && spec.TypeByName(name, &f) == nil {
			return true, nil
		}
	}
	return k.isSymbol(name)
}

// describers are the types of a module and its others.
func (k *Kernel) describers(m Module) []func() (description, error) {
	var all []func() (description, error)
	for _, name := range m.All() {
		if of := k.taken.Load().describedBy[name]; of != nil { // a group of the kernel itself has no module
			all = append(all, of)
		}
	}
	return all
}

// isSymbol reports whether the kernel has one of these symbols. It is the last resort: to list them takes the kernel longer than all the
// rest of the start.
func (k *Kernel) isSymbol(symbols ...string) (bool, error) {
	found, err := k.symbols()
	if err != nil {
		return false, fmt.Errorf("symbols of the kernel: %w", err)
	}
	return slices.ContainsFunc(symbols, func(name string) bool { return found[name] }), nil
}

// BuiltIn reports whether the kernel's own types describe a function: it is in no module.
func (k *Kernel) BuiltIn(function string) bool {
	spec, err := k.Types()
	if err != nil {
		return false
	}
	var fn *btf.Func
	return spec.TypeByName(function, &fn) == nil
}

// Prototype returns the prototype of a function of the kernel or of a module.
func (k *Kernel) Prototype(m Module, function string) (*btf.FuncProto, error) {
	fn, err := k.function(m, function)
	if err != nil {
		return nil, err
	}
	proto, ok := fn.Type.(*btf.FuncProto)
	if !ok {
		return nil, fmt.Errorf("%s is not a function in BTF", function)
	}
	return proto, nil
}

func (k *Kernel) function(m Module, name string) (*btf.Func, error) {
	spec, err := k.Types()
	if err != nil {
		return nil, fmt.Errorf("fexit needs the kernel's own BTF: %w", err)
	}
	var fn *btf.Func
	if err := spec.TypeByName(name, &fn); !errors.Is(err, btf.ErrNotFound) {
		return fn, err
	}
	if m.Name == "" {
		return nil, fmt.Errorf("the kernel's BTF has no %s", name)
	}
	var without []string
	for _, of := range m.All() {
		spec, err := k.moduleTypes(of)
		switch {
		case errors.Is(err, os.ErrNotExist):
			without = append(without, of)
		case err != nil:
			return nil, err
		case spec.TypeByName(name, &fn) == nil:
			return fn, nil
		}
	}
	if len(without) > 0 {
		return nil, fmt.Errorf("module %s has no BTF", without[0])
	}
	return nil, fmt.Errorf("BTF of module %s has no %s", strings.Join(m.All(), ", "), name)
}
