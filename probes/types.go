//go:build linux

package probes

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf/btf"

	"trace/probes/kernel"
)

// relocation says which types programs may be relocated against, beyond those of the object's own code. A process that needs none of
// them starts sooner.
type relocation struct {
	records bool // of tracefs
	tasks   bool // of the way from a task to what common fields tell of it, see trace.h
}

// kernelTypes returns the kernel's own version of every type that the programs of an object read, as far as this kernel describes it.
func kernelTypes(k *kernel.Kernel, o *object, r relocation) (*btf.Spec, error) {
	types, err := o.describe()
	if err != nil {
		return nil, err
	}
	selection, err := kernel.NewSelection()
	if err != nil {
		return nil, err
	}
	modules := o.modules()
	for _, view := range kernel.Views(types, r.tasks) {
		isRecord := strings.HasPrefix(view.TypeName(), recordPrefix)
		if isRecord && !r.records {
			continue
		}
		t, err := k.Type(ownerAmong(modules, view), view)
		if isRecord {
			t, err = recordType(k, o, view.TypeName())
		}
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := selection.Add(t); err != nil {
			return nil, fmt.Errorf("type %s: %w", view.TypeName(), err)
		}
	}
	return selection.Spec()
}

// ownerAmong returns the module that a type belongs to; the first one stands for those that belong to none.
func ownerAmong(modules []kernel.Module, view btf.Type) kernel.Module {
	for _, m := range modules {
		if m.Owns(view.TypeName()) {
			return m
		}
	}
	return modules[0]
}

// recordType makes the type of the record that a view of an object stands for; btf.ErrNotFound if this host does not show it.
func recordType(k *kernel.Kernel, o *object, view string) (btf.Type, error) {
	hooks := allHooks()
	i := slices.IndexFunc(hooks, func(hk hook) bool { return recordPrefix+hk.name == view })
	if i < 0 {
		return nil, btf.ErrNotFound
	}
	tp, ok := hooks[i].place.(tracepoint)
	if !ok {
		return nil, btf.ErrNotFound
	}
	record, err := kernel.ReadRecord(o.module.Events + "/" + tp.nameIn(&site{Kernel: k, object: o}))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", btf.ErrNotFound, err)
	}
	record.Name = view
	return record, nil
}

// missingTypes returns a module's structs that the programs of an object read and this kernel may have, but does not describe. A struct
// that is not in a whole description of the module is not in this kernel, like ib_dmah before 6.17: --btf would not help.
func missingTypes(k *kernel.Kernel, o *object, m kernel.Module) []string {
	types, err := o.describe()
	if err != nil || k.Describes(m) {
		return nil
	}
	var missing []string
	for _, view := range kernel.Views(types, false) {
		if _, isStruct := view.(*btf.Struct); !isStruct || !m.Owns(view.TypeName()) || o.events[view.TypeName()] {
			continue
		}
		if _, err := k.Type(m, view); err != nil {
			missing = append(missing, view.TypeName())
		}
	}
	sort.Strings(missing)
	return missing
}
