package probes

import (
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"trace/bpf"
	"trace/probes/kernel"
)

// An object is the compiled programs of a group. It is decompressed when it is first needed, and each program is parsed when it is;
// release frees the result until the next use.
type object struct {
	group

	mu       sync.Mutex
	embedded *bpf.Object
	types    *btf.Spec
	loaded   *ebpf.CollectionSpec
}

// describe returns the types of the object.
func (o *object) describe() (*btf.Spec, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.types == nil {
		if err := o.open(); err != nil {
			return nil, err
		}
		types, err := o.embedded.Types()
		if err != nil {
			return nil, err
		}
		o.types = types
	}
	return o.types, nil
}

// kernelStructs returns views of the structs of a module that the programs of the object read, each once. Structs of the object's own, like
// the values of its maps, may be called as if they were the module's, but no program is relocated against them.
func (o *object) kernelStructs(m kernel.Module) ([]*btf.Struct, error) {
	types, err := o.describe()
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(); err != nil {
		return nil, err
	}
	var found []*btf.Struct
	seen := make(map[string]bool)
	for _, id := range o.embedded.Relocated() {
		t, err := types.TypeByID(id)
		if err != nil {
			return nil, err
		}
		view, isStruct := t.(*btf.Struct)
		if !isStruct || !m.Owns(view.Name) {
			continue
		}
		if name := kernel.NameOf(view); !seen[name] {
			seen[name] = true
			found = append(found, view)
		}
	}
	return found, nil
}

// open decompresses the object. The caller holds the mutex.
func (o *object) open() (err error) {
	if o.embedded == nil {
		o.embedded, err = bpf.Open(o.name)
	}
	return err
}

// load returns maps of the object and at least the programs with some names; a caller that changes them must copy them. An object may have
// hundreds of programs.
func (o *object) load(programs ...string) (*ebpf.CollectionSpec, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(); err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range programs {
		if o.loaded == nil || o.loaded.Programs[name] == nil {
			missing = append(missing, name)
		}
	}
	if o.loaded != nil && len(missing) == 0 {
		return o.loaded, nil
	}
	spec, err := o.embedded.Load(missing...)
	if err != nil {
		return nil, err
	}
	if o.loaded != nil { // its readers may be reading still
		maps.Copy(spec.Programs, o.loaded.Programs)
		maps.Copy(spec.Maps, o.loaded.Maps)
		maps.Copy(spec.Variables, o.loaded.Variables)
	}
	o.loaded = spec
	return spec, nil
}

// callers returns the names of the programs that call a function of generated code.
func (o *object) callers(function string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open() != nil {
		return nil
	}
	return o.embedded.Callers(function)
}

// release frees what was decompressed and parsed.
func (o *object) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.embedded, o.types, o.loaded = nil, nil, nil
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
