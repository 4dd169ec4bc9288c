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

// relocation selects the types that programs may be relocated against, besides the types of the object's own code. A process that needs
// none of them starts sooner.
type relocation struct {
	ftrace bool // types of ftrace events
	tasks  bool // of the way from a task to what common fields tell of it, see trace.h
}

// kernelTypes returns the kernel's own version of every type that the programs of an object read, if this kernel describes it.
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
		isFtrace := strings.HasPrefix(view.TypeName(), ftracePrefix)
		if isFtrace && !r.ftrace {
			continue
		}
		t, err := k.Type(ownerAmong(modules, view), view)
		if isFtrace {
			t, err = ftraceType(k, o, view.TypeName())
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

// ownerAmong returns the module that a type belongs to; the first one if it belongs to none.
func ownerAmong(modules []kernel.Module, view btf.Type) kernel.Module {
	for _, m := range modules {
		if m.Owns(view.TypeName()) {
			return m
		}
	}
	return modules[0]
}

// ftraceType makes the type of the ftrace event for a view of an object; btf.ErrNotFound if this host does not describe it.
func ftraceType(k *kernel.Kernel, o *object, view string) (btf.Type, error) {
	hooks := allHooks()
	i := slices.IndexFunc(hooks, func(hk hook) bool { return ftracePrefix+hk.name == view })
	if i < 0 {
		return nil, btf.ErrNotFound
	}
	tp, ok := hooks[i].place.(tracepoint)
	if !ok {
		return nil, btf.ErrNotFound
	}
	t, err := kernel.ReadFormat(o.module.Events + "/" + tp.nameIn(&hostHook{Kernel: k, object: o}))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", btf.ErrNotFound, err)
	}
	t.Name = view
	return t, nil
}

// missingTypes returns a module's structs that the programs of an object read and this kernel may have, but does not describe. If the
// module's BTF is complete, a struct that is not in it, like ib_dmah before 6.17, is not in this kernel: --btf would not help.
func missingTypes(k *kernel.Kernel, o *object, m kernel.Module) []string {
	if k.Describes(m) {
		return nil
	}
	views, err := o.kernelStructs(m)
	if err != nil {
		return nil
	}
	var missing []string
	for _, view := range views {
		if _, err := k.Type(m, view); err != nil {
			missing = append(missing, kernel.NameOf(view))
		}
	}
	sort.Strings(missing)
	return missing
}
