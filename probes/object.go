package probes

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"trace/bpf"
)

// An object is the compiled programs of a group. It is parsed when it is first needed; release frees the result until the next use.
type object struct {
	group
	// events are the structs of the events.
	events map[string]bool

	mu       sync.Mutex
	types    *btf.Spec
	programs *ebpf.CollectionSpec
}

// describe returns the types of the object.
func (o *object) describe() (*btf.Spec, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.types == nil {
		types, err := bpf.Types(o.name)
		if err != nil {
			return nil, err
		}
		o.types = types
	}
	return o.types, nil
}

// load returns the programs and maps of the object; a caller that changes them must copy them.
func (o *object) load() (*ebpf.CollectionSpec, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.programs == nil {
		programs, err := bpf.Load(o.name)
		if err != nil {
			return nil, err
		}
		o.programs = programs
	}
	return o.programs, nil
}

// release frees types, programs and maps.
func (o *object) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.types, o.programs = nil, nil
}

// program returns the function of a program of the object, or nil.
func (o *object) program(name string) *btf.Func {
	types, err := o.describe()
	if err != nil {
		return nil
	}
	var f *btf.Func
	if types.TypeByName(name, &f) != nil {
		return nil
	}
	return f
}
