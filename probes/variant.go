package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A variant is one way to attach a hook: which programs of the object go where.
type variant struct {
	// name is tp_btf, raw_tp, fexit, kprobe or perf_event.
	name     string
	programs []program
	// caps are the capabilities that it needs.
	caps []string
	// check says why it cannot be used on this host, nil if it can. It may take a while, so it is asked only when it matters.
	check func() error
}

// A program of a variant, in the order of attaching: what sees a beginning comes before what sees its end, so that no end lacks
// its beginning.
type program struct {
	name     string // in the object
	kind     string // tp_btf, raw_tp, fentry, fexit, kprobe, kretprobe, perf_event
	target   string // tracepoint, kernel function or clock
	optional bool   // left out where there is no target
}

func allHooks() []hook {
	hooks := append([]hook(nil), helpers...)
	for _, e := range table {
		hooks = append(hooks, e.hook)
	}
	return hooks
}

func helper(name string) hook {
	for _, h := range helpers {
		if h.name == name {
			return h
		}
	}
	panic("probes: no helper hook is called " + name)
}

// program returns a program of an object, or nil.
func (c *Catalog) program(object, name string) *btf.Func {
	var f *btf.Func
	if c.types[object].TypeByName(name, &f) != nil {
		return nil
	}
	return f
}

// variants returns the ways to attach a hook of an object, best first.
func (h *Host) variants(object string, hk hook) []variant {
	switch {
	case hk.sampled:
		return []variant{h.sampledVariant(hk)}
	case hk.tracepoint != "":
		return h.tracepointVariants(object, hk)
	}
	var found []variant
	for _, functions := range hk.functions {
		found = append(found, h.functionVariants(object, hk, functions)...)
	}
	return found
}

// sampledVariant needs nothing of the kernel's types.
func (h *Host) sampledVariant(hk hook) variant {
	v := variant{name: "perf_event", programs: []program{{name: "perf_event_" + hk.name, kind: "perf_event", target: clockName}}, caps: perfCaps()}
	v.check = func() error {
		if missing := h.lacking(v.caps); len(missing) > 0 {
			return &PermissionError{Missing: missing}
		}
		return checkClocks()
	}
	return v
}

// perfCaps are the capabilities for programs on perf events: Debian's kernels know a level 3 of perf_event_paranoid, at which they
// are the administrator's.
func perfCaps() []string {
	if perfParanoid() > 2 {
		return []string{capSysAdmin}
	}
	return []string{capBPF, capPerfmon}
}

func (h *Host) tracepointVariants(object string, hk hook) []variant {
	var found []variant
	for _, kind := range []string{"tp_btf", "raw_tp"} {
		name := kind + "_" + hk.name
		if h.catalog.program(object, name) == nil {
			continue
		}
		v := variant{name: kind, programs: []program{{name: name, kind: kind, target: hk.tracepoint}}, caps: []string{capBPF, capPerfmon}}
		v.check = func() error {
			return h.check(object, v.caps, func() error { return h.checkTracepoint(object, hk.tracepoint, kind) })
		}
		found = append(found, v)
	}
	return found
}

func (h *Host) checkTracepoint(object, name, kind string) error {
	there, err := h.hasTracepoint(object, name)
	if err != nil {
		return fmt.Errorf("symbols of the kernel: %w", err)
	}
	if !there {
		return fmt.Errorf("this kernel has no tracepoint %s", name)
	}
	if kind == "tp_btf" {
		// The file, not h.vmlinux: types that were found elsewhere are not what the kernel's verifier has.
		if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
			return fmt.Errorf("tp_btf needs the kernel's own BTF: %w", err)
		}
	}
	return nil
}

// check finds the first reason against a variant: the kernel's types, its module, its target, the capabilities.
func (h *Host) check(object string, caps []string, target func() error) error {
	if _, err := h.vmlinux(); err != nil && len(h.given) == 0 {
		return fmt.Errorf("%w (give a file with its types: --btf FILE)", err)
	}
	if err := target(); err != nil {
		if m := modules[object]; !m.loaded() {
			return fmt.Errorf("module %s is not loaded (%s)", m.name, m.load)
		}
		return err
	}
	if missing := h.lacking(caps); len(missing) > 0 {
		return &PermissionError{Missing: missing}
	}
	return nil
}

// PermissionError says which capabilities are missing.
type PermissionError struct {
	Missing []string
}

func (e *PermissionError) Error() string {
	return "permission denied: needs " + strings.Join(e.Missing, " and ") + " (run as root, or grant with setcap or --cap-add)"
}

// Unwrap makes it the error that the kernel would give.
func (e *PermissionError) Unwrap() error { return unix.EPERM }

// functionVariants are fexit and kprobe on a list of functions, of which those that end in ? need not be there.
func (h *Host) functionVariants(object string, hk hook, functions []string) []variant {
	fexit, kprobe := variant{name: "fexit", caps: h.fexitCaps(functions)}, variant{name: "kprobe", caps: perfCaps()}
	for _, f := range functions {
		fexit.programs = append(fexit.programs, h.programsOn(object, hk, f, "fentry", "fexit")...)
		kprobe.programs = append(kprobe.programs, h.programsOn(object, hk, f, "kprobe", "kretprobe")...)
	}
	fexit.check = func() error {
		return h.check(object, fexit.caps, func() error {
			if err := h.checkFunctions(object, functions); err != nil {
				return err
			}
			return h.checkPrototypes(object, h.present(object, fexit.programs))
		})
	}
	kprobe.check = func() error {
		return h.check(object, kprobe.caps, func() error { return h.checkFunctions(object, functions) })
	}
	return []variant{fexit, kprobe}
}

// checkFunctions names the functions that have to be there and are not.
func (h *Host) checkFunctions(object string, functions []string) error {
	var missing []string
	for _, f := range functions {
		if strings.HasSuffix(f, "?") {
			continue
		}
		there, err := h.hasFunction(object, f)
		if err != nil {
			return fmt.Errorf("symbols of the kernel: %w", err)
		}
		if !there {
			missing = append(missing, f)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this kernel has no function %s", strings.Join(missing, ", "))
	}
	return nil
}

// present leaves out the optional programs whose target is not there.
func (h *Host) present(object string, programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		if !p.optional {
			return false
		}
		there, err := h.hasFunction(object, p.target)
		return err != nil || !there
	})
}

// programsOn returns the programs of a hook on one function that the object has, entry first.
func (h *Host) programsOn(object string, hk hook, function string, kinds ...string) []program {
	function, optional := strings.CutSuffix(function, "?")
	var found []program
	for _, kind := range kinds {
		name := kind + "_" + hk.name + "__" + function
		if h.catalog.program(object, name) != nil {
			found = append(found, program{name: name, kind: kind, target: function, optional: optional})
		}
	}
	return found
}

// fexitCaps: to refer to the BTF of a module takes CAP_SYS_ADMIN (BPF_BTF_GET_FD_BY_ID).
func (h *Host) fexitCaps(functions []string) []string {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return []string{capSysAdmin}
	}
	for _, f := range functions {
		var fn *btf.Func
		if vmlinux.TypeByName(strings.TrimSuffix(f, "?"), &fn) != nil {
			return []string{capSysAdmin}
		}
	}
	return []string{capBPF, capPerfmon}
}

// checkPrototypes compares the number of arguments that each program counts on with the kernel's prototype.
func (h *Host) checkPrototypes(object string, programs []program) error {
	for _, p := range programs {
		fn, err := h.kernelFunction(object, p.target)
		if err != nil {
			return err
		}
		proto, ok := fn.Type.(*btf.FuncProto)
		if !ok {
			return fmt.Errorf("BTF of %s is no function", p.target)
		}
		if want := tagged(h.catalog.program(object, p.name).Tags, "args:"); want != strconv.Itoa(len(proto.Params)) {
			return fmt.Errorf("%s has %d parameters in this kernel, expected %s", p.target, len(proto.Params), want)
		}
	}
	return nil
}

func (h *Host) kernelFunction(object, name string) (*btf.Func, error) {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return nil, fmt.Errorf("fexit needs the kernel's own BTF: %w", err)
	}
	var fn *btf.Func
	if err := vmlinux.TypeByName(name, &fn); !errors.Is(err, btf.ErrNotFound) {
		return fn, err
	}
	m := modules[object]
	spec, err := h.moduleTypes[m.name]()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("module %s has no BTF", m.name)
	}
	if err != nil {
		return nil, err
	}
	if err := spec.TypeByName(name, &fn); err != nil {
		return nil, fmt.Errorf("BTF of module %s has no %s: %w", m.name, name, err)
	}
	return fn, nil
}
